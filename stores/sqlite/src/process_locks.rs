//! A lock file for every process that holds a seat, which shows whether the process is alive.
//!
//! # Why a free lock means that the leader is gone
//!
//! A process locks its file before any seat names its session. It keeps the file open until its engine has
//! ended and all work has returned. The lock belongs to the open file, not to the process, so a child that
//! inherits the file keeps the lock as well. Hence the kernel frees the lock when the last of these processes
//! is gone, and not earlier. A missing lock file proves nothing, because anyone may have removed it. A lock
//! that is held proves nothing beyond the lease: a seat whose lease has passed may be taken.

#![cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(dead_code, reason = "only a watch waits for the end of other processes, and this platform has none")
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tenure_core::{News, SessionId, StoreError};

use crate::place::Place;
use crate::{errors, side};

/// The lock files of the processes that share a database.
pub(crate) struct ProcessLocks {
    place: Place,
    own: OnceLock<(SessionId, File)>,
    awaited: Arc<Mutex<BTreeSet<SessionId>>>,
}

impl ProcessLocks {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, own: OnceLock::new(), awaited: Arc::default() }
    }

    /// Returns the session of this process, once it has begun.
    pub(crate) fn own(&self) -> Option<&str> {
        self.own.get().map(|(session, _)| session.as_str())
    }

    /// Begins the session of this process, if it has not begun yet, by locking its file.
    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        while self.own.get().is_none() {
            let session = format!("{:032x}", rand::random::<u128>());
            let path = self.path(&session);
            let file = side::create(&self.place, &path).map_err(|error| errors::of_file(&path, error))?;
            // A process that removes free locks may have found the file before this process locked it.
            if file.try_lock().is_ok() && side::is_at(&file, &path) {
                let _ = self.own.set((SessionId::new(session), file));
            }
        }
        Ok(())
    }

    /// Returns a duplicate of the lock, for a child to inherit.
    pub(crate) fn lifeline(&self) -> std::io::Result<Option<File>> {
        self.own.get().map(|(_, file)| file.try_clone()).transpose()
    }

    /// Returns whether the process of this session is known to be gone.
    pub(crate) fn is_gone(&self, session: &str) -> bool {
        let is_free = |file: File| file.try_lock_shared().is_ok();
        self.own() != Some(session) && File::open(self.path(session)).is_ok_and(is_free)
    }

    /// Reports the end of another process's session to `news`. A thread waits for it in the kernel: one for
    /// each process that leads, however often this is called.
    pub(crate) fn report_when_over(&self, session: SessionId, news: &News) {
        let mut awaited = lock(&self.awaited);
        if awaited.contains(&session) {
            return;
        }
        // The thread does not share this process's own lock, which must be freed when the store is dropped.
        let (awaiting, news, path) = (self.awaited.clone(), news.clone(), self.path(session.as_str()));
        let of = session.clone();
        let wait = move || {
            let over = wait_for(path);
            // Removed first: after the notification, a follower may have a reason to wait for the session
            // again.
            lock(&awaiting).remove(&of);
            if over {
                news.session_over(&of);
            }
        };
        match std::thread::Builder::new().name("tenure-deaths".to_owned()).stack_size(64 * 1024).spawn(wait) {
            Ok(_) => drop(awaited.insert(session)),
            Err(error) => tracing::warn!(%error, "cannot wait for the end of the leader's process"),
        }
    }

    /// Removes the lock file of a process that is gone. The file stays locked until it is removed, so a process
    /// that has just created it finds either the lock taken or the file no longer in place.
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
        // The session comes from the database, so it must not be trusted to be a plain file name.
        let name: String = session.chars().filter(char::is_ascii_hexdigit).collect();
        self.place.side.join(format!("{name}.lock"))
    }
}

/// Waits until the lock on this file is free. Returns `false` if it cannot wait: a missing file proves nothing.
fn wait_for(path: PathBuf) -> bool {
    let Ok(file) = File::open(path) else { return false };
    loop {
        match file.lock_shared() {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                // A subscriber that panics must not end this thread before it has removed the session.
                tenure_core::log::emit(tracing::Level::WARN, move || {
                    tracing::warn!(%error, "cannot wait for the end of the leader's process");
                });
                return false;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
