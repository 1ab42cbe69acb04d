//! One session of `mode=session`: a connection of its own, the locks it holds, and its heartbeat.
//!
//! Statements that take or give back locks, and heartbeats, are run to their end by a task of their own, whether or
//! not anybody still waits for the answer. One that is not answered within a lease ends the session, and with it every
//! lock. Which locks the session holds, only the server knows: each write asks it.
//!
//! A lock that a statement has taken stays when its transaction is undone. So when a statement fails, those locks of its
//! seats are given back that no row accounts for.

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
use crate::leases::Batch;
use crate::pushes::name_of;
use crate::schema::lock_of;
use crate::seats::Mark;

/// A connection that seats are held on, for elections of one lease.
pub(crate) struct Session {
    /// Names it, in rows and as the lock that it holds for as long as it lives.
    pub(crate) id: i64,
    lease: Duration,
    lock_id: Option<i64>,
    clock: Clock,
    connection: PgConnection,
    /// The seats that were won on it and not given up, and when that was last answered.
    seats: Mutex<HashMap<SeatName, Moment>>,
}

/// A seat to be kept that stands as the write with this nonce, at this place in the call.
pub(crate) struct Renewal {
    pub(crate) place: usize,
    pub(crate) seat: SeatName,
    pub(crate) version: Version,
    pub(crate) nonce: Option<u64>,
}

impl tenure_kit::Session for Session {
    /// The writes, in order, that the rows stand as whose locks this very session was seen to hold.
    type Report = Vec<u64>;

    fn name(&self) -> tenure_core::SessionId {
        name_of(self.id)
    }

    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<Vec<u64>>, StoreError> {
        let rows = match self.bounded(&self.connection.server.seats.heartbeat, vec![number(self.id)]).await {
            Ok(rows) => rows,
            // The table was dropped, and with it every seat. The leaders look, and the connection that they
            // look over creates the table or says why it cannot.
            Err(failed) if failed.is_missing_table() => Vec::new(),
            Err(failed) => return Err(failed.into()),
        };
        let versions: Vec<&str> = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
        let mut held: Vec<u64> = versions.iter().filter_map(|version| u64::from_str_radix(version, 16).ok()).collect();
        held.sort_unstable();
        Ok(HeartbeatReply::Alive(sent, held))
    }

    /// The server ends a session that holds seats and says nothing for a lease, and that ends its connection. One
    /// without seats is never ended, and needs no heartbeat.
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
        // Positive halves of 31 bits, as locks with two keys have them.
        let (high, low) = (rand::random::<u32>() >> 1, rand::random::<u32>() >> 1);
        let id = i64::from(high) << 32 | i64::from(low);
        let session = Self { id, lease, lock_id, clock, connection, seats: Mutex::default() };
        let halves = [high, low].map(|half| -> Param { (Box::new(half.cast_signed()), Type::INT4) });
        // The server also reads and plans the statement of a bid before there is one to make: that takes several times
        // as long as the bid itself.
        let bid = &session.connection.server.seats.update_locked;
        let (locked, _) = tokio::join!(
            session.bounded("SELECT pg_try_advisory_lock($1, $2)", halves.into()),
            session.bounded(bid, session.params(&Batch::default(), false)),
        );
        if !locked?.first().is_some_and(|row| row.get(0)) {
            return Err(StoreError::refused("another session has the same number: trying another one"));
        }
        Ok(session)
    }

    /// The socket of this session, if the session holds the seat.
    #[cfg(unix)]
    pub(crate) fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        lock(&self.seats).contains_key(seat).then(|| self.connection.lifeline()).transpose()
    }

    /// Writes seats that are new, or those that are not.
    async fn write(&self, batch: &Batch<Write>, is_new: bool, to: &Answers<Swap>) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let statements = &self.connection.server.seats;
        let sql = if is_new { &statements.insert_locked } else { &statements.update_locked };
        let sent = self.clock.now();
        let answer = self.bounded(sql, self.params(batch, is_new)).await;
        if answer.as_ref().is_err_and(|failed| !failed.is_open()) {
            self.give_back(batch.writes().map(|write| &write.seat)).await;
        }
        batch.told(answer, to, |write, mark| {
            let is_held = !write.record.is_vacant();
            match is_held {
                true => lock(&self.seats).insert(write.seat.clone(), self.clock.now()),
                false => lock(&self.seats).remove(&write.seat),
            };
            let version = Mark { session: is_held.then_some(self.id), ..mark }.version();
            Swap::Done { version, since: Some(sent), granted: Some(self.lease) }
        })
    }

    fn params(&self, batch: &Batch<Write>, is_new: bool) -> Vec<Param> {
        let sessions: Vec<_> = batch.writes().map(|write| (!write.record.is_vacant()).then_some(self.id)).collect();
        let idle = handshake::idle_session_timeout(self.connection.server.version, self.lease);
        let mut params = batch.columns();
        params.push(self.keys(batch.writes().map(|write| &write.seat)));
        params.push((Box::new(sessions), Type::INT8_ARRAY));
        params.push((Box::new(idle), Type::TEXT));
        match is_new {
            true => params.push(batch.absences()),
            false => params.extend(batch.marks()),
        }
        params
    }

    fn keys<'a>(&self, seats: impl Iterator<Item = &'a SeatName>) -> Param {
        numbers(seats.map(|seat| lock_of(seat, self.lock_id)).collect())
    }

    /// Gives back those locks of these seats that no row accounts for. If that fails, the session is ended rather than
    /// left with them.
    async fn give_back<'a>(&self, seats: impl Iterator<Item = &'a SeatName>) {
        let params = vec![number(self.id), self.keys(seats)];
        if self.bounded(&self.connection.server.seats.give_back, params).await.is_err() {
            self.connection.cut();
        }
    }

    /// Waits for a statement to end, which is the session's end, too, if it takes a lease.
    async fn bounded(&self, sql: &str, params: Vec<Param>) -> Result<Vec<Row>, Failed> {
        let answer = tokio::time::timeout(self.lease, self.connection.run(sql, &params)).await;
        answer.unwrap_or_else(|_| {
            self.connection.cut();
            Err(Failed::Unanswered)
        })
    }
}

/// Writes seats if they have the expected versions, and their locks are ours or can be had. It goes on if this is
/// dropped.
///
/// # Errors
/// If nothing has happened to those that are not answered for, and one of them may be to blame.
pub(crate) async fn write(
    session: Arc<PooledSession<Session>>,
    new: Batch<Write>,
    next: Batch<Write>,
    to: Answers<Swap>,
) -> Result<(), StoreError> {
    if new.is_empty() && next.is_empty() {
        return Ok(());
    }
    let writing = SharedTask::start(async move {
        let (new, next) = tokio::join!(session.write(&new, true, &to), session.write(&next, false, &to));
        new.and(next)
    });
    writing.wait(StoreError::unknown("the write was cut off")).await
}

/// Keeps seats by the heartbeat that all share.
///
/// A heartbeat counts for a seat if it was sent after the seat was last written on this session. It names writes, and no
/// two writes have the same nonce: so the seat is still held in the same term if and only if its write is named. One that
/// was sent within the last quarter of a lease will do if it names all of these seats. If not, another tells that is sent
/// now.
pub(crate) async fn keep(session: Arc<PooledSession<Session>>, seats: Vec<Renewal>, to: Answers<Swap>) {
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
        give_back_later(&session, lost);
    }
}

/// Somebody has removed rows, or taken their locks away. A lock that is left protects whatever its leader still
/// does; it is given back when that must be over.
fn give_back_later(session: &Arc<PooledSession<Session>>, lost: Vec<Renewal>) {
    let (session, lease) = (Arc::downgrade(session), session.lease);
    tokio::spawn(async move {
        tokio::time::sleep(lease).await;
        if let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
            session.give_back(lost.iter().map(|renewal| &renewal.seat)).await;
        }
    });
}
