//! The sessions of a store: one for each length of lease, with one heartbeat for all seats that it holds.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::{Future, pending};
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tenure_core::{BoxFuture, Clock, Moment, News, StoreError};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::{SharedTask, lock};

/// A session with a server: what a store author writes.
///
/// Why a renewal proves that seats are held is the store's own argument, and stands beside its [`beat`](Self::beat).
pub trait Session: Send + Sync + 'static {
    /// What a heartbeat tells about the seats.
    type Report: Send + Sync + 'static;

    /// Names the session, as `Store::session_of` does. No two sessions ever have the same name.
    fn name(&self) -> tenure_core::SessionId;

    /// Renews the session and looks at the seats, once and with a time-out. `sent` is before anything is sent.
    fn beat(&self, sent: Moment) -> impl Future<Output = Result<HeartbeatReply<Self::Report>, StoreError>> + Send;

    /// Whether the server ends the session unless it is renewed. If so, a session that was not renewed for a lease is
    /// over: nobody leads by it any more, and if only the answers are lost, it would keep its seats from all others.
    fn lapses(&self) -> bool {
        true
    }

    /// Whether seats may still be won on it, as long as it is not over. If not, another one is opened for them.
    fn is_good(&self) -> bool {
        true
    }

    /// Resolves when the session ends with something else, such as its connection. The future must not keep the session.
    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        pending()
    }
}

/// What a server has answered to a heartbeat.
#[derive(Debug)]
pub enum HeartbeatReply<T> {
    /// The session lives for its time from this moment on, at the least; and what was told of the seats.
    Alive(Moment, T),
    /// The session is over.
    Over,
}

/// A heartbeat that was answered.
#[derive(Debug)]
pub struct Heartbeat<T> {
    /// Heartbeats of a session are numbered from 1 on, in the order in which they begin.
    pub number: u64,
    /// The session lives for its time from this moment on, at the least: the `since` of a renewal.
    pub sent: Moment,
    /// What it has told about the seats.
    pub report: T,
}

/// A session that is kept in [`Sessions`].
pub struct PooledSession<S: Session> {
    session: S,
    /// The lease of the seats that are held on it.
    pub lease: Duration,
    over: watch::Sender<bool>,
    clock: Clock,
    news: Option<News>,
    beats: Mutex<Beats<S::Report>>,
}

struct Beats<T> {
    /// When the last renewal was sent that was answered, or the session was asked for.
    renewed: Moment,
    /// How many have begun.
    begun: u64,
    last: Option<Arc<Heartbeat<T>>>,
    underway: Option<SharedTask<Arc<Heartbeat<T>>>>,
}

impl<S: Session> PooledSession<S> {
    /// Whether it is known to be over.
    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Resolves when the session is known to be over, or is dropped with the store. The future does not keep it.
    pub fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.subscribe();
        async move {
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Notes that the session is over, or given up, and tells the engine.
    pub fn end(&self) {
        if !self.over.send_replace(true)
            && let Some(news) = &self.news
        {
            news.session_over(&self.name());
        }
    }

    /// When the last renewal was sent that was answered. The session lives for its time from here on, at the least.
    pub fn renewed(&self) -> Moment {
        lock(&self.beats).renewed
    }

    /// The number of the next heartbeat to begin: what a seat is noted under that this one is the first to look at.
    pub fn next_beat(&self) -> u64 {
        lock(&self.beats).begun + 1
    }

    /// The last heartbeat, if `suits` says so, or the next one.
    ///
    /// One heartbeat is under way at a time and serves all callers. If `suits` refuses it, another one follows; a
    /// heartbeat that has begun during this call is returned in any case. Cancel safe: a heartbeat runs to its end.
    ///
    /// # Errors
    /// Those of [`Session::beat`]; or that the session is over, which [`is_over`](Self::is_over) tells.
    pub async fn beat(
        self: &Arc<Self>,
        suits: impl Fn(&Heartbeat<S::Report>) -> bool,
    ) -> Result<Arc<Heartbeat<S::Report>>, StoreError> {
        let first = self.next_beat();
        loop {
            self.check()?;
            let flight = {
                let mut beats = lock(&self.beats);
                if let Some(last) = beats.last.as_ref().filter(|last| suits(last)) {
                    return Ok(last.clone());
                }
                match beats.underway.as_ref().filter(|underway| underway.is_running()) {
                    Some(underway) => underway.clone(),
                    None => self.begin(&mut beats),
                }
            };
            let beat = flight.wait(StoreError::unknown("the heartbeat was cut off")).await?;
            if suits(&beat) || beat.number >= first {
                return Ok(beat);
            }
        }
    }

    /// Refuses to go on with a session that is over.
    fn check(&self) -> Result<(), StoreError> {
        if self.is_over() {
            return Err(StoreError::refused("the session is over"));
        }
        if self.lapses() && self.clock.now().since(self.renewed()) >= self.lease {
            self.end();
            return Err(StoreError::refused("the session was not renewed for a lease: it is given up"));
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, beats: &mut Beats<S::Report>) -> SharedTask<Arc<Heartbeat<S::Report>>> {
        beats.begun += 1;
        let (session, number, sent) = (self.clone(), beats.begun, self.clock.now());
        let flight = SharedTask::start(async move {
            match session.session.beat(sent).await? {
                // A session that was given up meanwhile stays over, whatever the server says.
                HeartbeatReply::Alive(sent, report) if !session.is_over() => {
                    let beat = Arc::new(Heartbeat { number, sent, report });
                    let mut beats = lock(&session.beats);
                    beats.renewed = beats.renewed.max(sent);
                    beats.last = Some(beat.clone());
                    Ok(beat)
                }
                _ => {
                    session.end();
                    Err(StoreError::refused("the session is over"))
                }
            }
        });
        beats.underway = Some(flight.clone());
        flight
    }
}

impl<S: Session> Deref for PooledSession<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}

impl<S: Session> fmt::Debug for PooledSession<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledSession")
            .field("name", &self.name())
            .field("is_over", &self.is_over())
            .finish_non_exhaustive()
    }
}

/// The sessions of a store: one for each length of lease, whatever the number of seats.
pub struct Sessions<S: Session>(Arc<Inner<S>>);

type Open<S> = dyn Fn(Duration, Clock) -> BoxFuture<'static, Result<S, StoreError>> + Send + Sync;

struct Inner<S: Session> {
    open: Box<Open<S>>,
    engine: OnceLock<(Clock, Option<News>)>,
    state: Mutex<State<S>>,
}

struct State<S: Session> {
    opening: HashMap<Duration, SharedTask<Arc<PooledSession<S>>>>,
    /// The last session of each lease.
    by_lease: HashMap<Duration, Arc<PooledSession<S>>>,
    live: HashMap<String, Arc<PooledSession<S>>>,
    /// All that we have ever had.
    own: HashSet<String>,
    ready: HashMap<Duration, Weak<WarmSession>>,
}

/// Has a session kept ready, until it is dropped. See [`Sessions::keep_warm`].
#[derive(Debug)]
pub struct WarmSession(AbortHandle);

impl Drop for WarmSession {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<S: Session> Sessions<S> {
    /// Opens sessions with `open`, which must have a time-out of its own. Nothing is opened yet.
    pub fn new<F>(open: impl Fn(Duration, Clock) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<S, StoreError>> + Send + 'static,
    {
        let state = State {
            opening: HashMap::new(),
            by_lease: HashMap::new(),
            live: HashMap::new(),
            own: HashSet::new(),
            ready: HashMap::new(),
        };
        let open = Box::new(move |lease, clock| -> BoxFuture<'static, _> { Box::pin(open(lease, clock)) });
        Self(Arc::new(Inner { open, engine: OnceLock::new(), state: Mutex::new(state) }))
    }

    /// Takes the engine's clock and news, once and before anything else. Without news, the store reports the end of a
    /// session by itself ([`PooledSession::over`]).
    pub fn attach(&self, clock: &Clock, news: Option<&News>) {
        let _ = self.0.engine.set((clock.clone(), news.cloned()));
    }

    /// Whether a session is one of ours, over or not.
    pub fn is_own(&self, name: &str) -> bool {
        lock(&self.0.state).own.contains(name)
    }

    /// One of our own sessions, if it is not known to be over.
    pub fn find(&self, name: &str) -> Option<Arc<PooledSession<S>>> {
        lock(&self.0.state).live.get(name).filter(|session| !session.is_over()).cloned()
    }

    /// All of our sessions that are not known to be over.
    pub fn live(&self) -> Vec<Arc<PooledSession<S>>> {
        lock(&self.0.state).live.values().filter(|session| !session.is_over()).cloned().collect()
    }

    /// The session for seats of this lease, opened if need be.
    ///
    /// Cancel safe: a session is opened to the end, and the next call finds it.
    ///
    /// # Errors
    /// Why no session could be opened; the same for all calls that waited for it.
    pub async fn get(&self, lease: Duration) -> Result<Arc<PooledSession<S>>, StoreError> {
        let opening = {
            let mut state = lock(&self.0.state);
            if let Some(session) = state.by_lease.get(&lease).filter(|session| !session.is_over() && session.is_good())
            {
                return Ok(session.clone());
            }
            match state.opening.get(&lease).filter(|opening| opening.is_running()) {
                Some(opening) => opening.clone(),
                None => {
                    let opening = SharedTask::start(self.0.clone().open(lease));
                    state.opening.insert(lease, opening.clone());
                    opening
                }
            }
        };
        opening.wait(StoreError::refused("the session was cut off")).await
    }

    /// The same, renewed no longer ago than `age`.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`PooledSession::beat`].
    pub async fn fresh(&self, lease: Duration, age: Duration) -> Result<Arc<PooledSession<S>>, StoreError> {
        let session = self.get(lease).await?;
        let from = self.0.clock().now() - age;
        if !session.lapses() || session.renewed() >= from {
            return Ok(session);
        }
        match session.beat(|beat| beat.sent >= from).await {
            // It ended while nobody needed it.
            Err(_) if session.is_over() => self.get(lease).await,
            answer => answer.map(|_| session),
        }
    }

    /// Keeps a session open and renewed for bids that may come at any time, until what this returns is dropped.
    pub fn keep_warm(&self, lease: Duration) -> Arc<WarmSession> {
        let mut state = lock(&self.0.state);
        if let Some(ready) = state.ready.get(&lease).and_then(Weak::upgrade).filter(|ready| !ready.0.is_finished()) {
            return ready;
        }
        let ready = Arc::new(WarmSession(tokio::spawn(keep_warm(Arc::downgrade(&self.0), lease)).abort_handle()));
        state.ready.insert(lease, Arc::downgrade(&ready));
        ready
    }
}

async fn keep_warm<S: Session>(sessions: Weak<Inner<S>>, lease: Duration) {
    while let Some(sessions) = sessions.upgrade().map(Sessions) {
        let kept = sessions.fresh(lease, lease / 4).await;
        drop(sessions);
        match kept {
            Ok(session) if !session.lapses() => {
                let over = session.over();
                drop(session);
                over.await;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "no session can be kept ready"),
        }
        tokio::time::sleep(lease / 3).await;
    }
}

impl<S: Session> Inner<S> {
    fn clock(&self) -> Clock {
        self.engine.get().map(|(clock, _)| clock.clone()).unwrap_or_default()
    }

    async fn open(self: Arc<Self>, lease: Duration) -> Result<Arc<PooledSession<S>>, StoreError> {
        let clock = self.clock();
        let renewed = clock.now();
        let session = (self.open)(lease, clock.clone()).await?;
        let (name, closed) = (session.name().as_str().to_owned(), session.closed());
        let session = Arc::new(PooledSession {
            session,
            lease,
            over: watch::Sender::new(false),
            clock,
            news: self.engine.get().and_then(|(_, news)| news.clone()),
            beats: Mutex::new(Beats { renewed, begun: 0, last: None, underway: None }),
        });
        let (watched, over) = (Arc::downgrade(&session), session.over());
        tokio::spawn(async move {
            tokio::select! {
                () = closed => watched.upgrade().iter().for_each(|session| session.end()),
                () = over => {}
            }
        });
        let mut state = lock(&self.state);
        state.live.retain(|_, session| !session.is_over());
        state.live.insert(name.clone(), session.clone());
        state.own.insert(name);
        state.by_lease.insert(lease, session.clone());
        Ok(session)
    }
}

impl<S: Session> fmt::Debug for Sessions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("live", &lock(&self.0.state).live.len()).finish_non_exhaustive()
    }
}
