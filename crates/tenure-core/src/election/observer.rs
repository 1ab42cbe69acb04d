//! A look at an election without a part in it.

use std::sync::Arc;

use tenure_protocol::Leader;

use super::Election;
use crate::{CandidateStatus, Error, Events, Health};

/// A look at an election without a part in it.
///
/// Dropping the last clone ends it.
#[derive(Clone, Debug)]
pub struct Observer(Arc<StopOnDrop>);

#[derive(Debug)]
struct StopOnDrop(Election);

impl Observer {
    pub(crate) fn new(election: Election) -> Self {
        Self(Arc::new(StopOnDrop(election)))
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.0.0.name()
    }

    /// Who leads, as far as can be seen from here; `None` also before the first look.
    pub fn leader(&self) -> Option<Leader> {
        self.0.0.leader()
    }

    /// What happens, from now on.
    pub fn events(&self) -> Events {
        self.0.0.events()
    }

    /// See [`Election::request_step_down`].
    ///
    /// # Errors
    /// If the store keeps no notes, or fails.
    pub async fn request_step_down(&self) -> Result<Option<Leader>, Error> {
        self.0.0.request_step_down().await
    }

    /// See [`Election::transfer_to`].
    ///
    /// # Errors
    /// See there.
    pub async fn transfer_to(&self, candidate: &str) -> Result<(), Error> {
        self.0.0.transfer_to(candidate).await
    }

    /// See [`Election::candidates`].
    ///
    /// # Errors
    /// If the store keeps no notes, or fails.
    pub async fn candidates(&self) -> Result<Vec<CandidateStatus>, Error> {
        self.0.0.candidates().await
    }

    /// See [`Election::health`].
    pub fn health(&self) -> Health {
        self.0.0.health()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
