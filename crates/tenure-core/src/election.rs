//! One election, as its user holds it.

mod observer;
mod shared;

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use tenure_protocol::{Candidate, Leader, Score};
use tokio::sync::oneshot;

pub use self::observer::Observer;
pub(crate) use self::shared::{Shared, State};
use crate::driver::{Command, ElectionId};
use crate::elections::Engine;
use crate::{CandidateStatus, Ended, Error, Events, Health, Metadata, Term};

/// A candidate's part in one election. Cheap to clone; clones are the same candidate.
///
/// Dropping it changes nothing; the election runs until [`stop`](Self::stop), or until this and
/// every other handle of its [`Elections`](crate::Elections) are gone: then all that runs there is
/// stopped in good order, in the background.
///
/// None of its futures needs a particular runtime, and all are safe to drop.
#[derive(Clone, Debug)]
pub struct Election {
    shared: Arc<Shared>,
    engine: Arc<Engine>,
}

impl Election {
    pub(crate) fn new(shared: Arc<Shared>, engine: Arc<Engine>) -> Self {
        Self { shared, engine }
    }

    /// Makes a handle that does not keep the election running, for handlers and health checks.
    pub fn downgrade(&self) -> WeakElection {
        WeakElection { shared: self.shared.clone(), engine: Arc::downgrade(&self.engine) }
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.shared.name.as_str()
    }

    /// This candidate.
    pub fn candidate(&self) -> &Candidate {
        &self.shared.candidate
    }

    /// Whether this candidate leads now. Reads the clock at the call: false after the hold even if
    /// the process was paused, the runtime is stuck or the machine slept; and false from the moment
    /// that the end of the term is told.
    #[inline]
    pub fn is_leader(&self) -> bool {
        self.shared.is_leader()
    }

    /// The term of this candidate, if it leads now.
    pub fn term(&self) -> Option<Term> {
        self.shared.term()
    }

    /// Who leads, as far as can be seen from here.
    pub fn leader(&self) -> Option<Leader> {
        self.shared.state().leader.clone()
    }

    /// When this candidate's lease was last renewed, by the wall clock, while it leads.
    pub fn last_renewal(&self) -> Option<SystemTime> {
        self.shared.state().last_renewal
    }

    /// What happens, from now on.
    pub fn events(&self) -> Events {
        self.shared.subscribe()
    }

    /// Waits until this candidate leads, and returns its term: at once, if it leads already.
    ///
    /// # Errors
    /// Why there will be no term: the election was stopped here, or has given up.
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

    /// Bids for the seat once, now. Returns the term if this candidate leads, `None` if another
    /// does, or if this one may not stand now (it is not well, has just stepped down, or its work overran).
    ///
    /// On a `.manual()` election this is the only way to lead, and the term is given up when the
    /// last clone of what this returns is dropped.
    ///
    /// If the future is dropped, the bid goes on; should it win, then a manual election gives the
    /// seat up again.
    ///
    /// # Errors
    /// The store's error, if it failed. Should the bid have been won all the same, then a manual
    /// election gives the seat up as soon as it finds out.
    pub async fn try_acquire(&self) -> Result<Option<Term>, Error> {
        self.ask(|election, reply| Command::Bid { election, reply }).await
    }

    /// Asks whoever leads to step down, through the store, and returns whom it asked;
    /// `None` if nobody leads.
    ///
    /// # Errors
    /// If the store keeps no notes, or fails.
    pub async fn request_step_down(&self) -> Result<Option<Leader>, Error> {
        self.ask(|election, reply| Command::RequestStepDown { election, reply }).await
    }

    /// Hands the seat over to the candidate with this id: whoever leads, be it this candidate or
    /// another one that is asked through the store, wraps up its work and gives up the seat
    /// in favour of that candidate; the others leave it the seat for two fifths of a lease. Returns when
    /// the leader has been told, not when the seat has moved: see [`events`](Self::events).
    ///
    /// # Errors
    /// If no such candidate stands, if it leads already or is not well, if nobody leads who could hand
    /// over or is doing so already, if the store keeps no notes, or fails.
    pub async fn transfer_to(&self, candidate: &str) -> Result<(), Error> {
        let to = candidate.to_owned();
        self.ask(|election, reply| Command::Transfer { election, to, reply }).await
    }

    /// Who stands, the leader first: candidates of this election in all processes, as they have
    /// announced themselves in the store. One that died is listed for up to two of its leases.
    ///
    /// # Errors
    /// If the store keeps no notes, or fails.
    pub async fn candidates(&self) -> Result<Vec<CandidateStatus>, Error> {
        let seat = self.shared.name.clone();
        self.ask(|_, reply| Command::Candidates { seat, reply }).await
    }

    /// Reports how well this candidate is, from 0 to 1, and what to tell about it. Below `min_health` it
    /// does not stand, and hands over if it leads; once it has been well for a lease, it stands again.
    ///
    /// Takes no time: the report is announced, and taken into account, by the engine.
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
    /// If the score is not from 0 to 1, or the metadata are longer than 64 KB: then nothing changes.
    pub fn report_health(&self, score: f64, metadata: impl Into<Metadata>) -> Result<(), Error> {
        let score = Score::new(score)
            .ok_or_else(|| Error::BadHealth(format!("a score of {score} makes no sense: it is from 0 to 1")))?;
        let metadata = metadata.into();
        Metadata::check(&metadata.0)?;
        self.engine.handle_here()?.send(Command::Report { election: self.shared.id, score, metadata });
        Ok(())
    }

    /// Reports that this candidate is well (a score of 1) or not (0). See
    /// [`report_health`](Self::report_health).
    ///
    /// # Errors
    /// If the metadata are longer than 64 KB: then nothing changes.
    pub fn report_healthy(&self, healthy: bool, metadata: impl Into<Metadata>) -> Result<(), Error> {
        self.report_health(f64::from(u8::from(healthy)), metadata)
    }

    /// Returns what keeps the seat held as long as any process has it open, for a child process that does
    /// this leader's work; see [`Store::lifeline`](crate::Store::lifeline). Take it after
    /// [`Term::begin_work`]: until that work is dropped, this candidate does not bid again, so the
    /// lifeline is the one of that term.
    ///
    /// # Errors
    /// If it cannot be duplicated, as when this process has too many files open. Then do not start that child:
    /// should this process be killed, its seat would be free before the child has ended.
    pub fn lifeline(&self) -> std::io::Result<Option<crate::Lifeline>> {
        self.engine.store.lifeline(&self.shared.name)
    }

    /// How the election fares as seen from here, for health checks of this program.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Hands over, if this candidate leads: its work wraps up, the seat is given up, and it does
    /// not stand again until another has led or two leases have passed. A request: it may be made
    /// from anywhere, from work and handlers too, and does not wait.
    pub fn step_down(&self) {
        self.engine.handle().send(Command::StepDown { election: self.shared.id });
    }

    /// Gives up the seat, if this candidate leads, once its work has wrapped up. Unlike after
    /// [`step_down`](Self::step_down), it stands again at once, and may well lead again; an election that bids only when asked
    /// waits to be asked. A request, as that is.
    pub fn release(&self) {
        self.engine.handle().send(Command::Release { election: self.shared.id });
    }

    /// Ends this candidate's part in the election: its work wraps up, and the seat is given up
    /// (unless `release_on_stop` is off). A request: it may be made from anywhere, from work and
    /// handlers too, and does not wait; see [`stopped`](Self::stopped).
    pub fn stop(&self) {
        self.engine.handle().send(Command::Stop { election: self.shared.id });
    }

    /// Waits until the election has ended here, with all work returned, and returns why.
    ///
    /// Not to be awaited by that work itself.
    pub async fn stopped(&self) -> Ended {
        let why = self.shared.stopped().await;
        self.engine.handle().flush().await;
        why
    }

    pub(crate) fn lease(&self) -> Duration {
        self.shared.lease
    }

    /// Sleeps on the engine's clock, or until the term is ending.
    pub(crate) async fn sleep(&self, span: Duration, term: &Term) {
        let (reply, slept) = oneshot::channel();
        self.engine.handle().send(Command::Sleep { until: self.shared.clock.now() + span, reply });
        let ending = std::pin::pin!(term.ending());
        futures_util::future::select(slept, ending).await;
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

/// A handle of an [`Election`] that does not keep it running. See [`WeakElections`](crate::WeakElections).
#[derive(Clone, Debug)]
pub struct WeakElection {
    shared: Arc<Shared>,
    engine: Weak<Engine>,
}

impl WeakElection {
    /// The election, unless every other handle of its `Elections` is gone.
    pub fn upgrade(&self) -> Option<Election> {
        self.engine.upgrade().map(|engine| Election { shared: self.shared.clone(), engine })
    }
}
