//! Bells: how one process tells another that a seat has changed.
//!
//! Each seat has two small files, one that is touched when its holder changes and one for requests on
//! its board. Whoever waits is told by the kernel (inotify), and sleeps until then.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::SeatName;
use tokio::sync::Notify;

/// What a bell is rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    Holder,
    Requests,
}

/// The bells beside a database.
pub(crate) struct Bells {
    side: PathBuf,
    ears: std::sync::OnceLock<Option<ears::Ears>>,
}

impl Bells {
    /// Whether this system can tell when one is rung.
    pub(crate) const CAN_LISTEN: bool = ears::CAN_LISTEN;

    pub(crate) fn new(side: PathBuf) -> Self {
        Self { side, ears: std::sync::OnceLock::new() }
    }

    /// Tells whoever listens.
    pub(crate) fn ring(&self, seat: &SeatName, bell: Bell) {
        let path = self.path(seat, bell);
        // Closing a file that was open for writing is what the others hear.
        if let Err(error) = File::options().create(true).append(true).open(&path) {
            tracing::warn!(%seat, %error, "nobody could be told that the seat has changed");
        }
    }

    /// Told whenever this bell is rung from now on; `None` if that cannot be heard.
    pub(crate) fn listen(&self, seat: &SeatName, bell: Bell) -> Option<Arc<Notify>> {
        let ears = self.ears.get_or_init(|| match ears::Ears::new() {
            Ok(ears) => Some(ears),
            Err(error) => {
                tracing::warn!(%error, "changes cannot be listened for: looking every so often");
                None
            }
        });
        let path = self.path(seat, bell);
        match ears.as_ref()?.listen(&path) {
            Ok(told) => Some(told),
            Err(error) => {
                tracing::warn!(%seat, %error, "changes cannot be listened for: looking every so often");
                None
            }
        }
    }

    fn path(&self, seat: &SeatName, bell: Bell) -> PathBuf {
        // Names of seats can be anything, names of files cannot. Two seats with one bell would only
        // look once too often.
        let hash = seat
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let kind = match bell {
            Bell::Holder => "bell",
            Bell::Requests => "mail",
        };
        self.side.join(format!("{hash:016x}.{kind}"))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod ears {
    use std::collections::HashMap;
    use std::fs::File;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex, MutexGuard};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use tokio::sync::Notify;

    pub(super) const CAN_LISTEN: bool = true;

    /// One thread that hears all bells this process listens for.
    pub(super) struct Ears {
        hears: Arc<Hears>,
        /// Closed with this, which ends the thread.
        _open: OwnedFd,
    }

    struct Hears {
        inotify: OwnedFd,
        listeners: Mutex<Listeners>,
    }

    #[derive(Default)]
    struct Listeners {
        by_path: HashMap<PathBuf, i32>,
        by_watch: HashMap<i32, (PathBuf, Arc<Notify>)>,
    }

    impl Ears {
        pub(super) fn new() -> io::Result<Self> {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let (closed, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let hears = Arc::new(Hears { inotify, listeners: Mutex::default() });
            let thread_hears = hears.clone();
            std::thread::Builder::new()
                .name("tenure-bells".to_owned())
                .stack_size(64 * 1024)
                .spawn(move || thread_hears.run(&closed))?;
            Ok(Self { hears, _open: open })
        }

        pub(super) fn listen(&self, path: &Path) -> io::Result<Arc<Notify>> {
            let mut listeners = self.hears.lock();
            if let Some((_, told)) = listeners.by_path.get(path).and_then(|watch| listeners.by_watch.get(watch)) {
                return Ok(told.clone());
            }
            let add = || inotify::add_watch(&self.hears.inotify, path, WatchFlags::CLOSE_WRITE);
            let watch = match add() {
                Err(rustix::io::Errno::NOENT) => {
                    // Only then: making the file rings the bell, and whoever listens would look in vain.
                    File::options().create(true).append(true).open(path)?;
                    add()?
                }
                watch => watch?,
            };
            let told = Arc::new(Notify::new());
            listeners.by_path.insert(path.to_owned(), watch);
            listeners.by_watch.insert(watch, (path.to_owned(), told.clone()));
            Ok(told)
        }
    }

    impl Hears {
        fn run(&self, closed: &OwnedFd) {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            loop {
                let mut fds = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(closed, PollFlags::IN)];
                match poll(&mut fds, None) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(error) => return tracing::warn!(%error, "changes are no longer listened for"),
                }
                if !fds[1].revents().is_empty() {
                    return;
                }
                let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
                while let Ok(event) = reader.next() {
                    self.on_event(event.wd(), event.events());
                }
            }
        }

        fn on_event(&self, watch: i32, events: ReadFlags) {
            let mut listeners = self.lock();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                // Some were missed: everybody looks.
                listeners.by_watch.values().for_each(|(_, told)| told.notify_waiters());
            } else if let Some((path, told)) = listeners.by_watch.get(&watch) {
                told.notify_waiters();
                if events.contains(ReadFlags::IGNORED) {
                    // Somebody has removed the file. Whoever listens next makes it again.
                    let path = path.clone();
                    listeners.by_path.remove(&path);
                    listeners.by_watch.remove(&watch);
                }
            }
        }

        fn lock(&self) -> MutexGuard<'_, Listeners> {
            self.listeners.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod ears {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use tokio::sync::Notify;

    pub(super) const CAN_LISTEN: bool = false;

    pub(super) struct Ears;

    impl Ears {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn listen(&self, _: &Path) -> io::Result<Arc<Notify>> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_to_listen_does_not_ring() {
        let side = std::env::temp_dir().join(format!("tenure-bells-{}", std::process::id()));
        std::fs::create_dir_all(&side).unwrap();
        let seat = SeatName::new("jobs").unwrap();
        let (one, other) = (Bells::new(side.clone()), Bells::new(side.clone()));
        let told = one.listen(&seat, Bell::Holder).unwrap();
        let mut heard = Box::pin(told.notified_owned());
        heard.as_mut().enable();
        other.listen(&seat, Bell::Holder).unwrap();
        // Events come in order: once another bell of this folder is heard, so would be this one.
        let probe = one.listen(&seat, Bell::Requests).unwrap();
        let mut probed = Box::pin(probe.notified_owned());
        probed.as_mut().enable();
        one.ring(&seat, Bell::Requests);
        probed.await;
        assert!(futures_util::FutureExt::now_or_never(heard).is_none());
        std::fs::remove_dir_all(&side).unwrap();
    }
}
