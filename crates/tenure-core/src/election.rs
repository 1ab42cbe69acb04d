//! The handle of one candidate in one election.

mod observer;
mod shared;

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, SystemTime};

use tenure_protocol::{Candidate, Score};
use tokio::sync::oneshot;

pub use self::observer::Observer;
pub(crate) use self::shared::{Shared, State};
use crate::driver::{Command, ElectionId};
use crate::elections::Engine;
use crate::{CandidateStatus, Ended, Error, Events, Health, Leader, Metadata, Term};

/// A handle of one candidate in one election.
///
/// [`Builder::start`](crate::Builder::start) returns one. It is cheap to clone, and all clones are the same candidate.
/// Dropping a handle changes nothing: the election runs until [`stop`](Self::stop), or until this and all other handles
/// of its [`Elections`](crate::Elections) are dropped. Then the engine stops all elections in the background, and
/// releases their seats.
///
/// The futures of these methods need no particular runtime. All of them are cancel safe.
///
/// # Which method runs your work?
///
/// All of these methods run work in a term of this candidate and hold that term: the seat is not released before the
/// work has returned or was dropped. They differ in when the work starts, and in what happens when it returns.
///
/// | method | the work starts | it returns | it returns `Err` | its term ends first |
/// |---|---|---|---|---|
/// | [`run_while_leader`](Self::run_while_leader) | once, in the next term | the call returns the result; the seat is kept | the call returns the error; the seat is kept | the work is dropped; the call returns [`Ended::TermEnded`] |
/// | [`run_once_per_term`](Self::run_once_per_term) | once in every term | the seat is kept, idle, until the term ends | the work runs again in the same term, after a pause | the work is dropped, and runs again in the next term |
/// | [`run_then_release`](Self::run_then_release) | once in every term | the seat is released, and other candidates go first | the error is logged; the seat is released | the work is dropped, and runs again in the next term |
/// | [`run_if_leader`](Self::run_if_leader) | now, if this candidate leads | the call returns the result; the seat is kept | the call returns the error; the seat is kept | the work is dropped; the call returns [`Ended::TermEnded`] |
/// | [`run_if_leader_blocking`](Self::run_if_leader_blocking) | now, on this thread, if this candidate leads | the call returns the result; the seat is kept | the call returns the error; the seat is kept | the work is not interrupted: it must check its [`Term`] |
/// | [`on_started_leading`](crate::Builder::on_started_leading) | in every term, on a separate thread | the seat is kept | an [`Error`](crate::EventKind::Error) event, and [`health`](Self::health) is unhealthy; the seat is kept | the work is dropped, and runs again in the next term |
///
/// Use `run_once_per_term` for work that never finishes, such as a consumer or a controller. Use `run_then_release`
/// for a job that finishes and should run again, on this candidate or on another one.
///
/// In all of them [`Term::ending`] resolves when the work should wrap up: `drain` before the end of the term, or
/// `stop_grace` before it if the leader stops or hands over. At the end of the term the work is dropped at the point
/// where it awaits. The clock is read before each poll, so work does not run on after a pause of the process. The
/// engine cannot interrupt tasks that the work has spawned, nor code that never awaits: these must check their `Term`.
///
/// A panic in the work of `run_once_per_term`, `run_then_release` or `on_started_leading` is caught and counts as an
/// error. In the other methods it reaches the caller, and the seat is kept. If you drop the future of a `run_…` method,
/// its work is dropped and the seat is kept, too: [`stop`](Self::stop) the election if no other work needs it.
#[derive(Clone, Debug)]
pub struct Election {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
}

impl Election {
    pub(crate) fn new(shared: Arc<Shared>, engine: Arc<Engine>) -> Self {
        Self { shared, engine }
    }

    /// Returns a handle that does not keep the election running, for handlers and health checks.
    pub fn downgrade(&self) -> WeakElection {
        WeakElection { shared: self.shared.clone(), engine: Arc::downgrade(&self.engine) }
    }

    /// Returns the election's name, which is also the name of its seat in the store.
    pub fn name(&self) -> &str {
        self.shared.name.as_str()
    }

    /// Returns the id and the incarnation of this candidate, as other candidates see them.
    pub fn candidate(&self) -> &Candidate {
        &self.shared.candidate
    }

    /// Returns whether this candidate leads at this moment.
    ///
    /// Reads the clock at every call and takes no lock, so it costs about as much as a read of the clock. It returns
    /// false once the hold is over, even if the process was paused, the runtime is stuck or the machine was suspended;
    /// and from the moment that the term begins to end ([`Ending`](crate::EventKind::Ending)).
    ///
    /// The answer can be out of date by the time that you act on it. Use the `run_…` methods for work, and check
    /// [`Term::token`] where the work takes effect.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// # election.elected_blocking()?;
    /// if election.is_leader() {
    ///     println!("accepting writes");
    /// }
    /// # assert!(election.is_leader());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    #[inline]
    pub fn is_leader(&self) -> bool {
        self.shared.is_leader()
    }

    /// Returns the current term of this candidate; `None` if it does not lead.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// # election.elected_blocking()?;
    /// if let Some(term) = election.term() {
    ///     println!("leading with token {} for {:?} at least", term.token(), term.remaining());
    /// }
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn term(&self) -> Option<Term> {
        self.shared.term()
    }

    /// Returns the leader as this candidate last saw it; `None` if it sees none, or has not read the seat yet.
    ///
    /// Reads no clock and does not call the store. It can name a leader that has just ended; only the leader itself
    /// knows for certain that it leads ([`is_leader`](Self::is_leader)).
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// # election.elected_blocking()?;
    /// match election.leader() {
    ///     Some(leader) => println!("{} leads in term {}", leader.candidate, leader.token),
    ///     None => println!("no leader"),
    /// }
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn leader(&self) -> Option<Leader> {
        self.shared.state().leader.clone()
    }

    /// Returns the wall-clock time of this leader's last renewal; `None` while it does not lead. For status pages.
    pub fn last_renewal(&self) -> Option<SystemTime> {
        self.shared.state().last_renewal
    }

    /// Subscribes to this election's events, starting with its current state.
    ///
    /// The first events describe the state at the call: this candidate leads, another one leads, the store fails. A
    /// slow reader never delays the election: see [`Events`] for what happens when its queue is full.
    ///
    /// ```
    /// # use tenure_core::{Elections, EventKind, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// let mut events = election.events();
    /// while let Some(event) = events.next().await {
    ///     if let EventKind::BecameLeader { term } = event.kind {
    ///         println!("leading with token {}", term.token());
    /// #       break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        self.shared.subscribe()
    }

    /// Waits until this candidate leads, and returns its term; immediately, if it already leads.
    ///
    /// The engine does not wait for the holder of a bare `Term` before it releases the seat. Prefer the `run_…` methods
    /// for work, or hold the term with [`Term::begin_work`].
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// let term = election.elected().await?;
    /// println!("leading with token {}", term.token());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Ended`], if the election ends in this process first: it was stopped, or the candidate gave up.
    pub async fn elected(&self) -> Result<Term, Ended> {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(term) = self.term() {
                return Ok(term);
            }
            if let Some(ended) = self.shared.state().ended.clone() {
                return Err(ended);
            }
            changed.await;
        }
    }

    /// Blocks this thread until this candidate leads, and returns its term.
    ///
    /// For programs without `async`; otherwise like [`elected`](Self::elected). Do not call it on a thread of an
    /// asynchronous runtime, which it would block.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// let elections = Elections::new(MemoryStore::new());
    /// let election = elections.election("nightly-jobs").start()?;
    /// let term = election.elected_blocking()?;
    /// assert!(term.is_current());
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`elected`](Self::elected).
    pub fn elected_blocking(&self) -> Result<Term, Ended> {
        block_on(self.elected())
    }

    /// Bids for the seat once, without waiting for it to become free.
    ///
    /// Returns the term if this candidate leads. Returns `None` if another candidate leads, or if this one must not
    /// stand now: it is unhealthy, has just stepped down, or its work overran.
    ///
    /// In an election that was started with [`manual()`](crate::Builder::manual), this is the only way to lead, and the
    /// seat is released when the last clone of the returned term is dropped.
    ///
    /// If the future is dropped, the bid goes on. If it wins, a manual election releases the seat again.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let elections = Elections::new(MemoryStore::new());
    /// let migration = elections.election("migration").manual().start()?;
    /// match migration.try_acquire().await? {
    ///     Some(term) => println!("migrating, fenced by {}", term.token()),
    ///     None => println!("another process migrates"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the store, if the call failed. If the bid won nevertheless, a manual election releases the seat as
    /// soon as it finds out.
    pub async fn try_acquire(&self) -> Result<Option<Term>, Error> {
        self.ask(|election, reply| Command::Bid { election, reply }).await
    }

    /// Asks the leader to step down, through the store, and returns the leader that was asked; `None` if there is none.
    ///
    /// The leader can be in any process. The call returns when the request is written, not when the leader has stepped
    /// down: wait for [`LeaderChanged`](crate::EventKind::LeaderChanged). The request applies to that one term.
    ///
    /// # Errors
    /// If the store keeps no notes, fails or does not answer within `call_timeout`.
    pub async fn request_step_down(&self) -> Result<Option<Leader>, Error> {
        self.ask(|election, reply| Command::RequestStepDown { election, reply }).await
    }

    /// Hands the seat over to the candidate with this id or incarnation.
    ///
    /// The leader can be this candidate or another one, which is asked through the store. It wraps up its work and
    /// releases the seat with the name of the heir in it. Other candidates leave the seat to the heir for two fifths
    /// of a lease. The call returns when the leader was asked, not when the heir leads: wait for
    /// [`LeaderChanged`](crate::EventKind::LeaderChanged).
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").candidate("a").start()?;
    /// # election.elected().await?;
    /// if let Err(error) = election.transfer_to("web-2").await {
    ///     println!("{error}"); // the candidate "web-2" does not stand for "jobs"; the candidates are: a
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchHeir`] if no such candidate stands, or if it already leads or is unhealthy. [`Error::NoLeader`]
    /// if the seat is vacant, or this candidate's term is already ending. Otherwise if the store keeps no notes, or
    /// fails.
    pub async fn transfer_to(&self, candidate: &str) -> Result<(), Error> {
        let to = candidate.to_owned();
        self.ask(|election, reply| Command::Transfer { election, to, reply }).await
    }

    /// Lists the candidates of this election in all processes, the leader first, then by priority and id.
    ///
    /// Reads the list from the store at every call. A candidate that has died is listed for up to two of its leases; a
    /// candidate that stops is removed at once.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// for status in election.candidates().await? {
    ///     println!("{} (health {}, leads: {})", status.candidate, status.score, status.is_leader);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store keeps no notes, fails or does not answer within 10 seconds.
    pub async fn candidates(&self) -> Result<Vec<CandidateStatus>, Error> {
        let seat = self.shared.name.clone();
        self.ask(|_, reply| Command::Candidates { seat, reply }).await
    }

    /// Reports the health of this candidate, as a score from 0 to 1, with metadata that others see in the list.
    ///
    /// With a score below `min_health` (0.8 by default) this candidate does not stand, and hands over if it leads. It
    /// stands again once all reports of a whole lease were good. [`Builder::health`](crate::Builder::health) runs a
    /// check at regular intervals instead.
    ///
    /// Does not wait: the engine announces the report and applies it.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// election.report_health(0.9, [("queue", "17")])?;
    /// election.report_health(1.0, ())?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadScore`] or [`Error::MetadataTooLong`] (64 KiB). Then nothing changes.
    pub fn report_health(&self, score: f64, metadata: impl Into<Metadata>) -> Result<(), Error> {
        let score = Score::new(score).ok_or(Error::BadScore { score })?;
        let metadata = metadata.into();
        Metadata::check(&metadata.0)?;
        self.engine.handle_here()?.send(Command::Report { election: self.shared.id, score, metadata });
        Ok(())
    }

    /// Reports that this candidate is healthy (a score of 1) or unhealthy (0). See
    /// [`report_health`](Self::report_health).
    ///
    /// # Errors
    /// [`Error::MetadataTooLong`] (64 KiB). Then nothing changes.
    pub fn report_healthy(&self, healthy: bool, metadata: impl Into<Metadata>) -> Result<(), Error> {
        self.report_health(f64::from(u8::from(healthy)), metadata)
    }

    /// Returns a descriptor that keeps the seat held for as long as any process has it open, for a child process that
    /// does this leader's work. `None` where the store has no such descriptor; see
    /// [`Store::lifeline`](crate::Store::lifeline).
    ///
    /// Call it after [`Term::begin_work`]: this candidate does not bid again until that work is dropped, so the
    /// lifeline belongs to that term.
    ///
    /// # Errors
    /// If the descriptor cannot be duplicated, for example because this process has too many files open. Then do not
    /// start the child: if this process were killed, its seat would be free before the child has ended.
    pub fn lifeline(&self) -> std::io::Result<Option<crate::Lifeline>> {
        self.engine.store.lifeline(&self.shared.name)
    }

    /// Returns the health of the election as this candidate sees it, for the health endpoint of your program.
    ///
    /// Does not call the store. This is not the health that the candidate reports about itself
    /// ([`report_health`](Self::report_health)).
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// # election.elected_blocking()?;
    /// assert_eq!(election.health().to_string(), "healthy: this candidate leads");
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Steps down, if this candidate leads: its work wraps up, and the seat is released.
    ///
    /// This candidate does not stand again until another one has led or two leases have passed. The call only sends a
    /// request and does not wait, so work and handlers can call it, too.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// let term = election.elected_blocking()?;
    /// election.step_down();
    /// # while !term.is_ending() { std::thread::yield_now(); }
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    pub fn step_down(&self) {
        self.engine.handle().send(Command::StepDown { election: self.shared.id });
    }

    /// Releases the seat, if this candidate leads, once its work has wrapped up.
    ///
    /// Unlike after [`step_down`](Self::step_down), this candidate stands again at once and can win the next term; a
    /// manual election waits for the next [`try_acquire`](Self::try_acquire). The call only sends a request and does
    /// not wait.
    pub fn release(&self) {
        self.engine.handle().send(Command::Release { election: self.shared.id });
    }

    /// Leaves the election for good: the work wraps up, and the seat is released (unless `release_on_stop` is off).
    ///
    /// The call only sends a request and does not wait, so work and handlers can call it, too. Wait for
    /// [`stopped`](Self::stopped) before the process ends; otherwise others wait until the lease expires. A new
    /// election of the same name can be started afterwards.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// election.stop();
    /// println!("{}", election.stopped().await);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(&self) {
        self.engine.handle().send(Command::Stop { election: self.shared.id });
    }

    /// Waits until the election has ended in this process, with all work returned and the seat released, and returns
    /// why.
    ///
    /// Does not stop the election: see [`stop`](Self::stop) and [`shutdown`](Self::shutdown). Work of this election
    /// must not await it, because it waits for that work.
    pub async fn stopped(&self) -> Ended {
        let why = self.shared.stopped().await;
        self.engine.handle().flush().await;
        why
    }

    /// Stops the election and waits, for at most `within`, until it has ended with all work returned and the seat
    /// released.
    ///
    /// The same as [`stop`](Self::stop) and then [`stopped`](Self::stopped). After an error the election goes on
    /// stopping, and `shutdown` can be called again. Work of this election must not await it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let election = Elections::new(MemoryStore::new()).election("jobs").start()?;
    /// election.shutdown(Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::StillRunning`] if the election has not ended in time: its work is still running, or the store does not
    /// answer.
    pub async fn shutdown(&self, within: Duration) -> Result<Ended, Error> {
        self.stop();
        let stopped = std::pin::pin!(self.stopped());
        match self.engine.within(within, stopped).await {
            Some(why) => Ok(why),
            None => Err(Error::StillRunning { election: self.name().to_owned(), within }),
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.shared.lease
    }

    /// Sleeps on the engine's clock, or until the term is ending.
    pub(crate) async fn sleep(&self, span: Duration, term: &Term) {
        let ending = std::pin::pin!(term.ending());
        self.engine.within(span, ending).await;
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(ElectionId, oneshot::Sender<Result<T, Error>>) -> Command,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.engine.handle_here()?.send(command(self.shared.id, reply));
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.shared.state().ended.clone().unwrap_or(Ended::EngineGone).into()),
        }
    }
}

/// Polls a future on this thread, which sleeps in between. It needs no runtime and enters none.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// A handle of an [`Election`] that does not keep it running. See [`WeakElections`](crate::WeakElections).
#[derive(Clone, Debug)]
pub struct WeakElection {
    shared: Arc<Shared>,
    engine: Weak<Engine>,
}

impl WeakElection {
    /// Returns the election; `None` if all other handles of its `Elections` were dropped.
    pub fn upgrade(&self) -> Option<Election> {
        self.engine.upgrade().map(|engine| Election { shared: self.shared.clone(), engine })
    }
}
