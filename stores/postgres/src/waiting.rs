//! Waits for another process's session to end, without asking again and again.
//!
//! Each session holds a lock of its own for as long as it lives. Whoever wants to know when that is over
//! asks for the same lock, and is made to wait by the server: one connection for each process that leads
//! something, whatever the number of its seats.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tenure_core::StoreError;
use tokio::sync::watch;
use tokio_postgres::types::{ToSql, Type};

use crate::bells::Bells;
use crate::hello;
use crate::link::{Dialer, Link};

/// The sessions that are waited for.
pub(crate) struct Waiting {
    dialer: Arc<Dialer>,
    bells: Arc<Bells>,
    by_session: Arc<Mutex<BySession>>,
    spare: Arc<Mutex<Option<Link>>>,
}

/// Each kept here as long as it is waited for. When these are gone, so is the store.
type BySession = HashMap<i64, watch::Receiver<()>>;

/// How long a connection waits on when nobody minds any more.
const LINGER: Duration = Duration::from_secs(20);

/// How long one that has waited is kept for the next: whoever has not won looks whom to wait for at once.
const SPARE: Duration = Duration::from_millis(200);

impl Waiting {
    pub(crate) fn new(dialer: Arc<Dialer>, bells: Arc<Bells>) -> Self {
        Self { dialer, bells, by_session: Arc::default(), spare: Arc::default() }
    }

    /// Has all who mind a session told when it is over; if that cannot be waited for, then after a pause.
    pub(crate) fn wait_for(&self, session: i64, pause: Duration) {
        let mut waiting = lock(&self.by_session);
        // The one who waits is gone with its runtime.
        if waiting.get(&session).is_none_or(|waits| waits.has_changed().is_err()) {
            let waits = self.begin(session, pause);
            waiting.insert(session, waits);
        }
    }

    fn begin(&self, session: i64, pause: Duration) -> watch::Receiver<()> {
        let (here, waits) = watch::channel(());
        let (dialer, bells, by_session) = (self.dialer.clone(), self.bells.clone(), Arc::downgrade(&self.by_session));
        let spare = Arc::downgrade(&self.spare);
        tokio::spawn(async move {
            let link = spare.upgrade().and_then(|spare| lock(&spare).take()).filter(Link::is_good);
            let ended = tokio::select! {
                ended = wait(&dialer, link, session) => ended,
                () = unminded(&bells, &by_session, session) => return,
                () = here.closed() => return,
            };
            let link = match ended {
                Ok(link) => Some(link),
                Err(error) => {
                    tracing::debug!(%error, "the end of a leader's session cannot be waited for");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = here.closed() => return,
                    }
                    None
                }
            };
            // First off the list, then told: whoever minds from now on has it waited for anew.
            if let Some(by_session) = by_session.upgrade() {
                lock(&by_session).remove(&session);
            }
            bells.ring_session(session);
            if let Some(link) = link {
                keep(link, &spare, session).await;
            }
        });
        waits
    }
}

/// Resolves when nobody minds the session, which is off the list then.
async fn unminded(bells: &Bells, by_session: &Weak<Mutex<BySession>>, session: i64) {
    loop {
        tokio::time::sleep(LINGER).await;
        let Some(by_session) = by_session.upgrade() else { return };
        let mut waiting = lock(&by_session);
        if !bells.mind(session) {
            waiting.remove(&session);
            return;
        }
    }
}

async fn wait(dialer: &Dialer, link: Option<Link>, session: i64) -> Result<Link, StoreError> {
    let link = match link {
        Some(link) => link,
        None => {
            let link = dialer.dial(None).await?;
            link.batch(&hello::waiting_settings(link.server.version)).await?;
            link
        }
    };
    let (high, low) = halves(session);
    link.query("SELECT pg_advisory_lock_shared($1, $2)", &[(&high, Type::INT4), (&low, Type::INT4)]).await?;
    Ok(link)
}

/// When one leader leaves, another is waited for a moment later. Opening a connection for that takes longer than
/// the whole hand-over, so the one at hand is kept for a while.
async fn keep(link: Link, spare: &Weak<Mutex<Option<Link>>>, session: i64) {
    let (high, low) = halves(session);
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&high, Type::INT4), (&low, Type::INT4)];
    if link.query("SELECT pg_advisory_unlock_shared($1, $2)", &params).await.is_err() {
        return;
    }
    match spare.upgrade() {
        Some(spare) => *lock(&spare) = Some(link),
        None => return,
    }
    tokio::time::sleep(SPARE).await;
    if let Some(spare) = spare.upgrade() {
        lock(&spare).take();
    }
}

/// The two keys of the lock that a session holds.
fn halves(session: i64) -> (i32, i32) {
    ((session >> 32) as i32, (session & 0x7fff_ffff) as i32)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
