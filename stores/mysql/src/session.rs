//! One session of `mode=session`: its connection, the locks it holds, and its heartbeat.
//!
//! Each session holds three locks of its own for as long as it lives. `tenure:ID` shows that it lives; no other session
//! ever takes it. `tenure:ID:0` and `tenure:ID:1` are its bell: it holds one of them, and when it releases a seat it takes
//! the other one and lets go of the first. Followers wait for the one that it holds (`following.rs`).

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Answers, Clock, Moment, SeatName, SessionId, StoreError, Swap, Version, Write};
use tenure_kit::{Connection, Heartbeat, HeartbeatReply, PooledSession, SharedTask, lock};

use crate::connection::{Connector, MyConnection};
use crate::leases::WriteSet;
use crate::seats::{LOCKED_WRITES_AT, VersionParts};

/// A session that holds seats of elections with one lease.
pub(crate) struct Session {
    /// A random number: the session's name in rows and in the names of its locks.
    pub(crate) id: String,
    lease: Duration,
    clock: Clock,
    pub(crate) connection: Arc<MyConnection>,
    /// The seats that were won on this session and not released, each with the time of its last answered write.
    seats: Mutex<HashMap<SeatName, Moment>>,
}

/// A seat to renew.
pub(crate) struct Renewal {
    /// The seat's place in the call.
    pub(crate) place: usize,
    pub(crate) seat: SeatName,
    pub(crate) version: Version,
    /// The number of the write that won the seat.
    pub(crate) number: String,
}

impl tenure_kit::Session for Session {
    /// The numbers, sorted, of the writes whose rows this session held at the heartbeat.
    type Report = Vec<String>;

    fn name(&self) -> SessionId {
        SessionId::new(self.id.clone())
    }

    /// The heartbeat returns the versions of the rows that name this session and whose locks this session holds. No two
    /// writes have the same version, so a seat is still held in the same term if and only if the version of the write
    /// that won it is among them. The server ends the session no sooner than a lease after it received the heartbeat.
    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<Vec<String>>, StoreError> {
        let sql = self.connection.server.sql.heartbeat.replace("{session}", &self.id);
        let results = match self.connection.run(sql).await {
            Ok(results) => results,
            // The table was dropped, and with it every seat. The leaders then read their seats.
            Err(failed) if failed.is_missing_table() => Vec::new(),
            Err(failed) => return Err(failed.into()),
        };
        let mut held: Vec<String> = results.into_iter().flatten().map(mysql_async::from_row).collect();
        held.sort_unstable();
        Ok(HeartbeatReply::Alive(sent, held))
    }

    /// The server ends a session that holds seats and is silent for a lease (`wait_timeout`), which also ends its
    /// connection: [`closed`](Self::closed) reports it.
    fn lapses(&self) -> bool {
        false
    }

    fn is_good(&self) -> bool {
        self.connection.is_good()
    }

    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        self.connection.liveness().closed()
    }
}

impl Session {
    pub(crate) async fn open(connector: &Connector, lease: Duration, clock: Clock) -> Result<Self, StoreError> {
        let mut connection = connector.connect(lease).await?;
        connection.is_session = true;
        let connection = Arc::new(connection);
        let id = format!("{:016x}", rand::random::<u64>());
        let sql = format!("SELECT GET_LOCK('tenure:{id}', 0) AND GET_LOCK('tenure:{id}:0', 0)");
        let taken = connection.run(sql).await?.into_iter().flatten().any(|row| row.get(0) == Some(1_u8));
        if !taken {
            return Err(StoreError::refused(
                "another session has the same random number; the next attempt draws another",
            ));
        }
        Ok(Self { id, lease, clock, connection, seats: Mutex::default() })
    }

    /// Returns whether the session has no seats, and no call should use it.
    pub(crate) fn is_useless(&self) -> bool {
        !self.connection.is_good() && lock(&self.seats).is_empty()
    }

    /// Returns a duplicate of this session's socket, if the session holds the seat.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        lock(&self.seats).contains_key(seat).then(|| self.connection.lifeline()).transpose()
    }

    /// Writes a set of new seats (`is_new`) or of existing ones.
    async fn write(&self, set: &WriteSet, is_new: bool, to: &Answers<Swap>) -> Result<(), StoreError> {
        if set.is_empty() {
            return Ok(());
        }
        let statements = &self.connection.server.sql;
        let sql = if is_new { &statements.insert_locked } else { &statements.update_locked };
        let rings = set.writes().any(|write| write.record.is_vacant());
        let sql = format!("{sql}{}", if rings { statements.ring } else { "" });
        // Rounded up: a session must never end before its lease.
        let seconds = self.lease.as_nanos().div_ceil(1_000_000_000).clamp(1, 2_147_483);
        let sql = sql.replace("{session}", &self.id).replace("{seconds}", &seconds.to_string());
        let sent = self.clock.now();
        let answer = self.connection.run(set.batch(&sql, Some((&self.id, &self.connection.server.locks)))).await;
        if answer.as_ref().is_err_and(|failed| !failed.may_still_run()) {
            self.release_leftovers(set).await;
        }
        set.set_answers(answer, to, LOCKED_WRITES_AT, |write, version| {
            let is_held = !write.record.is_vacant();
            match is_held {
                true => lock(&self.seats).insert(write.seat.clone(), self.clock.now()),
                false => lock(&self.seats).remove(&write.seat),
            };
            let version = VersionParts { session: is_held.then(|| self.id.clone()), ..version }.version();
            Swap::Done { version, since: Some(sent), granted: Some(self.lease) }
        })
    }

    /// Releases those locks of these seats that no row accounts for. If that fails, ends the session, which releases all
    /// of its locks.
    async fn release_leftovers(&self, set: &WriteSet) {
        let sql = self.connection.server.sql.release_leftovers.replace("{session}", &self.id);
        if self.connection.run(set.batch(&sql, Some((&self.id, &self.connection.server.locks)))).await.is_err() {
            self.connection.close();
        }
    }
}

/// Writes seats that have the expected versions and whose locks this session holds or can take. The write runs to its
/// end even if the future is dropped: a lock that it took is either accounted for by a row, or released.
///
/// # Errors
/// Returns an error if the seats without an answer were not written and one of them may be the cause.
pub(crate) async fn write(
    session: Arc<PooledSession<Session>>,
    new: WriteSet,
    next: WriteSet,
    to: Answers<Swap>,
) -> Result<(), StoreError> {
    if new.is_empty() && next.is_empty() {
        return Ok(());
    }
    let writing = SharedTask::start(async move {
        let (new, next) = tokio::join!(session.write(&new, true, &to), session.write(&next, false, &to));
        new.and(next)
    });
    writing.wait(StoreError::unknown("the write was interrupted before its answer arrived")).await
}

/// Renews seats by the heartbeat that all seats of the session share.
///
/// A heartbeat counts for a seat only if it was sent after the answer to the seat's last write on this session. A
/// heartbeat that was sent within the last quarter of a lease is used again if it reports all of these seats. Otherwise
/// a new heartbeat is sent, and decides.
pub(crate) async fn renew(session: Arc<PooledSession<Session>>, seats: Vec<Renewal>, to: Answers<Swap>) {
    if seats.is_empty() {
        return;
    }
    let oldest = session.clock.now() - session.lease / 4;
    let is_held = |beat: &Heartbeat<Vec<String>>, Renewal { seat, number, .. }: &Renewal| {
        beat.report.binary_search(number).is_ok() && lock(&session.seats).get(seat).is_some_and(|won| beat.sent >= *won)
    };
    let suits = |beat: &Heartbeat<Vec<String>>| beat.sent >= oldest && seats.iter().all(|seat| is_held(beat, seat));
    let beat = match session.beat(suits).await {
        Ok(beat) => beat,
        Err(error) => return seats.iter().for_each(|seat| to.set(seat.place, Err(error.clone()))),
    };
    let (held, lost): (Vec<_>, Vec<_>) = seats.into_iter().partition(|seat| is_held(&beat, seat));
    for Renewal { place, version, .. } in held {
        to.set(place, Ok(Swap::Done { version, since: Some(beat.sent), granted: Some(session.lease) }));
    }
    lost.iter().for_each(|seat| to.set(seat.place, Ok(Swap::Lost)));
    if !lost.is_empty() {
        release_later(&session, &lost);
    }
}

/// Releases the locks of lost seats after a lease. A seat is lost here if its row was removed or changed by hand, or its
/// lock was released. A lock that is left protects the work of its leader, which must have ended a lease from now.
fn release_later(session: &Arc<PooledSession<Session>>, lost: &[Renewal]) {
    let (held, lease) = (Arc::downgrade(session), session.lease);
    let mut set = WriteSet::default();
    for renewal in lost {
        let expect = tenure_core::Expect::Version(renewal.version.clone());
        let record = tenure_core::Record::new(None, tenure_core::Token::ZERO, lease);
        set.push(renewal.place, &Write { seat: renewal.seat.clone(), expect, record });
    }
    tokio::spawn(async move {
        tokio::time::sleep(lease).await;
        if let Some(session) = held.upgrade().filter(|session| !session.is_over()) {
            session.release_leftovers(&set).await;
        }
    });
}
