//! One session of `mode=session`: its connection, the locks it holds, and its heartbeat.
//!
//! Heartbeats and statements that take or release locks run to their end in a task of their own, even if the call
//! is dropped. If a statement is not answered within a lease, the session is ended, and with it every lock. Only
//! the server knows which locks the session holds, so each write reads them from `pg_locks`.
//!
//! The session keeps a lock that a statement has taken even if the transaction is rolled back. So when a
//! statement fails, the session releases those locks of its seats that no row accounts for.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Answers, Clock, Moment, SeatName, StoreError, Swap, Version, Write};
use tenure_kit::{Connection, Heartbeat, HeartbeatReply, PooledSession, SharedTask, lock};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Connector, Param, PgConnection, Purpose, number, numbers};
use crate::errors::Failed;
use crate::handshake;
use crate::leases::WriteSet;
use crate::notifications::session_id;
use crate::schema::lock_of;
use crate::seats::VersionParts;

/// A session that holds seats of elections with one lease.
pub(crate) struct Session {
    /// A random number: the session's name in rows, and the key that it locks for as long as it lives.
    pub(crate) id: i64,
    lease: Duration,
    lock_id: Option<i64>,
    clock: Clock,
    connection: PgConnection,
    /// The seats that were won on this session and not released, each with the time of its last answered write.
    seats: Mutex<HashMap<SeatName, Moment>>,
}

/// A seat to renew.
pub(crate) struct Renewal {
    /// The seat's place in the call.
    pub(crate) place: usize,
    pub(crate) seat: SeatName,
    pub(crate) version: Version,
    /// The nonce of the write that won the seat.
    pub(crate) nonce: Option<u64>,
}

impl tenure_kit::Session for Session {
    /// The nonces, sorted, of the rows whose locks this session held at the heartbeat.
    type Report = Vec<u64>;

    fn name(&self) -> tenure_core::SessionId {
        session_id(self.id)
    }

    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<Vec<u64>>, StoreError> {
        let rows = match self.bounded(&self.connection.server.seats.heartbeat, vec![number(self.id)]).await {
            Ok(rows) => rows,
            // The table was dropped, and with it every seat. The leaders then read their seats, and the
            // connection for reads creates the table or reports why it cannot.
            Err(failed) if failed.is_missing_table() => Vec::new(),
            Err(failed) => return Err(failed.into()),
        };
        let versions: Vec<&str> = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
        let mut held: Vec<u64> = versions.iter().filter_map(|version| u64::from_str_radix(version, 16).ok()).collect();
        held.sort_unstable();
        Ok(HeartbeatReply::Alive(sent, held))
    }

    /// The server ends a session that holds seats and is silent for a lease, which also ends its connection:
    /// [`closed`](Self::closed) reports it. The server never ends a session without seats, so that one needs no
    /// heartbeat.
    fn lapses(&self) -> bool {
        false
    }

    fn is_good(&self) -> bool {
        !self.connection.liveness().is_closed()
    }

    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        self.connection.liveness().closed()
    }
}

impl Session {
    pub(crate) async fn open(
        connector: &Connector,
        lease: Duration,
        lock_id: Option<i64>,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let connection = connector.connect(Purpose::Session(lease)).await?;
        // Two halves of 31 bits: locks with two keys take positive `int4` values.
        let (high, low) = (rand::random::<u32>() >> 1, rand::random::<u32>() >> 1);
        let id = i64::from(high) << 32 | i64::from(low);
        let session = Self { id, lease, lock_id, clock, connection, seats: Mutex::default() };
        let halves = [high, low].map(|half| -> Param { (Box::new(half.cast_signed()), Type::INT4) });
        // The server parses and plans the statement of a bid now, as that takes several times as long as the bid.
        let bid = &session.connection.server.seats.update_locked;
        let (locked, _) = tokio::join!(
            session.bounded("SELECT pg_try_advisory_lock($1, $2)", halves.into()),
            session.bounded(bid, session.params(&WriteSet::default(), false)),
        );
        if !locked?.first().is_some_and(|row| row.get(0)) {
            return Err(StoreError::refused(
                "another session has the same random number; the next attempt draws another",
            ));
        }
        Ok(session)
    }

    /// Returns a duplicate of this session's socket, if the session holds the seat.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        lock(&self.seats).contains_key(seat).then(|| self.connection.lifeline()).transpose()
    }

    /// Writes a set of new seats (`is_new`) or of existing ones.
    async fn write(&self, set: &WriteSet<Write>, is_new: bool, to: &Answers<Swap>) -> Result<(), StoreError> {
        if set.is_empty() {
            return Ok(());
        }
        let statements = &self.connection.server.seats;
        let sql = if is_new { &statements.insert_locked } else { &statements.update_locked };
        let sent = self.clock.now();
        let answer = self.bounded(sql, self.params(set, is_new)).await;
        if answer.as_ref().is_err_and(|failed| !failed.may_still_run()) {
            self.release_leftovers(set.writes().map(|write| &write.seat)).await;
        }
        set.set_answers(answer, to, |write, version| {
            let is_held = !write.record.is_vacant();
            match is_held {
                true => lock(&self.seats).insert(write.seat.clone(), self.clock.now()),
                false => lock(&self.seats).remove(&write.seat),
            };
            let version = VersionParts { session: is_held.then_some(self.id), ..version }.version();
            Swap::Done { version, since: Some(sent), granted: Some(self.lease) }
        })
    }

    fn params(&self, set: &WriteSet<Write>, is_new: bool) -> Vec<Param> {
        let sessions: Vec<_> = set.writes().map(|write| (!write.record.is_vacant()).then_some(self.id)).collect();
        let idle = handshake::idle_session_timeout(self.connection.server.version, self.lease);
        let mut params = set.columns();
        params.push(self.keys(set.writes().map(|write| &write.seat)));
        params.push((Box::new(sessions), Type::INT8_ARRAY));
        params.push((Box::new(idle), Type::TEXT));
        match is_new {
            true => params.push(set.absences()),
            false => params.extend(set.expected_versions()),
        }
        params
    }

    fn keys<'a>(&self, seats: impl Iterator<Item = &'a SeatName>) -> Param {
        numbers(seats.map(|seat| lock_of(seat, self.lock_id)).collect())
    }

    /// Releases those locks of these seats that no row accounts for. If that fails, ends the session, which
    /// releases all of its locks.
    async fn release_leftovers<'a>(&self, seats: impl Iterator<Item = &'a SeatName>) {
        let params = vec![number(self.id), self.keys(seats)];
        if self.bounded(&self.connection.server.seats.release_leftovers, params).await.is_err() {
            self.connection.abort();
        }
    }

    /// Runs a statement. If it is not answered within a lease, ends the session.
    async fn bounded(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let answer = tokio::time::timeout(self.lease, self.connection.run(sql, &params)).await;
        answer.unwrap_or_else(|_| {
            self.connection.abort();
            Err(Failed::Unanswered)
        })
    }
}

/// Writes seats that have the expected versions and whose locks this session holds or can take. The write runs to its
/// end even if the future is dropped.
///
/// # Errors
/// Returns an error if the seats without an answer were not written and one of them may be the cause.
pub(crate) async fn write(
    session: Arc<PooledSession<Session>>,
    new: WriteSet<Write>,
    next: WriteSet<Write>,
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
/// A heartbeat counts for a seat only if it was sent after the answer to the seat's last write on this session.
/// It reports nonces, and no two writes have the same nonce: so the seat is still held in the same term if and
/// only if the heartbeat reports the nonce of its write. A heartbeat that was sent within the last quarter of a
/// lease is used again if it reports all of these seats. Otherwise a new heartbeat is sent, and decides.
pub(crate) async fn renew(session: Arc<PooledSession<Session>>, seats: Vec<Renewal>, to: Answers<Swap>) {
    if seats.is_empty() {
        return;
    }
    let oldest = session.clock.now() - session.lease / 4;
    let is_held = |beat: &Heartbeat<Vec<u64>>, Renewal { seat, nonce, .. }: &Renewal| {
        nonce.is_some_and(|nonce| beat.report.binary_search(&nonce).is_ok())
            && lock(&session.seats).get(seat).is_some_and(|won| beat.sent >= *won)
    };
    let suits = |beat: &Heartbeat<Vec<u64>>| beat.sent >= oldest && seats.iter().all(|seat| is_held(beat, seat));
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
        release_later(&session, lost);
    }
}

/// Releases the locks of lost seats after a lease. A seat is lost here if its row was removed or changed by hand,
/// or its lock was released. A lock that is left protects the work of its leader, which must have ended a lease
/// from now.
fn release_later(session: &Arc<PooledSession<Session>>, lost: Vec<Renewal>) {
    let (session, lease) = (Arc::downgrade(session), session.lease);
    tokio::spawn(async move {
        tokio::time::sleep(lease).await;
        if let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
            session.release_leftovers(lost.iter().map(|renewal| &renewal.seat)).await;
        }
    });
}
