//! The sessions of a store: one for each length of lease, with one heartbeat for all seats that it holds.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future, pending};
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{
    BoxFuture, Clock, InterestChange, Life, Moment, News, SeatName, SessionId, StoreError, Version, span,
};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::{SharedTask, lock};

/// A session with a server, which a store author implements.
///
/// Why a renewal proves that seats are held is the store's own argument, and belongs next to its
/// [`beat`](Self::beat).
pub trait Session: Send + Sync + 'static {
    /// The type of a heartbeat's report about the seats.
    type Report: Send + Sync + 'static;

    /// Returns the name of the session, equal to the result of `Store::session_of`. No two sessions ever have
    /// the same name.
    fn name(&self) -> SessionId;

    /// Renews the session and checks the seats, once and with a time-out. `sent` is a moment before anything is
    /// sent.
    fn beat(&self, sent: Moment) -> impl Future<Output = Result<HeartbeatReply<Self::Report>, StoreError>> + Send;

    /// Returns whether the server ends the session unless it is renewed. If so, a session that was not renewed
    /// for a lease counts as ended: no term rests on it any more. Without this rule, a session whose answers
    /// are lost would keep its seats from all other candidates.
    fn lapses(&self) -> bool {
        true
    }

    /// Returns whether new seats may be won on this session while it has not ended. If not, another session is
    /// opened for them.
    fn is_good(&self) -> bool {
        true
    }

    /// Resolves when the session ends together with something else, such as its connection. The future must not
    /// keep the session alive.
    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        pending()
    }
}

/// The answer of a server to a heartbeat, as [`Session::beat`] returns it.
#[derive(Debug)]
pub enum HeartbeatReply<T> {
    /// The session stays alive for at least its lease from this moment. The second part is the report about the
    /// seats.
    Alive(Moment, T),
    /// The session has ended, and the seats on it are lost.
    Over,
}

/// A heartbeat that was answered, shared by all its callers.
#[derive(Debug)]
pub struct Heartbeat<T> {
    /// The number of the heartbeat. The heartbeats of a session are numbered from 1, in the order in which they
    /// begin.
    pub number: u64,
    /// The session stays alive for at least its lease from this moment. It is the `since` of a renewal.
    pub sent: Moment,
    /// The report of the heartbeat about the seats.
    pub report: T,
}

/// A session that [`Sessions`] manages, with its heartbeats and its end.
pub struct PooledSession<S: Session> {
    session: S,
    /// The lease of the seats that are held on the session.
    pub lease: Duration,
    over: watch::Sender<bool>,
    clock: Clock,
    news: Option<News>,
    beats: Mutex<Beats<S::Report>>,
}

struct Beats<T> {
    /// When the last answered renewal was sent, or the request that opened the session.
    renewed: Moment,
    /// The number of heartbeats that have begun.
    begun: u64,
    /// The number of heartbeats that had begun at the last [`outdate`](PooledSession::outdate).
    outdated: u64,
    last: Option<Arc<Heartbeat<T>>>,
    in_flight: Option<SharedTask<Arc<Heartbeat<T>>>>,
}

impl<S: Session> PooledSession<S> {
    /// Returns whether the session is known to have ended.
    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Resolves when the session is known to have ended, or is dropped with the store. The future does not keep
    /// it alive.
    pub fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.subscribe();
        async move {
            let _ = over.wait_for(|over| *over).await;
        }
    }

    /// Marks the session as ended or abandoned, and notifies the engine.
    pub fn end(&self) {
        if !self.over.send_replace(true)
            && let Some(news) = &self.news
        {
            news.session_over(&self.name());
        }
    }

    /// Returns when the last answered renewal was sent. The session stays alive for at least its lease from
    /// that moment.
    pub fn renewed(&self) -> Moment {
        lock(&self.beats).renewed
    }

    /// Makes all heartbeats outdated that have begun so far: [`beat`](Self::beat) does not return them to later callers.
    ///
    /// Call it after each write that changes or releases a seat of this session. Otherwise a renewal could be answered by
    /// a heartbeat from before that write.
    pub fn outdate(&self) {
        let mut beats = lock(&self.beats);
        beats.outdated = beats.begun;
    }

    /// Returns the last heartbeat if it is not [outdated](Self::outdate) and `suits` accepts it, or waits for the next one.
    ///
    /// One heartbeat is in flight at a time and serves all callers. If it is outdated or `suits` rejects it, another one
    /// follows; a heartbeat that began during this call is returned in any case. Cancel safe: a heartbeat runs to its end.
    ///
    /// # Errors
    /// The errors of [`Session::beat`], or that the session has ended, which [`is_over`](Self::is_over) shows.
    pub async fn beat(
        self: &Arc<Self>,
        suits: impl Fn(&Heartbeat<S::Report>) -> bool,
    ) -> Result<Arc<Heartbeat<S::Report>>, StoreError> {
        let (first, outdated) = {
            let beats = lock(&self.beats);
            (beats.begun + 1, beats.outdated)
        };
        let suits = |beat: &Heartbeat<S::Report>| beat.number > outdated && suits(beat);
        loop {
            self.check()?;
            let flight = {
                let mut beats = lock(&self.beats);
                if let Some(last) = beats.last.as_ref().filter(|last| suits(last)) {
                    return Ok(last.clone());
                }
                match beats.in_flight.as_ref().filter(|in_flight| in_flight.is_running()) {
                    Some(in_flight) => in_flight.clone(),
                    None => self.begin(&mut beats),
                }
            };
            let beat = flight.wait(StoreError::unknown("the heartbeat was aborted")).await?;
            if suits(&beat) || beat.number >= first {
                return Ok(beat);
            }
        }
    }

    /// Returns an error if the session has ended.
    fn check(&self) -> Result<(), StoreError> {
        if self.is_over() {
            return Err(StoreError::refused("the session has ended"));
        }
        if self.lapses() && self.clock.now().since(self.renewed()) >= self.lease {
            self.end();
            return Err(StoreError::refused("the session was not renewed for a lease and counts as ended"));
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, beats: &mut Beats<S::Report>) -> SharedTask<Arc<Heartbeat<S::Report>>> {
        beats.begun += 1;
        let (session, number, sent) = (self.clone(), beats.begun, self.clock.now());
        let flight = SharedTask::start(async move {
            match session.session.beat(sent).await? {
                // A session that was abandoned meanwhile stays ended, whatever the server says.
                HeartbeatReply::Alive(sent, report) if !session.is_over() => {
                    let beat = Arc::new(Heartbeat { number, sent, report });
                    let mut beats = lock(&session.beats);
                    beats.renewed = beats.renewed.max(sent);
                    beats.last = Some(beat.clone());
                    Ok(beat)
                }
                _ => {
                    session.end();
                    Err(StoreError::refused("the session has ended"))
                }
            }
        });
        beats.in_flight = Some(flight.clone());
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

/// How many sessions of this process are known by name after their end. A seat that names an older one counts as held by
/// another process, and the server reports that the session has ended.
const OWN: usize = 100;

type Open<S> = dyn Fn(Duration, Clock) -> BoxFuture<'static, Result<S, StoreError>> + Send + Sync;

struct Inner<S: Session> {
    open: Box<Open<S>>,
    engine: OnceLock<(Clock, News)>,
    state: Mutex<State<S>>,
}

struct State<S: Session> {
    opening: HashMap<Duration, SharedTask<Arc<PooledSession<S>>>>,
    /// The latest session of each lease.
    by_lease: HashMap<Duration, Arc<PooledSession<S>>>,
    live: HashMap<String, Arc<PooledSession<S>>>,
    /// The names of the latest sessions of this process, whether or not they have ended, the oldest first.
    own: VecDeque<String>,
    ready: HashMap<Duration, Weak<WarmSession>>,
}

/// Keeps a session ready until it is dropped. See [`Sessions::keep_warm`].
#[derive(Debug)]
pub struct WarmSession(AbortHandle);

impl Drop for WarmSession {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns a lease in seconds, for servers that count in seconds. A store also promises `lease_step`, so that an election
/// with another lease does not start.
///
/// # Errors
/// If the lease is not a whole number of seconds: it must not be rounded, because the leader counts on all of it.
pub fn whole_seconds(lease: Duration) -> Result<u64, StoreError> {
    if lease.subsec_nanos() == 0 && !lease.is_zero() {
        return Ok(lease.as_secs());
    }
    Err(StoreError::denied(format!("the lease must be a whole number of seconds, got {}", span::show(lease))))
}

/// The sessions that are kept ready for bids on seats that other processes hold. Dropping it ends that.
#[derive(Debug, Default)]
pub struct ReadySessions(HashMap<SeatName, Arc<WarmSession>>);

impl ReadySessions {
    /// Applies a change of the engine's interest: keeps a session ready for as long as a session of another process holds
    /// the seat. `session_of` returns the session in a version, as `Store::session_of` does.
    pub fn update<S: Session>(
        &mut self,
        InterestChange { seat, wanted }: InterestChange,
        sessions: &Sessions<S>,
        session_of: impl FnOnce(&Version) -> Option<SessionId>,
    ) {
        let lease = wanted.as_ref().map(|wanted| wanted.lease);
        let held = wanted.and_then(|wanted| wanted.seen?.seat).filter(|seat| seat.life != Life::Over);
        let holder = held.and_then(|held| session_of(&held.version)).filter(|name| !sessions.is_own(name.as_str()));
        match lease.filter(|_| holder.is_some()) {
            Some(lease) => self.0.insert(seat, sessions.keep_warm(lease)),
            None => self.0.remove(&seat),
        };
    }
}

impl<S: Session> Sessions<S> {
    /// Creates a pool that opens sessions with `open`, which must have its own time-out. It opens nothing yet.
    pub fn new<F>(open: impl Fn(Duration, Clock) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<S, StoreError>> + Send + 'static,
    {
        let state = State {
            opening: HashMap::new(),
            by_lease: HashMap::new(),
            live: HashMap::new(),
            own: VecDeque::new(),
            ready: HashMap::new(),
        };
        let open = Box::new(move |lease, clock| -> BoxFuture<'static, _> { Box::pin(open(lease, clock)) });
        Self(Arc::new(Inner { open, engine: OnceLock::new(), state: Mutex::new(state) }))
    }

    /// Sets the engine's clock and news. Call it once, before anything else.
    pub fn attach(&self, clock: &Clock, news: &News) {
        let _ = self.0.engine.set((clock.clone(), news.clone()));
    }

    /// Returns whether a session belongs to this process, even if it has ended, unless it was followed by a hundred others.
    pub fn is_own(&self, name: &str) -> bool {
        let state = lock(&self.0.state);
        state.live.contains_key(name) || state.own.iter().any(|own| own == name)
    }

    /// Returns a session of this process by name, if it is not known to have ended.
    pub fn find(&self, name: &str) -> Option<Arc<PooledSession<S>>> {
        lock(&self.0.state).live.get(name).filter(|session| !session.is_over()).cloned()
    }

    /// Reports a session that has ended, of this process or of another one, as the server has pushed it.
    pub fn ended(&self, name: &SessionId) {
        match (self.find(name.as_str()), self.0.engine.get()) {
            (Some(own), _) => own.end(),
            (None, Some((_, news))) => news.session_over(name),
            (None, None) => {}
        }
    }

    /// Returns all sessions of this process that are not known to have ended.
    pub fn live(&self) -> Vec<Arc<PooledSession<S>>> {
        lock(&self.0.state).live.values().filter(|session| !session.is_over()).cloned().collect()
    }

    /// Renews all sessions that are not known to have ended, and finds those that have. Call it when the watch has
    /// subscribed, before it reports that it listens: a session that ended earlier is not pushed any more.
    pub async fn beat_all(&self) {
        let now = self.0.clock().now();
        join_all(self.live().iter().map(|session| session.beat(|beat| beat.sent >= now))).await;
    }

    /// Returns the session for seats of this lease, and opens it if necessary.
    ///
    /// Cancel safe: opening continues, and the next call finds the session.
    ///
    /// # Errors
    /// The reason why no session could be opened. All calls that waited for it get the same error.
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
        opening.wait(StoreError::refused("the attempt to open a session was aborted")).await
    }

    /// Returns the session for seats of this lease, renewed at most `age` ago. Sends a heartbeat if necessary.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get) and of [`PooledSession::beat`].
    pub async fn fresh(&self, lease: Duration, age: Duration) -> Result<Arc<PooledSession<S>>, StoreError> {
        let session = self.get(lease).await?;
        let from = self.0.clock().now() - age;
        if !session.lapses() || session.renewed() >= from {
            return Ok(session);
        }
        match session.beat(|beat| beat.sent >= from).await {
            // The session ended while it was not in use.
            Err(_) if session.is_over() => self.get(lease).await,
            answer => answer.map(|_| session),
        }
    }

    /// Keeps a session open and renewed until the returned guard is dropped, so that a bid does not have to
    /// open one.
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
            Err(error) => tracing::debug!(%error, "cannot keep a session ready for bids"),
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
            news: self.engine.get().map(|(_, news)| news.clone()),
            beats: Mutex::new(Beats { renewed, begun: 0, outdated: 0, last: None, in_flight: None }),
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
        state.own.push_back(name);
        if state.own.len() > OWN {
            state.own.pop_front();
        }
        state.by_lease.insert(lease, session.clone());
        Ok(session)
    }
}

impl<S: Session> fmt::Debug for Sessions<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("live", &lock(&self.0.state).live.len()).finish_non_exhaustive()
    }
}
