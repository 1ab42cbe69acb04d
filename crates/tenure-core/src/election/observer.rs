//! A handle for processes that observe an election and do not stand.

use std::sync::Arc;

use super::Election;
use crate::{CandidateStatus, Error, Events, Health, Leader};

/// A handle that observes an election and does not stand for it.
///
/// [`Elections::observe`](crate::Elections::observe) returns one. It reads and watches the seat as a follower does. It
/// is cheap to clone; dropping the last clone ends the observation.
///
/// ```
/// # use tenure_core::{Elections, EventKind, memory::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// # let elections = Elections::new(MemoryStore::new());
/// # let _leader = elections.election("nightly-jobs").start()?;
/// let observer = elections.observe("nightly-jobs")?;
/// let mut events = observer.events();
/// while let Some(event) = events.next().await {
///     if let EventKind::LeaderChanged { leader: Some(leader), .. } = event.kind {
///         println!("{} leads", leader.candidate);
/// #       break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Observer(Arc<StopOnDrop>);

#[derive(Debug)]
struct StopOnDrop(Election);

impl Observer {
    pub(crate) fn new(election: Election) -> Self {
        Self(Arc::new(StopOnDrop(election)))
    }

    /// Returns the election's name, which is also the name of its seat in the store.
    pub fn name(&self) -> &str {
        self.0.0.name()
    }

    /// Returns the leader as last seen; `None` if there is none, or before the seat was read for the first time.
    pub fn leader(&self) -> Option<Leader> {
        self.0.0.leader()
    }

    /// Subscribes to this election's events, starting with its current state. See [`Events`].
    pub fn events(&self) -> Events {
        self.0.0.events()
    }

    /// Asks the leader to step down, through the store. See [`Election::request_step_down`].
    ///
    /// # Errors
    /// As [`Election::request_step_down`].
    pub async fn request_step_down(&self) -> Result<Option<Leader>, Error> {
        self.0.0.request_step_down().await
    }

    /// Asks the leader to hand over to the candidate with this id. See [`Election::transfer_to`].
    ///
    /// # Errors
    /// As [`Election::transfer_to`].
    pub async fn transfer_to(&self, candidate: &str) -> Result<(), Error> {
        self.0.0.transfer_to(candidate).await
    }

    /// Lists the candidates of this election in all processes, the leader first. See [`Election::candidates`].
    ///
    /// # Errors
    /// As [`Election::candidates`].
    pub async fn candidates(&self) -> Result<Vec<CandidateStatus>, Error> {
        self.0.0.candidates().await
    }

    /// Returns the health of the election as this observer sees it. See [`Election::health`].
    pub fn health(&self) -> Health {
        self.0.0.health()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
