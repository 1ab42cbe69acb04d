//! Waits for another process's session to end, without asking again and again.
//!
//! Each session holds a lock of its own for as long as it lives. Whoever wants to know when that is over
//! asks for the same lock, and is made to wait by the server: one connection for each process that leads
//! something, whatever the number of its seats.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::StoreError;
use tokio::sync::watch;
use tokio_postgres::types::Type;

use crate::hello;
use crate::link::Dialer;

/// The sessions that are waited for.
pub(crate) struct Waiting {
    dialer: Arc<Dialer>,
    by_session: Arc<Mutex<HashMap<i64, watch::Receiver<bool>>>>,
}

/// How long a connection waits on when nobody minds any more.
const LINGER: Duration = Duration::from_secs(20);

impl Waiting {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, by_session: Arc::default() }
    }

    /// Resolves with `true` when the session is over, with `false` if that cannot be waited for.
    pub(crate) async fn wait_for(&self, session: i64) -> bool {
        let mut over = {
            let mut waiting = lock(&self.by_session);
            match waiting.get(&session).filter(|over| over.has_changed().is_ok()) {
                Some(over) => over.clone(),
                None => {
                    let over = self.begin(session);
                    waiting.insert(session, over.clone());
                    over
                }
            }
        };
        over.wait_for(|over| *over).await.is_ok()
    }

    fn begin(&self, session: i64) -> watch::Receiver<bool> {
        let (tell, over) = watch::channel(false);
        let (dialer, by_session) = (self.dialer.clone(), Arc::downgrade(&self.by_session));
        tokio::spawn(async move {
            let unminded = async {
                // The map's own is one, and the map is gone with the store.
                while by_session.strong_count() > 0 && tell.receiver_count() > 1 {
                    tokio::time::sleep(LINGER).await;
                }
            };
            let ended = tokio::select! {
                ended = wait(&dialer, session) => Some(ended),
                () = unminded => None,
                () = tell.closed() => None,
            };
            if let Some(by_session) = by_session.upgrade() {
                lock(&by_session).remove(&session);
            }
            match ended {
                Some(Ok(())) => drop(tell.send(true)),
                Some(Err(error)) => tracing::debug!(%error, "the end of a leader's session cannot be waited for"),
                None => {}
            }
        });
        over
    }
}

async fn wait(dialer: &Dialer, session: i64) -> Result<(), StoreError> {
    let link = dialer.dial(None).await?;
    link.batch(&hello::waiting_settings(link.server.version)).await?;
    let (high, low) = ((session >> 32) as i32, (session & 0x7fff_ffff) as i32);
    // Given back with the connection, a moment later.
    link.query("SELECT pg_advisory_lock_shared($1, $2)", &[(&high, Type::INT4), (&low, Type::INT4)]).await.map(drop)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
