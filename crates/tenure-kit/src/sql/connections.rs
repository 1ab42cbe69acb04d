//! The connections of a store that offers both modes: one that all calls share, or those of its sessions.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::StoreError;

use super::{LockServer, Mode, SeatLocks};
use crate::{Reconnect, lock};

/// The connections of a store: with `mode=lease` one, and with `mode=session` one for each session. A process needs no
/// others, except to wait for other processes.
pub struct Connections<L: LockServer> {
    shared: Reconnect<L::Connection>,
    sessions: Option<SeatLocks<L>>,
    /// The lease of the session that was used last.
    lease: Mutex<Option<Duration>>,
}

impl<L: LockServer> Connections<L> {
    /// Creates the connections of a store, which `connect` opens, with a time-out of its own. Opens nothing yet.
    pub fn new<F>(server: Arc<L>, mode: Mode, connect: impl Fn(Arc<L>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<L::Connection, StoreError>> + Send + 'static,
    {
        let sessions = (mode == Mode::Session).then(|| SeatLocks::new(server.clone()));
        Self { shared: Reconnect::new(move || connect(server.clone())), sessions, lease: Mutex::default() }
    }

    /// Returns the sessions, with `mode=session`.
    pub fn sessions(&self) -> Option<&SeatLocks<L>> {
        self.sessions.as_ref()
    }

    /// Returns the connection for a call: with `mode=session` that of the session for this lease, or of the session that
    /// was used last if no lease belongs to the call.
    ///
    /// # Errors
    /// The reason why no connection could be opened.
    pub async fn get(&self, lease: Option<Duration>) -> Result<Arc<L::Connection>, StoreError> {
        let lease = {
            let mut last = lock(&self.lease);
            *last = lease.or(*last);
            *last
        };
        match (&self.sessions, lease) {
            (Some(sessions), Some(lease)) => Ok(sessions.session(lease).await?.connection.clone()),
            _ => self.shared.get().await,
        }
    }
}

impl<L: LockServer> fmt::Debug for Connections<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}
