//! Who lives: a lock file for every process that holds a seat.
//!
//! # Why a free lock means that the leader is gone
//!
//! A process locks its file before any seat names its session, and keeps it open until its engine has
//! ended, with all work returned. The lock belongs to the open file, not to the process: a child that
//! inherits it keeps it, too. So the kernel frees the lock only when the last of them is gone, and at
//! that very moment. A file that is missing proves nothing: somebody may have removed it. A lock that
//! is held proves nothing either, beyond the lease: a lapsed seat may be taken.

#![cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "the end of others is waited for only where there is a watch")
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tenure_core::{News, SessionId, StoreError};

use crate::place::Place;
use crate::{errors, side};

/// The lock files beside a database.
pub(crate) struct Liveness {
    place: Place,
    own: OnceLock<(SessionId, File)>,
    awaited: Arc<Mutex<BTreeSet<SessionId>>>,
}

impl Liveness {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, own: OnceLock::new(), awaited: Arc::default() }
    }

    /// Our session, once it has begun.
    pub(crate) fn own(&self) -> Option<&str> {
        self.own.get().map(|(session, _)| session.as_str())
    }

    /// Begins our session, if it has not begun yet: locks its file.
    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        while self.own.get().is_none() {
            let session = format!("{:032x}", rand::random::<u128>());
            let path = self.path(&session);
            let file = side::create(&self.place, &path).map_err(|error| errors::of_file(&path, error))?;
            // A process that clears away free locks may have found it between these two lines.
            if file.try_lock().is_ok() && side::is_at(&file, &path) {
                let _ = self.own.set((SessionId::new(session), file));
            }
        }
        Ok(())
    }

    /// The lock, for a child to inherit.
    pub(crate) fn lifeline(&self) -> std::io::Result<Option<File>> {
        self.own.get().map(|(_, file)| file.try_clone()).transpose()
    }

    /// Whether the process of this session is known to be gone.
    pub(crate) fn is_gone(&self, session: &str) -> bool {
        let is_free = |file: File| file.try_lock_shared().is_ok();
        self.own() != Some(session) && File::open(self.path(session)).is_ok_and(is_free)
    }

    /// Tells when the process of another session is gone. Waits for that on a thread that sleeps in the kernel until
    /// then: one for each process that leads, however often this is asked for.
    pub(crate) fn tell_when_over(&self, session: SessionId, news: &News) {
        let mut awaited = lock(&self.awaited);
        if self.own() == Some(session.as_str()) || awaited.contains(&session) {
            return;
        }
        // The thread has no part in our own lock, which is freed when the store is dropped.
        let (told, news, path) = (self.awaited.clone(), news.clone(), self.path(session.as_str()));
        let of = session.clone();
        let wait = move || {
            let over = wait_for(path);
            // First: once it was told, a follower may have a reason to wait for it again.
            lock(&told).remove(&of);
            if over {
                news.session_over(&of);
            }
        };
        match std::thread::Builder::new().name("tenure-deaths".to_owned()).stack_size(64 * 1024).spawn(wait) {
            Ok(_) => drop(awaited.insert(session)),
            Err(error) => tracing::warn!(%error, "the end of a leader cannot be waited for"),
        }
    }

    /// Removes the lock file of a process that is gone. It stays locked until it is removed: a process
    /// that has just made it finds either the lock taken or the file no longer in its place.
    pub(crate) fn remove_if_gone(&self, session: &str) {
        let path = self.path(session);
        if self.own() != Some(session)
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(&path);
        }
    }

    fn path(&self, session: &str) -> PathBuf {
        // It comes from the database, so it is not trusted to be a mere name.
        let name: String = session.chars().filter(char::is_ascii_hexdigit).collect();
        self.place.side.join(format!("{name}.lock"))
    }
}

/// Returns once the lock on this file is free; `false` if that cannot be waited for. A file that is missing was removed
/// by somebody, and says nothing.
fn wait_for(path: PathBuf) -> bool {
    let Ok(file) = File::open(path) else { return false };
    loop {
        match file.lock_shared() {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "the end of a leader cannot be waited for");
                return false;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
