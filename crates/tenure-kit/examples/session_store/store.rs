//! A store on a server with sessions and push, built from the kit. `docs/writing-a-store.md` explains it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use tenure_core::{
    Answers, BatchLimits, Call, Clock, Expect, Interest, Life, LifeKind, Moment, News, Promises, Push, PushDetail,
    Reading, Scope, Seat, SeatName, SessionId, Store, StoreError, Swap, Takeover, Token, Version, Write, record,
};
use tenure_kit::{HeartbeatReply, PooledSession, ReadySessions, Sessions};
use tokio::sync::broadcast::error::RecvError;

use crate::server::{Change, Entry, Put, Server};

/// A store whose seats are held by sessions, one for each length of lease.
pub(crate) struct SessionStore {
    server: Weak<Server>,
    sessions: Sessions<Session>,
    clock: OnceLock<Clock>,
}

/// The content of a version: the revision of the seat, and the session that holds it. All data is that of one server.
type VersionParts = tenure_kit::VersionParts<u64, u8, u64>;

/// A session on the server, which all seats with one lease are bound to.
pub(crate) struct Session {
    id: u64,
    server: Weak<Server>,
}

impl tenure_kit::Session for Session {
    /// The keys that are bound to the session, with their revisions.
    type Report = BTreeMap<String, u64>;

    fn name(&self) -> SessionId {
        SessionId::new(self.id.to_string())
    }

    /// # Correctness
    /// The server restarts the time to live of the session when it receives the renewal, which is after `sent`. It reads
    /// the bound keys after that. So whatever this reports held after `sent`, from where the leader counts its lease.
    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<BTreeMap<String, u64>>, StoreError> {
        // A call over a network needs a time-out here, such as a fifth of the lease.
        Ok(match connect(&self.server)?.renew_session(self.id) {
            Some(bound) => HeartbeatReply::Alive(sent, bound),
            None => HeartbeatReply::Over,
        })
    }
}

fn connect(server: &Weak<Server>) -> Result<Arc<Server>, StoreError> {
    server.upgrade().ok_or_else(|| StoreError::refused("cannot connect: the server has stopped"))
}

impl SessionStore {
    pub(crate) fn new(server: Weak<Server>) -> Self {
        let address = server.clone();
        let sessions = Sessions::new(move |lease, _| {
            let server = address.clone();
            async move { Ok(Session { id: connect(&server)?.open_session(lease), server }) }
        });
        Self { server, sessions, clock: OnceLock::new() }
    }

    /// Returns the session for a write: none for a vacant record, otherwise one that was renewed recently, because the
    /// leader counts its lease from that renewal.
    async fn session_for(&self, write: &Write) -> Result<Option<Arc<PooledSession<Session>>>, StoreError> {
        match write.record.is_vacant() {
            true => Ok(None),
            false => self.sessions.fresh(write.record.lease, write.record.lease / 2).await.map(Some),
        }
    }

    /// Renews a seat by the heartbeat that all seats of its session share.
    ///
    /// # Correctness
    /// `Done` means that after `since` the session was alive and the seat was bound to it since the write that won it. A
    /// heartbeat that was sent a moment ago is good enough, because the leader counts its lease from the send. But it must
    /// not be older than a write of the seat, which may have been a release: see `outdate`.
    async fn renew(&self, write: &Write) -> Result<Swap, StoreError> {
        let parts = write.expect.version().and_then(VersionParts::parse);
        let Some((parts, id)) = parts.and_then(|parts| parts.session.map(|id| (parts, id))) else {
            return Ok(Swap::Lost);
        };
        let Some(session) = self.sessions.find(&id.to_string()) else { return Ok(Swap::Lost) };
        let holds = |bound: &BTreeMap<String, u64>| bound.get(write.seat.as_str()) == Some(&parts.write);
        let recent = self.now() - session.lease / 4;
        let beat = match session.beat(|beat| beat.sent >= recent && holds(&beat.report)).await {
            Err(_) if session.is_over() => return Ok(Swap::Lost),
            beat => beat?,
        };
        let done = Swap::Done { version: parts.version(), since: Some(beat.sent), granted: Some(session.lease) };
        Ok(if holds(&beat.report) { done } else { Swap::Lost })
    }

    fn now(&self) -> Moment {
        self.clock.get().map_or_else(|| Clock::system().now(), Clock::now)
    }
}

impl Store for SessionStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Session,
            // The server ends a session no sooner than its duration after the last renewal.
            takeover: Takeover::Instant,
            push: Push::Proven,
            reads: BatchLimits { seats: 500, calls: 4 },
            writes: BatchLimits { seats: 500, calls: 4 },
            shared_heartbeat: true,
            durability: "a write lasts as long as the server runs",
            broken_by: &[
                "A session is ended by hand while its leader is alive: another candidate can lead before the old leader \
                 learns of it.",
                "An entry is written or deleted by hand.",
            ],
            ..Promises::of("sessions")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        let _ = self.clock.set(clock.clone());
        self.sessions.attach(clock, news);
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        VersionParts::parse(version)?.session.map(|id| SessionId::new(id.to_string()))
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let keys: Vec<_> = seats.iter().map(|seat| seat.as_str().to_owned()).collect();
        for (place, found) in connect(&self.server)?.get(&keys).into_iter().enumerate() {
            let seat = found.map(|(entry, is_held)| {
                let life = if is_held { Life::Held } else { Life::Over };
                Ok(Seat { version: version_of(&entry), record: record::from_json(&entry.text)?, life })
            });
            to.set(place, seat.transpose().map(|seat| Reading { seat, floor: Token::ZERO, identity: None }));
        }
        Ok(())
    }

    /// # Correctness
    /// Each write is one step of the server, on three conditions. *The seat is as it was read*: it has the expected
    /// revision, and the server never uses a revision twice. *Its holder is gone*: the session that it is bound to has
    /// ended, or is one of this process, whose engine decides which of its own elections leads. The holder's session is
    /// also passed for a last will, because its process is dead. *The bidder is alive*: its session has not ended, so a bid
    /// that arrives too late changes nothing.
    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let server = connect(&self.server)?;
        let (mut puts, mut sent) = (Vec::new(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            if matches!(write.expect, Expect::Held(_)) {
                to.set(place, self.renew(write).await);
                continue;
            }
            let expected = write.expect.version().map(|version| VersionParts::parse(version).ok_or(()));
            let Ok(expected) = expected.transpose() else {
                to.set(place, Ok(Swap::Lost));
                continue;
            };
            let holder = expected.as_ref().and_then(|parts| parts.session);
            let own = holder.and_then(|id| self.sessions.find(&id.to_string()));
            let is_will = matches!(write.expect, Expect::HolderDead(_)) && write.record.is_vacant();
            let session = match self.session_for(write).await {
                Ok(session) => session,
                Err(error) => {
                    to.set(place, Err(error));
                    continue;
                }
            };
            puts.push(Put {
                key: write.seat.as_str().to_owned(),
                revision: expected.map(|parts| parts.write),
                unbind: holder.filter(|id| is_will || self.sessions.is_own(&id.to_string())),
                bind: session.as_ref().map(|session| session.id),
                text: record::to_json(&write.record),
            });
            // The lease counts from a renewal that was sent before this write.
            let since = session.as_ref().map(|session| session.renewed());
            sent.push((place, session, own, since));
        }
        let written = server.put(puts);
        for ((place, session, own, since), revision) in sent.into_iter().zip(written) {
            session.iter().chain(&own).for_each(|session| session.outdate());
            let id = session.as_ref().map(|session| session.id);
            let version = |write| VersionParts { write, identity: 0, session: id }.version();
            let granted = session.map(|session| session.lease);
            let done = |write| Swap::Done { version: version(write), since, granted };
            to.set(place, Ok(revision.map_or(Swap::Lost, done)));
        }
        Ok(())
    }

    /// Reports every change that the server pushes.
    ///
    /// # Why no change is missed
    /// The subscription begins before `listening`, and only a read that is sent after that counts as a look. So a change is
    /// in that read, or is pushed later. The end of an own session is noticed by `beat_all`, or is pushed later. If changes were lost because this fell behind, the watch ends, and the engine
    /// polls until the next watch listens.
    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        let server = match connect(&self.server) {
            Ok(server) => server,
            Err(error) => return error,
        };
        let (mut changes, mut ready) = (server.subscribe(), ReadySessions::default());
        drop(server);
        self.sessions.beat_all().await;
        news.listening(Scope::All);
        loop {
            tokio::select! {
                deltas = interest.next() => {
                    for delta in deltas {
                        ready.update(delta, &self.sessions, |version| self.session_of(version));
                    }
                }
                change = changes.recv() => match change {
                    Ok(Change::SessionEnded(id)) => self.sessions.ended(&SessionId::new(id.to_string())),
                    Ok(Change::Written(key, entry)) => {
                        let Ok(seat) = SeatName::new(key) else { continue };
                        let names = record::from_json(&entry.text).map(|record| record.names());
                        news.holder(&seat, names.map_or(PushDetail::Nothing, |names| PushDetail::Names(Some(names))));
                    }
                    Err(RecvError::Lagged(lost)) => return StoreError::refused(format!("missed {lost} changes")),
                    Err(RecvError::Closed) => return StoreError::refused("the server has stopped"),
                }
            }
        }
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        Ok(connect(&self.server)?.keys().into_iter().filter_map(|key| SeatName::new(key).ok()).collect())
    }
}

fn version_of(entry: &Entry) -> Version {
    VersionParts { write: entry.revision, identity: 0, session: entry.session }.version()
}
