//! All elections of a process over one store.

mod one_off;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use tenure_protocol::{Candidate, Incarnation, Rules};
use tokio::sync::oneshot;

use crate::builder::Builder;
use crate::driver::{self, Command, ElectionId, EngineHandle, Start};
use crate::election::Shared;
use crate::handlers::HandlerThreads;
use crate::{Clock, DynStore, Election, Ended, Error, Health, Observer, Promises, SeatName, Settings, Store, log, os};

/// All elections of a process over one store. They share one engine thread, the store's connections and one
/// incarnation.
///
/// A program usually has one `Elections` for each store. It is cheap to clone. When it and all its [`Election`]s are
/// dropped, the engine stops all elections in the background and releases their seats. Wait for
/// [`stopped`](Self::stopped) before the process ends, so that no other candidate has to wait for a lease to expire.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{Elections, memory::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// let elections = Elections::new(MemoryStore::new());
/// let jobs = elections.election("nightly-jobs").start()?;
/// let reports = elections.election("reports").start()?;
/// // …
/// elections.shutdown(Duration::from_secs(10)).await?;
/// # Ok(())
/// # }
/// ```
///
/// Start elections after a fork, not before: a fork does not copy threads, so the child has no engine. In the child,
/// [`Builder::start`] and all other calls that return an [`Error`] fail with [`Error::Forked`]; calls that wait, such
/// as [`Election::elected`] and [`stopped`](Self::stopped), wait forever.
///
/// Log lines and metrics reach the process's `tracing` subscriber and `metrics` recorder from a separate thread: see
/// [`log`](crate::log).
#[derive(Clone, Debug)]
pub struct Elections {
    engine: Arc<Engine>,
}

impl Elections {
    /// Creates elections over a store. The first election that is started connects to the store and starts the engine.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// let elections = Elections::new(MemoryStore::new());
    /// # let _ = elections;
    /// ```
    pub fn new(store: impl Store) -> Self {
        Self::with_clock(store, Clock::system())
    }

    /// Creates elections on a clock that a test moves by hand. `tenure::testing::Stage` does this for you.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::{Elections, LifeKind, ManualClock, memory::Memory};
    /// let clock = ManualClock::new();
    /// let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    /// let elections = Elections::with_clock(memory.store(), clock.clone());
    /// let election = elections.election("jobs").start()?;
    /// clock.advance(Duration::from_secs(60));
    /// assert!(election.is_leader());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn with_clock(store: impl Store, clock: impl Into<Clock>) -> Self {
        let store: Arc<dyn DynStore> = Arc::new(store);
        let engine = Engine {
            settings: Settings::default(),
            promises: store.promises(),
            store,
            clock: clock.into(),
            incarnation: Incarnation::from_bits(rand::random()),
            default_id: format!("{}-{}", os::host_name(), std::process::id()).into(),
            handle: OnceLock::new(),
            process: AtomicU32::new(0),
            handlers: Mutex::default(),
            starting: Mutex::default(),
            running: Mutex::default(),
            last_rules: Mutex::default(),
            prune_at: AtomicUsize::new(16),
            next_id: AtomicU64::new(0),
        };
        Self { engine: Arc::new(engine) }
    }

    /// Uses these settings as the options of all elections, by name: those of a `tenure.toml` and of variables such as
    /// `TENURE_LEASE`. Options that are set in code override them.
    ///
    /// The URL in [`Settings::store`] is ignored, because these elections already have a store. Use
    /// `tenure::from_settings` to connect to it.
    ///
    /// ```
    /// # use tenure_core::{Elections, Settings, memory::MemoryStore};
    /// let settings = Settings::from_toml("lease = \"30s\"")?; // or Settings::load()
    /// let elections = Elections::new(MemoryStore::new()).with_settings(settings);
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Panics
    /// If this `Elections` was cloned, or if one of its elections was started.
    #[must_use]
    pub fn with_settings(mut self, settings: Settings) -> Self {
        let engine = Arc::get_mut(&mut self.engine);
        engine.expect("settings are given before anything is started or cloned").settings = settings;
        self
    }

    /// Returns a handle that does not keep these elections running, for handlers and health checks.
    pub fn downgrade(&self) -> WeakElections {
        WeakElections { engine: Arc::downgrade(&self.engine) }
    }

    /// Returns a builder for a candidate in the election with this name. Nothing happens before [`Builder::start`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// let election = elections
    ///     .election("nightly-jobs")
    ///     .candidate("web-1")
    ///     .lease(Duration::from_secs(30))
    ///     .start()?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Builder {
        Builder::new(self.engine.clone(), name.as_ref())
    }

    /// Observes the election with this name without standing for it.
    ///
    /// For dashboards, and for processes that follow the leader and never lead. Costs the store as much as a follower.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// let observer = elections.observe("nightly-jobs")?;
    /// let leader = observer.leader(); // None before the first read
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the name is not valid, or the engine cannot start.
    pub fn observe(&self, name: impl AsRef<str>) -> Result<Observer, Error> {
        self.election(name).observe()
    }

    /// Returns the election with this name that was started here and still runs.
    ///
    /// Goes through all running elections; keep the handle where many run.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// elections.election("nightly-jobs").start()?;
    /// let leads = elections.find("nightly-jobs").is_some_and(|election| election.is_leader());
    /// # assert!(elections.find("reports").is_none());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn find(&self, name: &str) -> Option<Election> {
        self.running().into_iter().find(|election| election.name() == name)
    }

    /// Returns all elections that were started here and still run, sorted by name. Observers are not included.
    pub fn running(&self) -> Vec<Election> {
        let running = self.engine.running();
        let runs = running.values().filter(|shared| shared.state().ended.is_none());
        runs.map(|shared| Election::new(shared.clone(), self.engine.clone())).collect()
    }

    /// Returns the worst health of all elections that run here, with the name of that election in the reason.
    ///
    /// For the health endpoint of your program. See [`Health`] for the three levels.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let elections = Elections::new(MemoryStore::new());
    /// # let election = elections.election("nightly-jobs").start()?;
    /// # election.elected_blocking()?;
    /// let health = elections.health();
    /// let status = if health.is_healthy() { 200 } else { 503 }; // of GET /healthz
    /// # assert_eq!(status, 200, "{health}");
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn health(&self) -> Health {
        let running = self.running();
        let all = running.iter().map(|election| election.health().of(election.name()));
        match all.max_by_key(Health::severity) {
            Some(worst) if !worst.is_healthy() => worst,
            _ => {
                let led = running.iter().filter(|election| election.is_leader()).count();
                Health::Healthy { reason: format!("{} elections run here, {led} of them led", running.len()) }
            }
        }
    }

    /// Returns what the store promises, and what breaks its promise of one leader at a time.
    pub fn promises(&self) -> &Promises {
        &self.engine.promises
    }

    /// Stops all elections that run here, without waiting: see [`Election::stop`]. New ones can be started afterwards.
    pub fn stop(&self) {
        for shared in self.engine.running().values() {
            self.engine.handle().send(Command::Stop { election: shared.id });
        }
    }

    /// Waits until no election runs here any more, all seats are released, and the candidates of this process are
    /// removed from the lists of candidates.
    ///
    /// If the process ends before that, other candidates wait until the leases expire.
    pub async fn stopped(&self) {
        loop {
            let next = self.engine.running().values().next().cloned();
            match next {
                None => break,
                Some(shared) => {
                    shared.stopped().await;
                    self.engine.forget(&shared);
                }
            }
        }
        if let Some(handle) = self.engine.handle.get() {
            let (reply, settled) = oneshot::channel();
            handle.send(Command::Settle { reply });
            let _ = settled.await;
            handle.flush().await;
        }
    }

    /// Stops all elections that run here and waits until they have ended, for at most `within`.
    ///
    /// The last call of a program that ends. See [`Election::shutdown`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let elections = Elections::new(MemoryStore::new());
    /// # elections.election("jobs").start()?;
    /// elections.shutdown(Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::StillRunning`] with the first election that has not ended in time. [`Error::StillListed`] if all have
    /// ended, but their candidates could not be removed from the store in time. The elections go on stopping.
    pub async fn shutdown(&self, within: Duration) -> Result<(), Error> {
        self.stop();
        if self.engine.handle.get().is_none() {
            return Ok(());
        }
        let stopped = std::pin::pin!(self.stopped());
        if self.engine.within(within, stopped).await.is_some() {
            return Ok(());
        }
        match self.running().first() {
            Some(election) => Err(Error::StillRunning { election: election.name().to_owned(), within }),
            None => Err(Error::StillListed { within }),
        }
    }

    /// Waits for SIGTERM or SIGINT (Ctrl-C on Windows), then stops all elections and waits until they have ended.
    ///
    /// From the first call on, these signals no longer end the process: your program ends when this returns.
    ///
    /// ```no_run
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # async fn main_loop() -> Result<(), tenure_core::Error> {
    /// # let elections = Elections::new(MemoryStore::new());
    /// elections.run_until_signal().await?; // the last line of main()
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the engine cannot start.
    pub async fn run_until_signal(&self) -> Result<(), Error> {
        let (reply, signalled) = oneshot::channel();
        self.engine.start_thread()?.send(Command::OnSignal { reply });
        let _ = signalled.await;
        self.stop();
        self.stopped().await;
        Ok(())
    }
}

/// A handle of [`Elections`] that does not keep them running.
///
/// A handler that owns an `Elections` or an [`Election`] keeps all elections running for as long as its own election
/// runs, even when all other handles were dropped. Give handlers a weak handle instead.
///
/// ```
/// # use tenure_core::{Elections, memory::MemoryStore};
/// # let elections = Elections::new(MemoryStore::new());
/// let all = elections.downgrade();
/// let election = elections
///     .election("nightly-jobs")
///     .on_stopped_leading(move |_, _| {
///         if let Some(all) = all.upgrade() {
///             all.stop();
///         }
///     })
///     .start()?;
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct WeakElections {
    engine: Weak<Engine>,
}

impl WeakElections {
    /// Returns the elections; `None` if all other handles were dropped.
    pub fn upgrade(&self) -> Option<Elections> {
        self.engine.upgrade().map(|engine| Elections { engine })
    }
}

/// The state that all elections of an `Elections` share.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn DynStore>,
    pub(crate) settings: Settings,
    pub(crate) promises: Promises,
    pub(crate) clock: Clock,
    incarnation: Incarnation,
    default_id: Arc<str>,
    /// Set when the engine's thread has started.
    handle: OnceLock<EngineHandle>,
    /// The process that the engine's thread runs in: a fork does not copy the thread.
    process: AtomicU32,
    /// Started with the first election that has handlers.
    handlers: Mutex<Option<HandlerThreads>>,
    starting: Mutex<()>,
    /// All elections that run, and some that have ended.
    running: Mutex<BTreeMap<SeatName, Arc<Shared>>>,
    /// The rules of the last election that was started.
    last_rules: Mutex<Option<Arc<Rules>>>,
    /// The size of `running` at which ended elections are removed from it.
    prune_at: AtomicUsize,
    next_id: AtomicU64,
}

impl Engine {
    /// Returns the handle of the engine. Panics before the first election is started.
    pub(crate) fn handle(&self) -> &EngineHandle {
        self.handle.get().expect("there is no election before the engine has started")
    }

    /// Returns the handle of the engine if it runs in this process: a fork of that process has no engine to answer.
    pub(crate) fn handle_here(&self) -> Result<&EngineHandle, Error> {
        let is_here = self.process.load(Ordering::Relaxed) == std::process::id();
        if is_here { Ok(self.handle()) } else { Err(Error::Forked) }
    }

    fn start_thread(&self) -> Result<&EngineHandle, Error> {
        let _one_at_a_time = self.starting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        log::prepare();
        if self.handle.get().is_none() {
            let handle = driver::start(self.store.clone(), self.clock.clone(), self.incarnation)?;
            self.process.store(std::process::id(), Ordering::Relaxed);
            let _ = self.handle.set(handle);
        }
        self.handle_here()
    }

    pub(crate) fn candidate(&self, id: Option<&str>) -> Result<Candidate, Error> {
        let id = id.map_or_else(|| self.default_id.clone(), Arc::from);
        let problem = if id.is_empty() {
            "is empty: leave it out, or give it a name"
        } else if id.len() > SeatName::LONGEST {
            "is too long: use at most 512 bytes"
        } else if id.chars().any(char::is_control) {
            "has a control character in it: use printable text"
        } else {
            return Ok(Candidate { id, incarnation: self.incarnation });
        };
        Err(Error::BadCandidate { id: id.chars().take(40).collect(), problem })
    }

    /// Returns the threads that handlers run on. The first election with handlers starts them.
    pub(crate) fn handler_threads(&self) -> Result<HandlerThreads, Error> {
        let mut threads = self.handlers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let started = match threads.take() {
            Some(started) => started,
            None => HandlerThreads::start()?,
        };
        *threads = Some(started.clone());
        Ok(started)
    }

    /// Waits for a future for at most `span`, by the engine's clock.
    pub(crate) async fn within<T>(&self, span: Duration, wait: impl Future<Output = T> + Unpin) -> Option<T> {
        let (reply, slept) = oneshot::channel();
        self.handle().send(Command::Sleep { until: self.clock.now() + span, reply });
        match futures_util::future::select(wait, slept).await {
            futures_util::future::Either::Left((done, _)) => Some(done),
            futures_util::future::Either::Right(_) => None,
        }
    }

    pub(crate) fn next_id(&self) -> ElectionId {
        ElectionId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns these rules, in the memory of the last election's rules if they are equal: the elections of a process are
    /// usually configured alike, and there can be very many.
    pub(crate) fn share(&self, rules: Rules) -> Arc<Rules> {
        let mut last = self.last_rules.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*last {
            Some(last) if **last == rules => last.clone(),
            _ => last.insert(rules.into()).clone(),
        }
    }

    /// Hands an election to the engine's thread. If `named`, no other election of its name must be running.
    pub(crate) fn start(self: &Arc<Self>, start: Start, named: bool) -> Result<Election, Error> {
        let handle = self.start_thread()?;
        let shared = start.shared.clone();
        if named {
            let mut running = self.running();
            if running.get(&shared.name).is_some_and(|shared| shared.state().ended.is_none()) {
                return Err(Error::AlreadyRunning { name: shared.name.to_string() });
            }
            // Ended elections are removed each time their number has doubled, so that a start costs little on average.
            if running.len() >= self.prune_at.load(Ordering::Relaxed) {
                running.retain(|_, shared| shared.state().ended.is_none());
                self.prune_at.store(2 * running.len() + 16, Ordering::Relaxed);
            }
            running.insert(shared.name.clone(), shared.clone());
        }
        if !handle.send(Command::Start(start)) {
            self.forget(&shared);
            return Err(Ended::EngineGone.into());
        }
        Ok(Election::new(shared, self.clone()))
    }

    fn forget(&self, ended: &Arc<Shared>) {
        let mut running = self.running();
        if running.get(&ended.name).is_some_and(|shared| Arc::ptr_eq(shared, ended)) {
            running.remove(&ended.name);
        }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<SeatName, Arc<Shared>>> {
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.get() {
            handle.send(Command::Shutdown);
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("store", &self.promises.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Elections {
    /// Returns the number of entries in each collection of the engine.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let (reply, sizes) = tokio::sync::oneshot::channel();
        self.engine.handle().send(Command::Sizes { reply });
        sizes.blocking_recv().expect("the engine runs")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::memory::Memory;
    use crate::{LifeKind, ManualClock};

    fn settled(clock: &ManualClock) {
        clock.settle();
        // Queued log lines hold the election until they are emitted.
        assert!(log::flush(Duration::from_secs(60)));
    }

    /// Simulates a fork, which would be unsafe here, by another process id of the engine's thread.
    #[test]
    fn a_forked_process_is_told_to_create_its_own_elections() {
        let clock = ManualClock::new();
        let elections = Elections::with_clock(Memory::of_kind(LifeKind::Clock, clock.clone()).store(), clock.clone());
        let before = elections.election("before").start().unwrap();
        let parent = elections.engine.process.swap(1, Ordering::Relaxed);
        let refused = elections.election("after").start().unwrap_err();
        assert!(matches!(refused, Error::Forked), "{refused}");
        assert!(refused.to_string().contains("after the fork"), "{refused}");
        assert!(matches!(before.report_health(1.0, ()), Err(Error::Forked)));
        // The first poll must return the error.
        fn refuses<T>(call: impl Future<Output = Result<T, Error>>) -> bool {
            matches!(call.now_or_never(), Some(Err(Error::Forked)))
        }
        assert!(refuses(before.try_acquire()) && refuses(before.request_step_down()));
        assert!(refuses(before.transfer_to("me")) && refuses(before.candidates()));
        assert!(refuses(elections.look("before")) && refuses(elections.candidates("before")));
        assert!(refuses(elections.list()));
        elections.engine.process.store(parent, Ordering::Relaxed);
        elections.election("after").start().unwrap();
    }

    #[test]
    fn an_election_that_has_released_its_seat_leaves_nothing_behind() {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let run = |name: &str| {
            let election = elections.election(name).start().unwrap();
            clock.settle();
            assert!(election.is_leader());
            let name = elections.engine.running()[&SeatName::new(name).unwrap()].name.clone();
            election.stop();
            settled(&clock);
            name
        };
        let names: Vec<SeatName> = (0..100).map(|number| run(&format!("job-{number}"))).collect();
        // One clone is in `names`, and one in the memory store, which never removes seats. The map of running
        // elections can still hold the last few.
        let left = names.iter().filter(|name| name.clones() > 2).count();
        assert!(left <= 20, "{left} of 100 elections that have ended are still known");
    }
}
