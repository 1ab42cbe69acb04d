//! Waits for another process's session to end, without polling.
//!
//! Each session holds a lock of its own for as long as it lives. A follower asks for the same lock, and
//! the server makes it wait: one connection for each process that leads something, whatever the number of
//! its seats.
//!
//! A statement that waits holds a snapshot, and a snapshot keeps `VACUUM` from removing rows that were
//! deleted after it was taken, in the whole database. So a follower waits in pieces ([`PIECE`]): each is a
//! statement and a transaction of its own, and the next one begins as soon as it has ended. The lock is
//! granted in the middle of a piece as fast as ever. If the session ends between two pieces, the next one
//! is granted at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tenure_core::StoreError;
use tokio::sync::watch;

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

/// How long one statement waits. `VACUUM` cannot remove rows that were deleted less than this ago, and a
/// wait that is given up occupies its connection for no longer than this.
pub(crate) const PIECE: Duration = Duration::from_secs(5);

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
            let is_unwatched = || is_unwatched(&bells, &by_session, session);
            let waited = tokio::select! {
                waited = wait(&dialer, link, session, is_unwatched) => waited,
                () = here.closed() => return,
            };
            let link = match waited {
                Ok(None) => return,
                Ok(Some(link)) => Some(link),
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
                keep(link, &spare).await;
            }
        });
        waits
    }
}

/// Whether no watcher waits for this session any more. If so, it is taken off the list: a watcher that
/// subscribes later begins a new wait.
fn is_unwatched(bells: &Bells, by_session: &Weak<Mutex<BySession>>, session: i64) -> bool {
    let Some(by_session) = by_session.upgrade() else { return true };
    let mut waiting = lock(&by_session);
    let is_unwatched = !bells.mind(session);
    if is_unwatched {
        waiting.remove(&session);
    }
    is_unwatched
}

/// Waits until a session has ended, and returns the connection that waited; `None` if `is_unwatched` said so
/// between two pieces.
async fn wait(
    dialer: &Dialer,
    link: Option<Link>,
    session: i64,
    is_unwatched: impl Fn() -> bool,
) -> Result<Option<Link>, StoreError> {
    let link = match link {
        Some(link) => link,
        None => {
            let link = dialer.dial(None).await?;
            link.batch(&hello::waiting_settings(link.server.version)).await?;
            link
        }
    };
    let sql = piece(session);
    loop {
        if link.text(&sql).await?.as_deref() == Some("true") {
            return Ok(Some(link));
        }
        if is_unwatched() {
            return Ok(None);
        }
    }
}

/// Waits for one piece, and answers whether the session has ended. The block catches the time-out of the
/// lock, so that the server does not log an error for every piece. The lock is given back at once.
fn piece(session: i64) -> String {
    let (high, low) = ((session >> 32) as i32, (session & 0x7fff_ffff) as i32);
    format!(
        "DO $$ BEGIN PERFORM pg_advisory_lock_shared({high}, {low}); \
         PERFORM pg_advisory_unlock_shared({high}, {low}), set_config('tenure.ended', 'true', false); \
         EXCEPTION WHEN lock_not_available THEN PERFORM set_config('tenure.ended', 'false', false); END $$; \
         SELECT current_setting('tenure.ended')"
    )
}

/// When one leader leaves, another is waited for a moment later. Opening a connection for that takes longer than
/// the whole hand-over, so the one at hand is kept for a while.
async fn keep(link: Link, spare: &Weak<Mutex<Option<Link>>>) {
    match spare.upgrade() {
        Some(spare) => *lock(&spare) = Some(link),
        None => return,
    }
    tokio::time::sleep(SPARE).await;
    if let Some(spare) = spare.upgrade() {
        lock(&spare).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
