//! The tools of a law: connections, seats of its own, records to write, and waits with time-outs.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::{
    Candidate, Claim, Clock, DynSeatStore, Incarnation, Moment, Promises, Record, Seat, SeatName, Seen, SingleSeat,
    Swap, Token, Version,
};

use crate::failure::ensure;
use crate::{Failure, Subject, Verdict};

/// The environment of one run of a law. Each run has seats of its own, so that laws can run concurrently and repeatedly
/// on the same data.
#[derive(Clone)]
pub struct Bench {
    pub(crate) subject: Arc<dyn Subject>,
    run: u64,
    pub(crate) patience: Duration,
}

/// A connection of a law.
pub(crate) type Connection = Arc<dyn DynSeatStore>;

impl Bench {
    /// Creates an environment for one run of a law on this subject.
    pub fn new(subject: Arc<dyn Subject>) -> Self {
        let patience = subject.patience();
        Self { subject, run: rand::random(), patience }
    }

    pub(crate) fn connect(&self) -> Connection {
        let store: Connection = Arc::from(self.subject.open_seats());
        store.attach(&Clock::system());
        store
    }

    /// Connects to another scope of the same server, if the subject has one.
    pub(crate) fn connect_elsewhere(&self) -> Option<Connection> {
        let store: Connection = Arc::new(SingleSeat::new(self.subject.elsewhere()?));
        store.attach(&Clock::system());
        Some(store)
    }

    pub(crate) fn promises(&self) -> Promises {
        self.subject.open().as_ref().promises()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.subject.lease()
    }

    /// Returns a seat that no other law, and no other run of this law, uses.
    pub(crate) fn seat(&self, name: &str) -> SeatName {
        let unique = format!("{:016x}", self.run);
        // Truncates a name that would be too long.
        let mut room = SeatName::LONGEST - unique.len() - 1;
        while !name.is_char_boundary(room.min(name.len())) {
            room -= 1;
        }
        let name = &name[..room.min(name.len())];
        SeatName::new(format!("{unique}-{name}")).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns a lease of six times the usual one, or the longest that the store can keep.
    pub(crate) fn long_lease(&self) -> Duration {
        (self.lease() * 6).min(self.promises().max_lease)
    }

    /// Returns the record that a candidate writes to hold a seat.
    pub(crate) fn held(&self, holder: &Candidate, token: u64) -> Record {
        Record {
            holder: Some(holder.clone()),
            token: Token::new(token),
            lease: self.lease(),
            since_ms: Some(1_700_000_000_000),
            heir: None,
            priority: 0,
            ranked: false,
            metadata: Arc::new(BTreeMap::from([("zone".to_owned(), "a".to_owned())])),
            nonce: rand::random(),
            claim: Some(Arc::new(Claim {
                at_ms: 1_700_000_000_000,
                by: holder.id.clone(),
                token: Token::new(token),
                done: true,
            })),
            crash: None,
            unknown: Arc::default(),
        }
    }

    /// Returns the record that a candidate writes to release a seat.
    pub(crate) fn vacant(&self, token: u64) -> Record {
        Record { nonce: rand::random(), ..Record::new(None, Token::new(token), self.lease()) }
    }

    /// Waits for a future that must resolve. If it times out, the failure says what was expected.
    pub(crate) async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::time::timeout(self.patience, future)
            .await
            .map_err(|_| Failure::new(format!("timed out after {:?}, expected: {what}", self.patience)))
    }

    /// Polls a condition until it is true.
    pub(crate) async fn until<F: Future<Output = Result<bool, Failure>>>(
        &self,
        what: &str,
        mut ask: impl FnMut() -> F,
    ) -> Verdict {
        self.within(what, async {
            while !ask().await? {
                // Often enough to measure a lease, and without keeping a server busy during a long one.
                tokio::time::sleep((self.lease() / 500).max(Duration::from_millis(2))).await;
            }
            Ok(())
        })
        .await?
    }

    /// Checks that a state which the caller has seen does not keep waking the watch. Late notifications may wake it a
    /// few times.
    pub(crate) async fn stays_quiet(&self, what: &str, store: &Connection, seat: &SeatName, seen: &Seen) -> Verdict {
        for _ in 0..50 {
            if tokio::time::timeout(self.lease() / 20, store.changed(seat, seen)).await.is_err() {
                return Ok(());
            }
            tokio::time::sleep(self.lease() / 100).await;
        }
        Err(Failure::new(format!("{what} keeps waking a watch")))
    }

    /// Reads a seat that must exist.
    pub(crate) async fn read(&self, store: &Connection, seat: &SeatName) -> Result<Seat, Failure> {
        let reading = self.within("a reading", store.read(seat)).await??;
        reading.seat.ok_or_else(|| Failure::new(format!("the seat {:?} is gone", seat.as_str())))
    }

    /// Returns whether a candidate that has ended has released its seat; `since` is when it could first do so. A
    /// machine can be so busy that it could not for a whole lease. Then it has left the seat to expire, which counts
    /// as well.
    pub(crate) async fn has_released(&self, seat: &SeatName, since: Instant) -> Result<bool, Failure> {
        let took = since.elapsed();
        Ok(self.read(&self.connect(), seat).await?.record.is_vacant() || took >= self.lease())
    }

    /// Writes a seat. The write must succeed.
    pub(crate) async fn write(
        &self,
        store: &Connection,
        seat: &SeatName,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Written, Failure> {
        let sent = now();
        let swap = self.within("an answer to a swap", store.swap(seat, expected, record)).await??;
        Written::of(swap, sent, "a swap on the current version of a free seat")
    }

    /// Renews a seat. The renewal must succeed.
    pub(crate) async fn renew(
        &self,
        store: &Connection,
        seat: &SeatName,
        held: &Version,
        record: &Record,
    ) -> Result<Written, Failure> {
        let sent = now();
        let swap = self.within("an answer to a renewal", store.renew(seat, held, record)).await??;
        Written::of(swap, sent, "a renewal by the holder")
    }

    /// Makes a swap that must be lost.
    pub(crate) async fn lose(
        &self,
        what: &str,
        store: &Connection,
        seat: &SeatName,
        expected: Option<&Version>,
        record: &Record,
    ) -> Verdict {
        let swap = self.within("an answer to a swap", store.swap(seat, expected, record)).await??;
        ensure!(swap == Swap::Lost, "{what} must be lost, but was answered with {swap:?}");
        Ok(())
    }
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("run", &self.run).finish_non_exhaustive()
    }
}

/// A write that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) version: Version,
    /// The moment from which its lease counts: its send, or the send of the heartbeat that keeps it.
    pub(crate) since: Moment,
    /// When it was sent, and when its answer was received.
    pub(crate) sent: Moment,
    pub(crate) answered: Moment,
    pub(crate) granted: Option<Duration>,
}

impl Written {
    fn of(swap: Swap, sent: Moment, what: &str) -> Result<Self, Failure> {
        match swap {
            Swap::Lost => Err(Failure::new(format!("{what} must succeed, but was lost"))),
            Swap::Done { version, since, granted } => {
                let since = since.map_or(sent, |since| since.min(sent));
                Ok(Self { version, since, sent, answered: now(), granted })
            }
        }
    }
}

/// Returns a candidate with this id and a new incarnation.
pub(crate) fn candidate(id: &str) -> Candidate {
    Candidate { id: id.into(), incarnation: Incarnation::from_bits(rand::random()) }
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}
