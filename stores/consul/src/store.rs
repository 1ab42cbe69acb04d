//! The store itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_core::{
    Attended, Board, Change, Clock, DynBoard, Incarnation, Life, LifeKind, Note, NoteKind, Promises, Push, Reading,
    Record, Seat, SeatName, SeatStore, Seen, StoreError, Swap, Version,
};

use crate::board::Notes;
use crate::client::Client;
use crate::keys::Keys;
use crate::options::{ConsulOptions, TakeoverMode};
use crate::seats::{Mark, Seats};
use crate::sessions::Sessions;
use crate::tree::Mirror;
use crate::watch::Watch;

/// Seats in Consul.
///
/// Nothing is connected by making one: the engine connects when it first asks for a seat.
pub struct ConsulStore {
    keys: Keys,
    mirror: Arc<Mirror>,
    watch: Watch,
    sessions: Arc<Sessions>,
    seats: Seats,
    notes: Notes,
    takeover: TakeoverMode,
    min_lease: Duration,
    clock: OnceLock<Clock>,
}

impl ConsulStore {
    /// Seats where the options say.
    ///
    /// # Errors
    /// In one line, if the options contradict each other, or a file that they name cannot be read.
    pub fn new(options: ConsulOptions) -> Result<Self, String> {
        Ok(Self::over(Client::new(&options)?, options))
    }

    /// Seats where the URL says: see [`ConsulOptions::from_url`].
    ///
    /// # Errors
    /// In one line, without the token, if the URL cannot be read.
    pub fn from_url(url: &str) -> Result<Self, String> {
        Self::new(ConsulOptions::from_url(url)?)
    }

    /// Seats where the options say, asked for through a client of your own: its TLS, proxy and socket
    /// settings count, and those of the options do not. It must not try again by itself
    /// (`reqwest::retry::never()`).
    ///
    /// # Errors
    /// In one line, if the options contradict each other, or a file that they name cannot be read.
    pub fn with_client(client: reqwest::Client, options: ConsulOptions) -> Result<Self, String> {
        Ok(Self::over(Client::over(client, &options)?, options))
    }

    fn over(client: Client, options: ConsulOptions) -> Self {
        let (client, keys) = (Arc::new(client), Keys::new(&options.prefix));
        let mirror = Arc::new(Mirror::new(client.clone(), keys.clone()));
        let sessions = Sessions::new(client.clone(), mirror.clone(), options.takeover, options.checks);
        let sessions = Arc::new(sessions);
        Self {
            watch: Watch::new(mirror.clone()),
            seats: Seats::new(client.clone(), keys.clone(), sessions.clone(), mirror.clone()),
            notes: Notes::new(client, keys.clone(), sessions.clone(), options.min_lease),
            keys,
            mirror,
            sessions,
            takeover: options.takeover,
            min_lease: options.min_lease,
            clock: OnceLock::new(),
        }
    }

    fn clock(&self) -> Clock {
        self.clock.get().cloned().unwrap_or_default()
    }

    /// What there is to tell a watcher, by what was last heard.
    fn news(&self, seat: &SeatName, seen: &Seen) -> Option<News> {
        let tree = self.mirror.tree()?;
        let mark = seen.seat.as_ref().and_then(|seat| Mark::parse(&seat.version));
        if mark.as_ref().is_some_and(|mark| tree.index < mark.index) {
            // What was seen is news to the mirror.
            return None;
        }
        let now = match tree.get(&self.keys.seat(seat)).map(|entry| (entry, self.seats.seat_of(entry))) {
            None => None,
            Some((_, Err(_))) => return Some(News::Look),
            Some((entry, Ok(now))) => {
                let held_on = mark.as_ref().and_then(|mark| mark.session.as_ref());
                let is_ended =
                    held_on.is_some_and(|session| self.sessions.is_own(session) && *session != entry.session);
                if is_ended && !seen.differs_from(Some(&now)) {
                    return Some(News::SessionOver);
                }
                Some(now)
            }
        };
        let is_over =
            |seat: Option<&Seat>| seat.is_some_and(|seat| seat.life == Life::Over && !seat.record.is_vacant());
        if seen.differs_from(now.as_ref()) || is_over(seen.seat.as_ref()) != is_over(now.as_ref()) {
            return Some(News::Look);
        }
        (seen.requests && tree.has_below(&self.keys.requests(seat))).then_some(News::Requests)
    }

    /// Resolves when the one of our own sessions is over that a seat was seen to be held on.
    async fn session_over(&self, seen: &Seen) {
        let mark = seen.seat.as_ref().and_then(|seat| Mark::parse(&seat.version));
        match mark.and_then(|mark| mark.session).filter(|session| self.sessions.is_own(session)) {
            None => std::future::pending().await,
            Some(session) => {
                if let Some(session) = self.sessions.alive(&session) {
                    let over = session.over();
                    drop(session);
                    over.await;
                }
            }
        }
    }

    /// Waits for what the mirror has to tell, while it is served.
    async fn heard(&self, seat: &SeatName, seen: &Seen, lease: Duration) -> Change {
        let clock = self.clock();
        let mut served = self.watch.mind(lease, &clock);
        let bell = self.mirror.bells.listen(&self.keys.seat_folder(seat));
        let ready = tokio::time::timeout(lease / 3, served.wait_for(|served| served.is_served));
        let Ok(Ok(before)) = ready.await.map(|served| served.map(|served| *served)) else {
            // What cannot be heard must be looked for.
            return Change::Look;
        };
        loop {
            let mut told = std::pin::pin!(bell.notified());
            told.as_mut().enable();
            match self.news(seat, seen) {
                Some(News::Look) => return Change::Look,
                Some(News::SessionOver) => return Change::SessionOver,
                Some(News::Requests) => {
                    // They may have been taken off the board a moment ago: that is looked up, and learned.
                    if self.mirror.proven(&clock, lease / 3).await.is_err() {
                        return Change::Look;
                    }
                    if matches!(self.news(seat, seen), Some(News::Requests)) {
                        return Change::Look;
                    }
                    if self.news(seat, seen).is_some() {
                        continue;
                    }
                }
                None => {}
            }
            tokio::select! {
                () = told => {}
                _ = served.wait_for(|now| *now != before) => return Change::Look,
            }
        }
    }
}

/// What there is to tell.
enum News {
    Look,
    Requests,
    SessionOver,
}

impl std::fmt::Debug for ConsulStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsulStore")
            .field("prefix", &self.keys.prefix())
            .field("takeover", &self.takeover)
            .finish_non_exhaustive()
    }
}

impl Drop for ConsulStore {
    fn drop(&mut self) {
        self.sessions.close();
    }
}

impl SeatStore for ConsulStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Session,
            takeover: self.takeover.into(),
            push: Push::Proven,
            shared_heartbeat: true,
            attends_by_session: true,
            durability: "a write is on the disks of a majority of the servers before it counts",
            min_lease: self.min_lease,
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "A session is ended while its leader lives (consul session destroy, its node deregistered, a check attached to it fails): another may lead until the news, which is usually there within milliseconds, or the end of its lease reaches the old one (takeover=safe waits that long).",
                "A snapshot is restored, or the servers are made anew, while candidates run: those that were there notice and wait a lease, but one that is started just then knows nothing of what was lost. Tokens go on from the number of the last write that is left: if a resource checks tokens, have it forget those it has seen.",
                "Keys of ours are written by hand, or by a program that does not mind locks.",
                "The candidates of one election use different datacenters or prefixes: each has its own seats.",
                "raft_multiplier and the like are set so high that a server which was deposed does not know for a lease.",
                "A bid reaches the server only after its election has stopped, in a process that goes on with other elections of the same lease: their session then holds the seat, and nobody leads until that process ends or stands for it again.",
            ],
            ..Promises::of("consul")
        }
    }

    fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.seats.read(seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.seats.swap(seat, expected, next, &self.clock()).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, _record: &Record) -> Result<Swap, StoreError> {
        self.seats.renew(seat, held, &self.clock()).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let lease = seen.seat.as_ref().map_or(self.min_lease, |seat| seat.record.lease);
        let is_others = seen.seat.as_ref().is_some_and(|seat| {
            let session = Mark::parse(&seat.version).and_then(|mark| mark.session);
            session.is_some_and(|session| !self.sessions.is_own(&session))
        });
        let _ready = is_others.then(|| self.sessions.keep_ready(lease, &self.clock()));
        tokio::select! {
            biased;
            () = self.session_over(seen) => Change::SessionOver,
            change = self.heard(seat, seen, lease) => change,
        }
    }

    fn board(&self) -> Option<&dyn DynBoard> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.seats.forget(seat).await?;
        self.notes.forget(seat).await
    }
}

impl Board for ConsulStore {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        self.notes.put(seat, note).await
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        self.notes.attend(process, lifetime, &self.clock()).await
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        self.notes.list(seat, kind).await
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        self.notes.remove(seat, kind, key).await
    }
}
