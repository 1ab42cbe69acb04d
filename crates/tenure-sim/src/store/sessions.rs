//! A store with sessions: a seat is held while the session is alive that it was won on (etcd, Consul, locks of
//! a database session).
//!
//! A renewal is answered from the session, but it also checks that the seat still names its holder and term: a
//! heartbeat alone would keep a leader whose seat was deleted long ago.

use std::time::Duration;

use tenure_protocol::{Life, Reading, Swap};

use super::{Kept, Model, SessionId, SessionState, Shelf, Write, Written, session_in};
use crate::clock::{Time, nanos};

struct Session {
    ttl: u64,
    until: Time,
    ended_early: bool,
}

pub(super) struct Sessions {
    shelf: Shelf,
    ppm: i64,
    guards_sessions: bool,
    sessions: Vec<Session>,
}

impl Sessions {
    pub(super) fn new(shelf: Shelf, ppm: i64, guards_sessions: bool) -> Self {
        Self { shelf, ppm, guards_sessions, sessions: Vec::new() }
    }

    fn lives(&self, now: Time, session: SessionId) -> bool {
        matches!(self.session(now, session), SessionState::Alive { .. })
    }

    fn holder_lives(&self, now: Time, kept: &Kept) -> bool {
        kept.holder().is_some() && session_in(&kept.version).is_some_and(|session| self.lives(now, session))
    }

    /// Returns when a session expires that gets a heartbeat now. The store counts on its own clock.
    fn ends_at(&self, now: Time, ttl: u64) -> Time {
        now + u64::try_from(u128::from(ttl) * 1_000_000 / u128::from((1_000_000 + self.ppm).unsigned_abs()) + 1)
            .unwrap_or(u64::MAX)
    }
}

impl Model for Sessions {
    fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    fn shelf_mut(&mut self) -> &mut Shelf {
        &mut self.shelf
    }

    fn read(&self, now: Time) -> Reading {
        self.shelf.reading(now, |kept| if self.holder_lives(now, kept) { Life::Held } else { Life::Over })
    }

    fn swap(&mut self, now: Time, write: &Write) -> Written {
        if !write.session.is_some_and(|session| self.lives(now, session)) {
            return Written::NoSession;
        }
        let held_by_another = self
            .shelf
            .seat
            .as_ref()
            .is_some_and(|kept| session_in(&kept.version) != write.session && self.holder_lives(now, kept));
        let fits = !(held_by_another && self.guards_sessions) && self.shelf.expects_what_is_there(write);
        Written::Answer(if fits { self.shelf.put(write, 0) } else { Swap::Lost })
    }

    fn renew(&mut self, now: Time, write: &Write) -> Written {
        let held = write.expected.clone();
        let alive = held.as_ref().and_then(session_in).is_some_and(|session| self.lives(now, session));
        let same_session = self
            .shelf
            .seat
            .as_ref()
            .is_some_and(|kept| held.as_ref().and_then(session_in) == session_in(&kept.version));
        match held {
            Some(version) if alive && same_session && self.shelf.is_the_writers(write) => {
                Written::Answer(Swap::Done { version, since: None, granted: None })
            }
            _ => Written::Answer(Swap::Lost),
        }
    }

    fn free(&mut self, _now: Time, write: &Write) -> Written {
        // The session of the dead process may still count as alive.
        Written::Answer(if self.shelf.expects_what_is_there(write) { self.shelf.put(write, 0) } else { Swap::Lost })
    }

    fn open_session(&mut self, now: Time, ttl: Duration) -> SessionId {
        let ttl = nanos(ttl);
        let until = self.ends_at(now, ttl);
        self.sessions.push(Session { ttl, until, ended_early: false });
        self.sessions.len() as SessionId
    }

    fn beat(&mut self, now: Time, session: SessionId) -> bool {
        if !self.lives(now, session) {
            return false;
        }
        let until = self.ends_at(now, self.sessions[session as usize - 1].ttl);
        self.sessions[session as usize - 1].until = until;
        true
    }

    fn end_session(&mut self, now: Time, session: SessionId) -> bool {
        let lives = self.lives(now, session);
        if lives {
            self.sessions[session as usize - 1].ended_early = true;
        }
        lives
    }

    fn session(&self, now: Time, session: SessionId) -> SessionState {
        let found = &self.sessions[session as usize - 1];
        if found.ended_early {
            SessionState::EndedEarly
        } else if now >= found.until {
            SessionState::Expired
        } else {
            SessionState::Alive { until: found.until }
        }
    }
}
