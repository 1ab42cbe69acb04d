//! Where a law is tried: connections, seats of its own, records to write, and waiting.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::{
    Candidate, Clock, DynSeatStore, Incarnation, Moment, Promises, Record, Seat, SeatName, Seen, Swap, Token, Version,
};

use crate::failure::ensure;
use crate::{Failure, Subject, Verdict};

/// Where a law is tried. Each has seats of its own, so that laws can run at the same time and again
/// on data that stays.
#[derive(Clone)]
pub struct Bench {
    pub(crate) subject: Arc<dyn Subject>,
    run: u64,
    pub(crate) patience: Duration,
}

/// A connection that was opened for a law.
pub(crate) type Connection = Arc<dyn DynSeatStore>;

impl Bench {
    /// A bench for this subject.
    pub fn new(subject: Arc<dyn Subject>) -> Self {
        let patience = subject.patience();
        Self { subject, run: rand::random(), patience }
    }

    pub(crate) fn connect(&self) -> Connection {
        let store: Connection = Arc::from(self.subject.open_seats());
        store.attach(&Clock::system());
        store
    }

    pub(crate) fn promises(&self) -> Promises {
        self.subject.open().as_ref().promises()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.subject.lease()
    }

    /// A seat that no other law, and no other run of this one, uses.
    pub(crate) fn seat(&self, name: &str) -> SeatName {
        let unique = format!("{:016x}", self.run);
        // As long as it may be: the end of a long name gives way.
        let mut room = SeatName::LONGEST - unique.len() - 1;
        while !name.is_char_boundary(room.min(name.len())) {
            room -= 1;
        }
        let name = &name[..room.min(name.len())];
        SeatName::new(format!("{unique}-{name}")).unwrap_or_else(|error| panic!("{error}"))
    }

    /// What a candidate would write to hold a seat.
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
            unknown: Arc::default(),
        }
    }

    /// What a candidate would write to give a seat up.
    pub(crate) fn vacant(&self, token: u64) -> Record {
        Record { nonce: rand::random(), ..Record::new(None, Token::new(token), self.lease()) }
    }

    /// Waits for something that must happen, and says what it was if it does not.
    pub(crate) async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::time::timeout(self.patience, future)
            .await
            .map_err(|_| Failure::new(format!("waited {:?} in vain: {what}", self.patience)))
    }

    /// Asks again and again until the answer is yes, for what nothing tells of by itself.
    pub(crate) async fn until<F: Future<Output = Result<bool, Failure>>>(
        &self,
        what: &str,
        mut ask: impl FnMut() -> F,
    ) -> Verdict {
        self.within(what, async {
            while !ask().await? {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        })
        .await?
    }

    /// Holds a watch to it that what was seen already wakes nobody again and again. Late news may, a few times.
    pub(crate) async fn stays_quiet(&self, what: &str, store: &Connection, seat: &SeatName, seen: &Seen) -> Verdict {
        for _ in 0..50 {
            if tokio::time::timeout(self.lease() / 20, store.changed(seat, seen)).await.is_err() {
                return Ok(());
            }
            tokio::time::sleep(self.lease() / 100).await;
        }
        Err(Failure::new(format!("{what} wakes a watch again and again")))
    }

    /// Reads a seat that must be there.
    pub(crate) async fn read(&self, store: &Connection, seat: &SeatName) -> Result<Seat, Failure> {
        let reading = self.within("a reading", store.read(seat)).await??;
        reading.seat.ok_or_else(|| Failure::new(format!("the seat {:?} is gone", seat.as_str())))
    }

    /// Whether a candidate that has ended has given up its seat, `since` when it was free to do so. On a machine so busy
    /// that it could not for a whole lease, it has left the seat to lapse.
    pub(crate) async fn gave_up(&self, seat: &SeatName, since: Instant) -> Result<bool, Failure> {
        let took = since.elapsed();
        Ok(self.read(&self.connect(), seat).await?.record.is_vacant() || took >= self.lease())
    }

    /// Writes a seat, which must be done.
    pub(crate) async fn write(
        &self,
        store: &Connection,
        seat: &SeatName,
        expected: Option<&Version>,
        record: &Record,
    ) -> Result<Written, Failure> {
        let sent = now();
        let swap = self.within("an answer to a swap", store.swap(seat, expected, record)).await??;
        Written::of(swap, sent, "a swap on the current version of a seat that is free")
    }

    /// Keeps a seat, which must be done.
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

    /// Tries a write that must be lost.
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

/// A write that was done.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) version: Version,
    /// What it counts from: the send, or that of the heartbeat it stands on.
    pub(crate) since: Moment,
    /// When it was sent, and when its answer came.
    pub(crate) sent: Moment,
    pub(crate) answered: Moment,
    pub(crate) granted: Option<Duration>,
}

impl Written {
    fn of(swap: Swap, sent: Moment, what: &str) -> Result<Self, Failure> {
        match swap {
            Swap::Lost => Err(Failure::new(format!("{what} must be done, but was lost"))),
            Swap::Done { version, since, granted } => {
                let since = since.map_or(sent, |since| since.min(sent));
                Ok(Self { version, since, sent, answered: now(), granted })
            }
        }
    }
}

/// A candidate with this id and an incarnation like no other.
pub(crate) fn candidate(id: &str) -> Candidate {
    Candidate { id: id.into(), incarnation: Incarnation::from_bits(rand::random()) }
}

pub(crate) fn now() -> Moment {
    Clock::system().now()
}
