//! All elections of a process over one store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use tenure_protocol::{Candidate, Incarnation};
use tokio::sync::oneshot;

use crate::builder::Builder;
use crate::driver::{self, Command, ElectionId, EngineHandle, Start};
use crate::election::Shared;
use crate::handlers::{HandlerLine, HandlerThread, Handlers};
use crate::{
    CandidateStatus, Clock, DynStore, Election, Ended, Error, Observer, Promises, SeatName, SeatStatus, Store, log, os,
};

/// All elections of a process over one store: one thread, one connection, one incarnation.
///
/// Start elections after a fork, not before it: a forked process has no thread. There, [`Builder::start`] and every
/// other call that returns an [`Error`] fail with [`Error::Forked`]; calls that wait for something to happen, such as
/// [`Election::elected`] and [`stopped`](Self::stopped), wait for ever.
///
/// Cheap to clone. When this and every [`Election`] of it are gone, everything that runs is stopped
/// in good order in the background; wait for [`stopped`](Self::stopped) to be sure of it before the
/// process ends.
///
/// Log lines and metrics go to the process's `tracing` subscriber and `metrics` recorder from a thread of their own:
/// see [`log`](crate::log).
#[derive(Clone, Debug)]
pub struct Elections {
    engine: Arc<Engine>,
}

impl Elections {
    /// Elections over this store. Nothing is connected and no thread is started before the first
    /// election is.
    pub fn new(store: impl Store) -> Self {
        Self::with_clock(store, Clock::system())
    }

    /// Elections on a clock of your own, for tests.
    pub fn with_clock(store: impl Store, clock: impl Into<Clock>) -> Self {
        let store: Arc<dyn DynStore> = Arc::new(store);
        let engine = Engine {
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
            prune_at: AtomicUsize::new(16),
            next_id: AtomicU64::new(0),
        };
        Self { engine: Arc::new(engine) }
    }

    /// Makes a handle that does not keep these elections running, for handlers and health checks.
    pub fn downgrade(&self) -> WeakElections {
        WeakElections { engine: Arc::downgrade(&self.engine) }
    }

    /// A candidacy in the election with this name, to be configured and started.
    pub fn election(&self, name: impl AsRef<str>) -> Builder {
        Builder::new(self.engine.clone(), name.as_ref())
    }

    /// Looks at the election with this name without taking part in it.
    ///
    /// # Errors
    /// If the name cannot be used, or the engine cannot start.
    pub fn observe(&self, name: impl AsRef<str>) -> Result<Observer, Error> {
        self.election(name).observe()
    }

    /// Looks at the seat of an election once: who leads, and for how long yet by the store's word.
    ///
    /// # Errors
    /// If the name cannot be used, or the store fails or does not answer in time.
    pub async fn look(&self, name: impl AsRef<str>) -> Result<SeatStatus, Error> {
        let seat = SeatName::new(name)?;
        let (reply, answer) = oneshot::channel();
        self.engine.start_thread()?.send(Command::Look { seat, reply });
        answer.await?.map(|reading| SeatStatus::of(reading, &self.engine.promises))
    }

    /// Who stands for the election with this name, the leader first. See [`Election::candidates`].
    ///
    /// # Errors
    /// If the name cannot be used, or the store keeps no notes, fails or does not answer in time.
    pub async fn candidates(&self, name: impl AsRef<str>) -> Result<Vec<CandidateStatus>, Error> {
        let seat = SeatName::new(name)?;
        let (reply, answer) = oneshot::channel();
        self.engine.start_thread()?.send(Command::Candidates { seat, reply });
        answer.await?
    }

    /// Removes the seat of an election and its notes, but keeps the number that its tokens must stay
    /// above. For elections that are not needed any more; whoever leads loses its seat.
    ///
    /// # Errors
    /// If the name cannot be used, or the store fails or cannot do this.
    pub async fn forget(&self, name: impl AsRef<str>) -> Result<(), Error> {
        let seat = SeatName::new(name)?;
        let (reply, answer) = oneshot::channel();
        self.engine.start_thread()?.send(Command::Forget { seat, reply });
        answer.await?
    }

    /// What the store promises.
    pub fn promises(&self) -> &Promises {
        &self.engine.promises
    }

    /// Stops all elections that run here, see [`Election::stop`]. More can be started afterwards.
    pub fn stop(&self) {
        for shared in self.engine.running().values() {
            self.engine.handle().send(Command::Stop { election: shared.id });
        }
    }

    /// Waits until no election runs here any more, and the candidates of this process are off the rosters:
    /// what others would wait for in vain, should the process end before.
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

    /// Waits until the process is asked to end (SIGTERM or SIGINT; Ctrl-C on Windows), then stops
    /// all elections in good order. From the first call on, these signals no longer end the
    /// process by themselves.
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
/// A handler that owns an `Elections` or an [`Election`] keeps all of them running for as long as its own election
/// runs, although every other handle is gone. One that owns a weak handle does not.
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
    /// The elections, unless every other handle is gone.
    pub fn upgrade(&self) -> Option<Elections> {
        self.engine.upgrade().map(|engine| Elections { engine })
    }
}

/// What all elections of a process share.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn DynStore>,
    pub(crate) promises: Promises,
    pub(crate) clock: Clock,
    incarnation: Incarnation,
    default_id: Arc<str>,
    /// Set once the thread runs.
    handle: OnceLock<EngineHandle>,
    /// The process that the thread runs in: a fork does not copy it.
    process: AtomicU32,
    /// Started with the first election that has handlers.
    handlers: Mutex<Option<HandlerThread>>,
    starting: Mutex<()>,
    /// All that run, and some that have ended.
    running: Mutex<BTreeMap<SeatName, Arc<Shared>>>,
    /// How many of them there are when those that have ended are looked for.
    prune_at: AtomicUsize,
    next_id: AtomicU64,
}

impl Engine {
    /// The way to the engine. Only once an election was started.
    pub(crate) fn handle(&self) -> &EngineHandle {
        self.handle.get().expect("there is no election before the engine has started")
    }

    /// The same, in the process that the engine runs in: in a fork of it there is no engine to answer.
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

    /// The line to the handlers of an election, if it has any.
    pub(crate) fn handler_line(&self, election: &SeatName, handlers: Handlers) -> Result<Option<HandlerLine>, Error> {
        if handlers.is_empty() {
            return Ok(None);
        }
        let mut thread = self.handlers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let started = match thread.take() {
            Some(started) => started,
            None => HandlerThread::start()?,
        };
        let line = started.line(election.clone(), handlers, self.clock.clone());
        *thread = Some(started);
        Ok(Some(line))
    }

    pub(crate) fn next_id(&self) -> ElectionId {
        ElectionId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Hands an election to the engine's thread. `named`: only one of its name may run.
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
        if !handle.send(Command::Start(Box::new(start))) {
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

/// Why there is nothing more to come from an engine that is gone.
impl From<oneshot::error::RecvError> for Error {
    fn from(_: oneshot::error::RecvError) -> Self {
        Self::Ended(Ended::EngineGone)
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
        // Lines about an election keep it until they are emitted.
        assert!(log::flush(Duration::from_secs(60)));
    }

    /// As after a fork, which is unsafe to make here: the thread runs in a process with another id.
    #[test]
    fn a_forked_process_is_told_to_make_elections_of_its_own() {
        let clock = ManualClock::new();
        let elections = Elections::with_clock(Memory::of_kind(LifeKind::Clock, clock.clone()).store(), clock.clone());
        let before = elections.election("before").start().unwrap();
        let parent = elections.engine.process.swap(1, Ordering::Relaxed);
        let refused = elections.election("after").start().unwrap_err();
        assert!(matches!(refused, Error::Forked), "{refused}");
        assert!(refused.to_string().contains("after the fork"), "{refused}");
        assert!(matches!(before.report_health(1.0, ()), Err(Error::Forked)));
        // At once: nobody polls these again.
        fn refuses<T>(call: impl Future<Output = Result<T, Error>>) -> bool {
            matches!(call.now_or_never(), Some(Err(Error::Forked)))
        }
        assert!(refuses(before.try_acquire()) && refuses(before.request_step_down()));
        assert!(refuses(before.transfer_to("me")) && refuses(before.candidates()));
        assert!(refuses(elections.look("before")) && refuses(elections.candidates("before")));
        elections.engine.process.store(parent, Ordering::Relaxed);
        elections.election("after").start().unwrap();
    }

    #[test]
    fn an_election_that_has_given_up_its_seat_leaves_nothing_behind() {
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
        // One here, and one in the memory itself, which keeps seats for ever; the last few may not be forgotten yet.
        let left = names.iter().filter(|name| name.clones() > 2).count();
        assert!(left <= 20, "{left} of 100 elections that have ended are still known");
    }
}
