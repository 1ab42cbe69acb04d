//! A connection of a driver that runs one batch of statements at a time.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::LockConnection;
use crate::socket::Relay;
use crate::{Connection, Liveness, Patience};

/// A driver's client, which runs batches of statements. A future of it that is dropped half-way leaves it unusable.
pub trait BatchClient: Send + 'static {
    /// A batch, with everything that the client needs to run it.
    type Batch: Send + 'static;
    /// The rows of a batch.
    type Results: Send + 'static;
    /// The error of a batch.
    type Error: BatchError;

    /// Runs a batch to its end.
    fn run(&mut self, batch: Self::Batch) -> impl Future<Output = Result<Self::Results, Self::Error>> + Send;
}

/// The error of a batch of statements.
pub trait BatchError: Send + 'static {
    /// Returns the error that the server has not answered in time.
    fn unanswered() -> Self;

    /// Returns whether to replace the connection: a new one, or another server, may work.
    fn ends_the_connection(&self) -> bool;

    /// Returns whether a table is missing, which a new connection creates if its user is allowed to.
    fn is_missing_table(&self) -> bool;
}

/// One connection to a server, through a [`Relay`].
pub struct BatchConnection<C, S> {
    client: Arc<Mutex<C>>,
    /// What the store knows of the server.
    pub server: S,
    liveness: Arc<Liveness>,
    relay: Relay,
    creates_tables: bool,
}

/// A batch that is not answered within this time ends its connection. It is longer than any wait for a lock.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A single call that times out may only be slow. If the server has been silent for twice as long as the call waited,
/// other calls timed out before it, and a new connection may work.
const PATIENCE: Patience = Patience { at_least: Duration::ZERO, times: 2 };

impl<C: BatchClient, S: Send + Sync + 'static> BatchConnection<C, S> {
    /// Creates a connection from a client that has logged in through this relay.
    pub fn new(client: C, server: S, liveness: Arc<Liveness>, relay: Relay) -> Self {
        Self { client: Arc::new(Mutex::new(client)), server, liveness, relay, creates_tables: true }
    }

    /// Sets whether the next connection would create a missing table (default: true). If not, an error about a missing
    /// table is no reason to replace this connection.
    #[must_use]
    pub fn creates_tables(self, creates_tables: bool) -> Self {
        Self { creates_tables, ..self }
    }

    /// Runs a batch of statements.
    ///
    /// If the future is dropped before the batch is sent, it is never sent. If it is dropped later, the batch runs to
    /// its end, and batches that are sent later on this connection run after it.
    ///
    /// # Errors
    /// The client's own error, or that there was no answer; then the connection is closed.
    pub async fn run(self: &Arc<Self>, batch: C::Batch) -> Result<C::Results, C::Error> {
        let waiting = self.liveness.waiting(PATIENCE);
        let mut client = self.client.clone().lock_owned().await;
        let connection = self.clone();
        // A batch that is abandoned half-way would leave the connection unusable: so it runs in a task of its own.
        let batch = tokio::spawn(async move {
            let answer = tokio::time::timeout(ANSWER_WITHIN, client.run(batch)).await;
            let answer = answer.unwrap_or_else(|_| Err(C::Error::unanswered()));
            if answer.as_ref().is_err_and(C::Error::ends_the_connection) {
                connection.abort();
            }
            answer
        });
        let answer = batch.await.unwrap_or_else(|_| Err(C::Error::unanswered()));
        waiting.answered();
        if answer.as_ref().is_err_and(C::Error::is_missing_table) && self.creates_tables {
            self.liveness.doubt();
        }
        answer
    }
}

impl<C: Send + 'static, S: Send + Sync + 'static> Connection for BatchConnection<C, S> {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

impl<C: Send + 'static, S: Send + Sync + 'static> LockConnection for BatchConnection<C, S> {
    fn abort(&self) {
        self.liveness.close();
        self.relay.abort();
    }

    #[cfg(unix)]
    fn lifeline(&self) -> std::io::Result<tenure_core::Lifeline> {
        self.relay.lifeline()
    }
}

impl<C, S> fmt::Debug for BatchConnection<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchConnection").field("liveness", &self.liveness).finish_non_exhaustive()
    }
}
