//! A connection that all calls of a store share, replaced when it breaks or falls silent.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{BoxFuture, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::{SharedTask, lock};

/// A connection to a server that [`Reconnect`] manages.
pub trait Connection: Send + Sync + 'static {
    /// Returns the state of the connection: whether it is open, and whether the server answers on it.
    fn liveness(&self) -> &Liveness;

    /// Returns whether calls should open a replacement although the connection works, for example because its
    /// credential expires soon. The connection stays in use until the replacement is open.
    fn is_ageing(&self) -> bool {
        false
    }

    /// Records that no replacement for this ageing connection could be opened. Unless [`is_ageing`](Self::is_ageing)
    /// returns false for a while after this, the next call tries again.
    fn not_replaced(&self, _error: &StoreError) {}
}

/// The state of a connection: whether it is open, and whether the server answers on it.
///
/// A connection is *doubted* when a call was cancelled and the server had been silent for the whole time of the
/// call. A doubted connection may just be slow: it stays in use until another one is open, and anything that is
/// received on it ends the doubt. A *closed* connection is never used again.
#[derive(Debug)]
pub struct Liveness {
    closed: watch::Sender<bool>,
    silence: Mutex<Silence>,
    /// The longest silence that a watch on the connection accepts.
    longest: watch::Sender<Duration>,
}

#[derive(Debug)]
struct Silence {
    /// When something was last received, or the connection was opened.
    heard: Instant,
    /// When the oldest pending call was sent, if nothing was received since.
    since: Option<Instant>,
    doubted: bool,
}

impl Silence {
    fn begins() -> Self {
        Self { heard: Instant::now(), since: None, doubted: false }
    }
}

impl Liveness {
    /// Creates the state of a connection that was just opened.
    pub fn new() -> Self {
        let (closed, longest) = (watch::Sender::new(false), watch::Sender::new(Duration::MAX));
        Self { closed, silence: Mutex::new(Silence::begins()), longest }
    }

    /// Records that something was received, which ends any doubt about the connection.
    pub fn heard(&self) {
        *lock(&self.silence) = Silence::begins();
    }

    /// Returns how long ago something was last received, or the connection was opened.
    pub fn quiet_for(&self) -> Duration {
        lock(&self.silence).heard.elapsed()
    }

    /// Makes the connection doubted: the next call opens another one, for example because only a new connection creates
    /// tables that are missing. This connection stays in use for what it holds.
    pub fn doubt(&self) {
        lock(&self.silence).doubted = true;
    }

    /// Marks the connection as broken, or as not to be used again. Pending calls may still finish.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns whether [`Liveness::close`] was called on the connection.
    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Returns whether a call should use this connection: it is neither closed nor doubted.
    pub fn is_good(&self) -> bool {
        !self.is_closed() && !lock(&self.silence).doubted
    }

    /// Resolves when the connection is closed or dropped. The future does not keep the connection alive.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closed = self.closed.subscribe();
        async move {
            let _ = closed.wait_for(|closed| *closed).await;
        }
    }

    /// Limits how long a watch relies on this connection while it receives nothing. The shortest limit counts. A
    /// store that promises `Push::Proven` sets a third of the lease of every seat that it watches.
    pub fn limit_silence(&self, longest: Duration) {
        self.longest.send_if_modified(|limit| {
            let is_shorter = longest < *limit;
            *limit = longest.min(*limit);
            is_shorter
        });
    }

    /// Resolves when nothing was received for as long as [`limit_silence`](Self::limit_silence) permits, although
    /// the server was pinged after half of that time. Then pushes may have been lost, so the watch must report a
    /// gap, and the connection is doubted. `ping` sends the server any request and waits for the answer.
    pub async fn fell_silent<F: Future>(&self, ping: impl Fn() -> F) {
        let mut longest = self.longest.subscribe();
        loop {
            let half = *longest.borrow_and_update() / 2;
            let rest = half.saturating_sub(self.quiet_for());
            if rest.is_zero() {
                let waiting = self.waiting(Patience { at_least: Duration::ZERO, times: 1 });
                let mut answer = pin!(ping());
                // In two steps: if this process is stopped during the first one, the second one is left for the
                // answer.
                if timeout(half / 2, &mut answer).await.is_ok() || timeout(half / 2, answer).await.is_ok() {
                    waiting.answered();
                } else if self.quiet_for() < half {
                    // Something else was received.
                    waiting.failed();
                } else {
                    return;
                }
                continue;
            }
            tokio::select! {
                () = sleep(rest) => {}
                _ = longest.changed() => {}
            }
        }
    }

    /// Records that a call waits for an answer. If the guard is dropped without an answer, the call was
    /// cancelled, and the connection becomes doubted if the server was silent for long enough.
    pub fn waiting(&self, patience: Patience) -> Waiting<'_> {
        let began = Instant::now();
        lock(&self.silence).since.get_or_insert(began);
        Waiting { liveness: self, patience, began, is_over: false }
    }
}

impl Default for Liveness {
    fn default() -> Self {
        Self::new()
    }
}

/// When a cancelled call makes its connection doubtful.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Calls that are cancelled sooner than this say nothing about the server.
    pub at_least: Duration,
    /// How long the server must have been silent, as a multiple of the time that the cancelled call has waited.
    /// With 1, the first cancelled call is enough. With 2, a server that is slow to answer one call gets the time of
    /// another.
    pub times: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { at_least: Duration::from_millis(20), times: 1 }
    }
}

/// A guard for a call that waits for an answer. See [`Liveness::waiting`].
#[derive(Debug)]
#[must_use = "if the guard is dropped at once, the call counts as cancelled"]
pub struct Waiting<'a> {
    liveness: &'a Liveness,
    patience: Patience,
    began: Instant,
    is_over: bool,
}

impl Waiting<'_> {
    /// Ends the wait because the server has answered, even if with an error.
    pub fn answered(mut self) {
        self.is_over = true;
        self.liveness.heard();
    }

    /// Ends the wait because the call failed without an answer. The caller closes the connection if it is
    /// broken.
    pub fn failed(mut self) {
        self.is_over = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = self.began.elapsed();
        let mut silence = lock(&self.liveness.silence);
        // If anything was received since this call was sent, the silence began after it, and is shorter than
        // the wait.
        let is_silent = silence.since.is_some_and(|since| since.elapsed() >= waited * self.patience.times);
        if !self.is_over && is_silent && waited >= self.patience.at_least {
            silence.doubted = true;
        }
    }
}

/// A connection that all calls of a store share.
///
/// The first call opens it. When it is closed or doubted, the next call opens another one. If that fails, a doubted
/// connection stays in use, and the call after it tries again. The connection
/// attempt runs in a task of its own, which continues if its call is cancelled: the next call waits for the
/// same attempt. An attempt that takes longer than [`stale_after`](Self::stale_after) is abandoned and
/// restarted. All calls that wait for an attempt get the same error. Nothing is opened between calls, and
/// nothing is retried.
pub struct Reconnect<C> {
    connect: Box<dyn Fn() -> BoxFuture<'static, Result<Arc<C>, StoreError>> + Send + Sync>,
    stale_after: Duration,
    state: Mutex<State<C>>,
}

struct State<C> {
    current: Option<Arc<C>>,
    attempt: Option<Attempt<C>>,
}

struct Attempt<C> {
    began: Instant,
    flight: SharedTask<Arc<C>>,
}

impl<C: Connection> Reconnect<C> {
    /// Creates a `Reconnect` that opens connections with `connect`, which must have its own time-out. It opens
    /// nothing yet.
    pub fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, StoreError>> + Send + 'static,
    {
        let connect = move || -> BoxFuture<'static, Result<Arc<C>, StoreError>> {
            let connecting = connect();
            Box::pin(async move { connecting.await.map(Arc::new) })
        };
        let state = Mutex::new(State { current: None, attempt: None });
        Self { connect: Box::new(connect), stale_after: Duration::from_secs(5), state }
    }

    /// Sets the age at which the next call abandons a connection attempt and restarts it. Default: 5 s.
    #[must_use]
    pub fn stale_after(mut self, age: Duration) -> Self {
        self.stale_after = age;
        self
    }

    /// Returns the connection, and opens it if necessary.
    ///
    /// Cancel safe: the connection attempt continues, and the next call waits for it.
    ///
    /// # Errors
    /// The reason why no connection could be opened, unless a doubted one is still open. All calls that waited for the
    /// attempt get the same error.
    pub async fn get(&self) -> Result<Arc<C>, StoreError> {
        let flight = {
            let mut state = lock(&self.state);
            state.adopt_opened();
            let current = state.good();
            if let Some(current) = current.as_ref().filter(|current| !current.is_ageing()) {
                // An attempt that began while this connection was doubted is no longer needed.
                state.attempt = None;
                return Ok(current.clone());
            }
            let flight = match state.attempt.as_ref().filter(|attempt| attempt.began.elapsed() < self.stale_after) {
                Some(attempt) => attempt.flight.clone(),
                None => {
                    let flight = SharedTask::start_while_wanted((self.connect)());
                    state.attempt = Some(Attempt { began: Instant::now(), flight: flight.clone() });
                    flight
                }
            };
            match current {
                Some(ageing) => return Ok(ageing),
                None => flight,
            }
        };
        let cut_off = StoreError::refused("the connection attempt was aborted");
        let opened = flight.clone().wait(cut_off).await;
        let mut state = lock(&self.state);
        if state.attempt.as_ref().is_some_and(|attempt| attempt.flight.is_same(&flight)) {
            state.attempt = None;
        }
        if let Some(current) = state.good() {
            return Ok(current);
        }
        match (opened, state.current.clone()) {
            (Ok(opened), _) => {
                state.replace(opened.clone());
                Ok(opened)
            }
            // A server without room for another connection may still answer on this one. If it does not, the call
            // times out as the calls before it, the doubt stays, and the next call tries again to open another.
            (Err(error), Some(doubted)) => {
                tracing::debug!(%error, "cannot replace a doubted connection, which stays in use");
                Ok(doubted)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the connection if it is open and not doubted. Never opens one.
    pub fn current(&self) -> Option<Arc<C>> {
        lock(&self.state).good()
    }

    /// Returns the connection if it is open, even if it is doubted. For a watch, which stays on its connection
    /// until it is closed.
    pub fn open(&self) -> Option<Arc<C>> {
        lock(&self.state).current.clone().filter(|current| !current.liveness().is_closed())
    }
}

impl<C: Connection> State<C> {
    fn good(&mut self) -> Option<Arc<C>> {
        self.current.take_if(|current| current.liveness().is_closed());
        self.current.as_ref().filter(|current| current.liveness().is_good()).cloned()
    }

    /// Ends an attempt that no call waits for: the call was cancelled, or an ageing connection is still in use. An
    /// error was already returned to the calls that waited for the attempt.
    fn adopt_opened(&mut self) {
        let Some(attempt) = self.attempt.take_if(|attempt| !attempt.flight.is_running()) else { return };
        match (attempt.flight.result(), self.good().map(|current| (current.is_ageing(), current))) {
            (Some(Ok(opened)), None | Some((true, _))) if opened.liveness().is_good() => self.replace(opened),
            (Some(Err(error)), Some((true, current))) => current.not_replaced(&error),
            _ => {}
        }
    }

    fn replace(&mut self, opened: Arc<C>) {
        let before = self.current.replace(opened.clone());
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, &opened)) {
            // Pushes on the old connection no longer matter, so a watch of it ends.
            before.liveness().close();
        }
    }
}

impl<C> fmt::Debug for Reconnect<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnect").field("is_open", &lock(&self.state).current.is_some()).finish_non_exhaustive()
    }
}
