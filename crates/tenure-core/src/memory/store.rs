//! A store that is one connection to a memory.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::select;

use super::Memory;
use super::world::{InjectedFailure, Session, SessionId, State, World};
use crate::{
    Answers, Board, Change, ClockTrust, DynNotes, LifeKind, Moment, Note, NoteState, NoteWrite, Notes, Promises, Push,
    Reading, Record, SeatName, SeatStore, Seen, StoreError, Swap, Takeover, Version,
};

/// A store that is one connection to a [`Memory`]. It lives in this process only.
#[derive(Debug)]
pub struct MemoryStore {
    world: Arc<World>,
    /// The sessions of this connection, one for each lease.
    sessions: Mutex<Vec<(Duration, SessionId)>>,
}

/// Opens another connection to the same memory, as if from another process: candidates over a store and candidates over
/// its clone stand for the same seats.
impl Clone for MemoryStore {
    fn clone(&self) -> Self {
        Self::connect(self.world.clone())
    }
}

impl MemoryStore {
    /// Creates a memory and a connection to it.
    ///
    /// Two calls create two memories with two separate seats, so two candidates can lead. Clone the store for
    /// candidates that stand for the same seats.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// let store = MemoryStore::new();
    /// let (one, other) = (Elections::new(store.clone()), Elections::new(store));
    /// # let _ = (one, other);
    /// ```
    pub fn new() -> Self {
        Memory::new().store()
    }

    pub(super) fn connect(world: Arc<World>) -> Self {
        Self { world, sessions: Mutex::default() }
    }

    /// Runs a call, or makes it fail if a failure is queued.
    async fn call<T>(&self, act: impl FnOnce(&mut State) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let failure = self.world.next_failure();
        match failure {
            Some(InjectedFailure::Hang) => return std::future::pending().await,
            Some(InjectedFailure::Fault(fault)) => return Err(error(fault)),
            Some(InjectedFailure::AnswerLost) | None => {}
        }
        let answer = act(&mut self.world.lock());
        if failure.is_some() { Err(error(crate::Fault::Unknown)) } else { answer }
    }

    /// Returns a living session for this lease, with a heartbeat that is at most a quarter of the lease old.
    fn session(&self, state: &mut State, lease: Duration) -> SessionId {
        let now = self.world.clock.now();
        let mut sessions = self.sessions();
        let ttl = (self.world.kind == LifeKind::Session).then_some(lease);
        let known = sessions.iter().find(|(of, _)| ttl.is_none() || *of == lease).map(|(_, id)| *id);
        if let Some(id) = known
            && let Some(session) = state.sessions.get_mut(&id)
            && session.lives(now)
        {
            if now.since(session.heartbeat) >= lease / 4 {
                session.heartbeat = now;
            }
            return id;
        }
        let id = state.next_number();
        state.sessions.insert(id, Session { ttl, heartbeat: now, ended: false });
        sessions.retain(|(of, _)| *of != lease);
        sessions.push((lease, id));
        id
    }

    fn is_ours(&self, session: SessionId) -> bool {
        self.sessions().iter().any(|(_, id)| *id == session)
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<(Duration, SessionId)>> {
        self.sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Checks the condition and writes, both under the world's lock: no other write can come between them.
    fn write(
        &self,
        state: &mut State,
        seat: &SeatName,
        expected: Option<&Version>,
        holder_is_dead: bool,
        record: &Record,
    ) -> (Swap, Option<Arc<tokio::sync::Notify>>) {
        let now = self.world.clock.now();
        let slot = state.slots.entry(seat.clone()).or_default();
        let news = slot.news.clone();
        let written = slot.written.as_ref();
        // A bid from before the seat was deleted has a token that another term may have had.
        let is_spent = written.is_none() && record.token <= slot.floor;
        if written.map(|written| &written.version) != expected || is_spent {
            return (Swap::Lost, None);
        }
        let holder = written.map_or(0, |written| written.session);
        let sessions = self.world.kind == LifeKind::Session;
        // A lock is free when its process is dead, so a lock that is held contradicts the will.
        let is_held = match holder_is_dead {
            true => self.world.kind == LifeKind::Lock,
            false => sessions && !self.is_ours(holder),
        };
        if is_held && state.sessions.get(&holder).is_some_and(|session| session.lives(now)) {
            return (Swap::Lost, None);
        }
        let has_sessions = matches!(self.world.kind, LifeKind::Session | LifeKind::Lock);
        let session = if has_sessions && !record.is_vacant() { self.session(state, record.lease) } else { 0 };
        let since = state.sessions.get(&session).filter(|_| sessions).map(|session| session.heartbeat);
        let version = self.world.write(state, seat, record, session);
        (Swap::Done { version, since, granted: sessions.then_some(record.lease) }, Some(news))
    }

    async fn write_and_announce(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        holder_is_dead: bool,
        record: &Record,
    ) -> Result<Swap, StoreError> {
        let mut news = None;
        let answer = self
            .call(|state| {
                state.calls.swaps += 1;
                let (swap, changed) = self.write(state, seat, expected, holder_is_dead, record);
                news = changed;
                Ok(swap)
            })
            .await;
        if let Some(news) = news {
            self.world.announce(&news);
        }
        answer
    }

    /// Answers from the heartbeat that all seats share.
    fn keep(&self, state: &mut State, seat: &SeatName, held: &Version, record: &Record) -> Swap {
        let now = self.world.clock.now();
        let written = state.slots.get(seat).and_then(|slot| slot.written.as_ref());
        let Some(session) = written.filter(|written| written.version == *held).map(|written| written.session) else {
            return Swap::Lost;
        };
        let is_ours = self.is_ours(session);
        match state.sessions.get_mut(&session) {
            Some(alive) if is_ours && alive.lives(now) => {
                if now.since(alive.heartbeat) >= record.lease / 4 {
                    alive.heartbeat = now;
                }
                let since = Some(alive.heartbeat);
                Swap::Done { version: held.clone(), since, granted: Some(record.lease) }
            }
            _ => Swap::Lost,
        }
    }

    /// Returns the change that a watcher has not seen yet, or the moment at which to check again.
    fn news(&self, seat: &SeatName, seen: &Seen) -> Result<Change, Option<Moment>> {
        let mut state = self.world.lock();
        let now = self.world.clock.now();
        if seen.requests && !state.notes_on(&Board::Requests(seat.clone()), now).is_empty() {
            return Ok(Change::Look);
        }
        let slot = state.slots.entry(seat.clone()).or_default();
        let holder = slot.written.as_ref().map_or(0, |written| written.session);
        let expires = match state.sessions.get(&holder) {
            Some(session) if !session.lives(now) && self.is_ours(holder) => return Ok(Change::SessionOver),
            Some(session) => session.expires(),
            None => None,
        };
        let current = self.world.reading(&state, seat).ok().and_then(|reading| reading.seat);
        let is_over = |seat: Option<&crate::Seat>| seat.is_some_and(|seat| seat.life == crate::Life::Over);
        if seen.differs_from(current.as_ref()) || is_over(seen.seat.as_ref()) != is_over(current.as_ref()) {
            return Ok(Change::Look);
        }
        Err(expires.filter(|expires| now < *expires))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // A session with a time to live expires later, as after a crash. A lock is freed now.
        if self.world.kind == LifeKind::Lock {
            let mut state = self.world.lock();
            for (_, id) in self.sessions().iter() {
                if let Some(session) = state.sessions.get_mut(id) {
                    session.ended = true;
                }
            }
            drop(state);
            self.world.announce_all();
        }
    }
}

impl SeatStore for MemoryStore {
    fn promises(&self) -> Promises {
        let kind = self.world.kind;
        Promises {
            life: kind,
            // All connections share one clock, which only a test can step.
            clock_trust: if kind == LifeKind::Lock { ClockTrust::Always } else { ClockTrust::Vouched },
            over_is_proof: kind == LifeKind::Lock,
            lifeline: kind == LifeKind::Lock,
            takeover: Takeover::Instant,
            push: Push::Proven,
            shared_heartbeat: kind == LifeKind::Session,
            durability: "none: it ends with the process",
            broken_by: &["It is seen by this process alone."],
            ..Promises::of("memory")
        }
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.call(|state| {
            state.calls.reads += 1;
            self.world.reading(state, seat)
        })
        .await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.write_and_announce(seat, expected, false, next).await
    }

    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        self.write_and_announce(seat, Some(held), true, vacant).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.call(|state| {
            state.calls.renewals += 1;
            Ok(match self.world.kind {
                LifeKind::Session => self.keep(state, seat, held, record),
                _ => self.write(state, seat, Some(held), false, record).0,
            })
        })
        .await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let news = self.world.lock().slots.entry(seat.clone()).or_default().news.clone();
        loop {
            let notified = news.notified();
            let again = match self.news(seat, seen) {
                Ok(change) => return change,
                Err(again) => again,
            };
            let expiry = async {
                match again {
                    Some(moment) => self.world.clock.sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            select(std::pin::pin!(notified), std::pin::pin!(expiry)).await;
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.world.forget(seat);
        Ok(())
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.call(|state| Ok(state.seats())).await
    }
}

impl Notes for MemoryStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        for (place, note) in notes.iter().enumerate() {
            let mut state = self.world.lock();
            let was = state.write_note(note, self.world.clock.now());
            if let (Board::Requests(seat), Some(_)) = (&note.board, &note.value) {
                let news = state.slots.entry(seat.clone()).or_default().news.clone();
                drop(state);
                self.world.announce(&news);
            }
            to.set(place, Ok(was));
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        for (place, board) in boards.iter().enumerate() {
            to.set(place, Ok(self.world.lock().notes_on(board, self.world.clock.now())));
        }
        Ok(())
    }
}

fn error(fault: crate::Fault) -> StoreError {
    match fault {
        crate::Fault::Refused => StoreError::refused("the memory store refuses this call on purpose"),
        crate::Fault::Unknown => StoreError::unknown("the memory store loses this call on purpose"),
        crate::Fault::Denied => StoreError::denied("the memory store denies this call on purpose"),
    }
}
