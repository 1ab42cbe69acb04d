//! Who lives: a lock file for every process that holds a seat.
//!
//! # Why a free lock means that the leader is gone
//!
//! A process locks its file before any seat names its session, and keeps it open until its engine has
//! ended, with all work returned. The lock belongs to the open file, not to the process: a child that
//! inherits it keeps it, too. So the kernel frees the lock only when the last of them is gone, and at
//! that very moment. A file that is missing proves nothing: somebody may have removed it. A lock that
//! is held proves nothing either, beyond the lease: a lapsed seat may be taken.

use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tenure_core::StoreError;

use crate::place::Place;
use crate::watchers::Watchers;
use crate::{faults, side};

/// The lock files beside a database.
pub(crate) struct Liveness {
    place: Place,
    watchers: Arc<Watchers>,
    own: Mutex<Option<(Arc<str>, File)>>,
    deaths: Mutex<HashMap<String, Arc<Death>>>,
}

/// The end of a process, to be waited for.
#[derive(Default)]
pub(crate) struct Death {
    pub(crate) happened: AtomicBool,
}

impl Liveness {
    pub(crate) fn new(place: Place, watchers: Arc<Watchers>) -> Self {
        Self { place, watchers, own: Mutex::default(), deaths: Mutex::default() }
    }

    /// Our session, locked from the first call on.
    pub(crate) fn session(&self) -> Result<Arc<str>, StoreError> {
        let mut own = lock(&self.own);
        if let Some((id, _)) = &*own {
            return Ok(id.clone());
        }
        loop {
            let id: Arc<str> = format!("{:032x}", rand::random::<u128>()).into();
            let path = self.path(&id);
            let failed = |error| faults::of_file(&path, error);
            let file = side::create(&self.place, &path).map_err(failed)?;
            // Whoever clears away free locks may have found it between these two lines.
            if file.try_lock().is_ok() && side::is_at(&file, &path) {
                *own = Some((id.clone(), file));
                return Ok(id);
            }
        }
    }

    /// The lock, for a child to inherit.
    pub(crate) fn lifeline(&self) -> std::io::Result<Option<File>> {
        lock(&self.own).as_ref().map(|(_, file)| file.try_clone()).transpose()
    }

    pub(crate) fn is_own(&self, session: &str) -> bool {
        lock(&self.own).as_ref().is_some_and(|(id, _)| **id == *session)
    }

    /// Whether the process of this session is known to be gone.
    pub(crate) fn is_gone(&self, session: &str) -> bool {
        if self.is_own(session) {
            return false;
        }
        match File::open(self.path(session)) {
            Ok(file) => file.try_lock_shared().is_ok(),
            Err(_) => false,
        }
    }

    /// Waits for the end of a process, on a thread that sleeps in the kernel until then: one for each
    /// process that leads.
    pub(crate) fn watch(&self, session: &str) -> Arc<Death> {
        let mut deaths = lock(&self.deaths);
        deaths.retain(|_, death| !death.happened.load(Ordering::Acquire));
        if let Some(death) = deaths.get(session) {
            return death.clone();
        }
        let death = Arc::new(Death::default());
        let Ok(file) = File::open(self.path(session)) else { return death };
        let (watchers, told) = (self.watchers.clone(), death.clone());
        let thread = std::thread::Builder::new().name("tenure-deaths".to_owned()).stack_size(64 * 1024);
        let waits = thread.spawn(move || {
            loop {
                match file.lock_shared() {
                    Ok(()) => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return tracing::warn!(%error, "the end of a leader cannot be waited for"),
                }
            }
            // Let go first: whoever is told looks at the lock.
            drop(file);
            told.happened.store(true, Ordering::Release);
            watchers.tell_of(&told);
        });
        match waits {
            Ok(_) => drop(deaths.insert(session.to_owned(), death.clone())),
            Err(error) => tracing::warn!(%error, "the end of a leader cannot be waited for"),
        }
        death
    }

    /// Removes the lock file of a process that is gone. It stays locked until it is removed: a process
    /// that has just made it finds either the lock taken or the file no longer in its place.
    pub(crate) fn remove_if_gone(&self, session: &str) {
        let path = self.path(session);
        if !self.is_own(session)
            && let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(&path);
        }
    }

    /// The sessions that have a lock file here.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let Ok(files) = std::fs::read_dir(&self.place.side) else { return Vec::new() };
        let name = |file: std::fs::DirEntry| file.file_name().to_str()?.strip_suffix(".lock").map(str::to_owned);
        files.filter_map(|file| name(file.ok()?)).collect()
    }

    fn path(&self, session: &str) -> PathBuf {
        // It comes from the database, so it is not trusted to be a mere name.
        let name: String = session.chars().filter(char::is_ascii_hexdigit).collect();
        self.place.side.join(format!("{name}.lock"))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
