//! One session of `mode=session`: a connection of its own, the locks it holds, and its heartbeat.
//!
//! Statements that take or give back a lock are run to their end by a task of their own, whether or not
//! anybody still waits for the answer: so it is always known which locks are held. One that is not
//! answered within a lease ends the session, and with it every lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::{Clock, Fault, Moment, Record, SeatName, StoreError, Swap, Version};
use tokio::sync::watch;
use tokio_postgres::types::{ToSql, Type};

use crate::gather::Call;
use crate::leases::Write;
use crate::link::{Dialer, Link};
use crate::locks::{self, Locked, LockedInsert, LockedUpdate};
use crate::seats::{Mark, nonce_of};
use crate::{faults, hello};

/// A connection that seats are held on, for elections of one lease.
pub(crate) struct Session {
    /// Names it, in rows and as the lock that it holds for as long as it lives.
    pub(crate) id: i64,
    lease: Duration,
    clock: Clock,
    link: Arc<Link>,
    seats: Mutex<HashMap<SeatName, Arc<tokio::sync::Mutex<Hold>>>>,
    beats: Mutex<Beats>,
}

/// What a session holds of one seat. Locked while a statement about it is under way.
#[derive(Default)]
struct Hold {
    locked: bool,
    /// The write that the row stands as.
    nonce: u64,
    won: Moment,
}

#[derive(Default)]
struct Beats {
    last: Option<Arc<Beat>>,
    underway: Option<watch::Receiver<Option<Answered>>>,
}

type Answered = Result<Arc<Beat>, StoreError>;

/// A heartbeat that was answered.
struct Beat {
    sent: Moment,
    /// The writes, in order, that the rows stand as whose locks this very session was seen to hold.
    held: Vec<u64>,
}

impl Session {
    pub(crate) async fn open(dialer: &Dialer, lease: Duration, clock: Clock) -> Result<Self, StoreError> {
        let link = Arc::new(dialer.dial(None).await?);
        if link.server.pooled {
            return Err(faults::pooler());
        }
        link.batch(&hello::session_settings(link.server.version, lease)).await?;
        // Positive halves of 31 bits, as locks with two keys have them.
        let (high, low) = (rand::random::<u32>() >> 1, rand::random::<u32>() >> 1);
        let id = i64::from(high) << 32 | i64::from(low);
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&high.cast_signed(), Type::INT4), (&low.cast_signed(), Type::INT4)];
        let rows = link.query("SELECT pg_try_advisory_lock($1, $2)", &params).await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Err(StoreError::refused("another session has the same number: trying another one"));
        }
        Ok(Self { id, lease, clock, link, seats: Mutex::default(), beats: Mutex::default() })
    }

    /// Has the server get to know the statement of a bid before there is one to make: that takes several
    /// times as long as the bid itself.
    pub(crate) async fn warm_up(&self) {
        let _ = self.bounded(async { LockedUpdate::run(&self.link, &[]).await.map_err(faults::of_statement) }).await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.link.is_closed()
    }

    /// Resolves when the session is over.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        self.link.closed()
    }

    /// The socket of this session, if the session holds the seat.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        let Some(hold) = lock(&self.seats).get(seat).cloned() else { return Ok(None) };
        // Locked by another write of the same term, as nothing else writes a seat while its work goes on.
        let is_held = hold.try_lock().map_or(true, |hold| hold.locked);
        (is_held && !self.is_over()).then(|| self.link.lifeline()).transpose()
    }

    /// Whether another seat of ours is held on this lock.
    pub(crate) fn is_shared(&self, seat: &SeatName) -> bool {
        let others = lock(&self.seats)
            .iter()
            .filter(|(name, _)| *name != seat)
            .map(|(_, hold)| hold.clone())
            .collect::<Vec<_>>();
        others.iter().any(|hold| hold.try_lock().is_ok_and(|hold| hold.locked))
    }

    /// Writes a seat, if it has the expected version and its lock is ours or can be had.
    pub(crate) async fn swap(
        self: &Arc<Self>,
        seat: &SeatName,
        key: i64,
        expected: Option<Mark>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let (session, seat, next) = (self.clone(), seat.clone(), next.clone());
        let hold = self.hold(&seat);
        let task = tokio::spawn(async move {
            let mut hold = hold.lock_owned().await;
            session.write(&mut hold, &seat, key, expected, &next).await
        });
        // Dropped, this lets go of the task, which goes on.
        task.await.unwrap_or_else(|error| Err(StoreError::unknown("the write was cut off").because(error)))
    }

    async fn write(
        &self,
        hold: &mut Hold,
        seat: &SeatName,
        key: i64,
        expected: Option<Mark>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let sent = self.clock.now();
        let (nonce, session) = (nonce_of(next), (!next.is_vacant()).then_some(self.id));
        let locked = Locked {
            write: Write::new(seat, next),
            to_lock: !hold.locked,
            key,
            session,
            idle: hello::idle_session_timeout(self.link.server.version, self.lease),
        };
        let written = self.bounded(async {
            match expected {
                None => self.link.call(LockedInsert(locked)).await,
                Some(mark) => self.link.call(LockedUpdate(locked, mark)).await,
            }
        });
        let Some(identity) = written.await? else { return Ok(Swap::Lost) };
        hold.locked = session.is_some();
        hold.won = self.clock.now();
        hold.nonce = next.nonce;
        if session.is_none() {
            let mut seats = lock(&self.seats);
            if seats.get(seat).is_some_and(|hold| Arc::strong_count(hold) <= 2) {
                seats.remove(seat);
            }
        }
        let version = Mark { nonce, identity, session }.version();
        Ok(Swap::Done { version, since: Some(sent), granted: Some(self.lease) })
    }

    /// Keeps a seat by the heartbeat that all seats share.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        seat: &SeatName,
        held: &Version,
        mark: &Mark,
        key: i64,
    ) -> Result<Swap, StoreError> {
        let known = lock(&self.seats).get(seat).cloned();
        let (Some(known), Some(nonce)) = (known, mark.number()) else { return Ok(Swap::Lost) };
        loop {
            let (locked, is_it, won) = {
                let hold = known.lock().await;
                (hold.locked, hold.nonce == nonce, hold.won)
            };
            if !locked || !is_it {
                return Ok(Swap::Lost);
            }
            let beat = self.beat(won).await?;
            // No two writes have the same nonce, so it is of this seat.
            if beat.held.binary_search(&nonce).is_ok() {
                return Ok(Swap::Done { version: held.clone(), since: Some(beat.sent), granted: Some(self.lease) });
            }
            if beat.sent > won {
                // Boxed, as it is rare and takes much room, and thousands may renew at once.
                if Box::pin(self.bounded(locks::is_held(&self.link, key))).await? {
                    self.give_back_later(seat.clone(), nonce, key);
                } else {
                    // Whatever has taken it from under us: the next bid is for the lock, too.
                    known.lock().await.locked = false;
                }
                return Ok(Swap::Lost);
            }
        }
    }

    /// Somebody has removed the row. The lock protects whatever its leader still does; it is given back
    /// when that must be over.
    fn give_back_later(self: &Arc<Self>, seat: SeatName, nonce: u64, key: i64) {
        let session = Arc::downgrade(self);
        let lease = self.lease;
        tokio::spawn(async move {
            tokio::time::sleep(lease).await;
            let Some(session) = session.upgrade().filter(|session| !session.is_over()) else { return };
            let hold = session.hold(&seat);
            let mut hold = hold.lock().await;
            if hold.locked && hold.nonce == nonce {
                hold.locked = false;
                locks::unlock(&session.link, &[key]).await;
            }
        });
    }

    /// A heartbeat that is young enough and was sent after a moment, or the next one.
    async fn beat(self: &Arc<Self>, after: Moment) -> Result<Arc<Beat>, StoreError> {
        let mut outcome = {
            let mut beats = lock(&self.beats);
            let youngest = self.clock.now() - self.lease / 4;
            if let Some(last) = beats.last.as_ref().filter(|last| last.sent >= youngest && last.sent > after) {
                return Ok(last.clone());
            }
            match beats
                .underway
                .as_ref()
                .filter(|underway| underway.has_changed().is_ok() && underway.borrow().is_none())
            {
                Some(underway) => underway.clone(),
                None => {
                    let (tell, outcome) = watch::channel(None);
                    beats.underway = Some(outcome.clone());
                    let session = self.clone();
                    tokio::spawn(async move {
                        let beat = session.ask().await.map(Arc::new);
                        if let Ok(beat) = &beat {
                            lock(&session.beats).last = Some(beat.clone());
                        }
                        let _ = tell.send(Some(beat));
                    });
                    outcome
                }
            }
        };
        let told = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        match told {
            Some(Ok(beat)) => Ok(beat),
            Some(Err(error)) => Err(error.clone()),
            None => Err(StoreError::unknown("the heartbeat was cut off")),
        }
    }

    async fn ask(&self) -> Result<Beat, StoreError> {
        let sent = self.clock.now();
        let beat = async {
            match self.link.ask(&self.link.server.seats.heartbeat, &[(&self.id, Type::INT8)]).await {
                // The table was dropped, and with it every seat. The leaders look, and the connection that they
                // look over creates the table or says why it cannot.
                Err(error) if faults::is_missing_table(&error) => Ok(Vec::new()),
                answer => answer.map_err(faults::of_statement),
            }
        };
        let rows = self.bounded(beat).await?;
        let versions: Vec<&str> = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
        let mut held: Vec<u64> = versions.iter().filter_map(|version| u64::from_str_radix(version, 16).ok()).collect();
        held.sort_unstable();
        Ok(Beat { sent, held })
    }

    /// Waits for a statement to end, which is the session's end, too, if it takes a lease.
    async fn bounded<T>(&self, statement: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match tokio::time::timeout(self.lease, statement).await {
            Ok(answer) => answer.map_err(|error| self.maybe_over(error)),
            Err(_) => {
                self.link.cut();
                Err(StoreError::unknown("PostgreSQL has not answered for a whole lease: the session is given up"))
            }
        }
    }

    fn maybe_over(&self, error: StoreError) -> StoreError {
        if self.is_over() && error.fault() != Fault::Denied {
            StoreError::unknown("the session with PostgreSQL is over").because(error)
        } else {
            error
        }
    }

    fn hold(&self, seat: &SeatName) -> Arc<tokio::sync::Mutex<Hold>> {
        lock(&self.seats).entry(seat.clone()).or_default().clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
