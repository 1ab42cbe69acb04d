//! Bells: how one process tells another that a seat has changed.
//!
//! Each seat has two small files, one that is touched when its holder changes and one for requests on
//! its board. Whoever waits is told by the kernel (inotify), and sleeps until then.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, OnceLock};

use tenure_core::SeatName;

use crate::place::Place;
use crate::side;
use crate::watchers::Watchers;

/// What a bell is rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bell {
    Holder,
    Requests,
}

/// A bell of a seat. Names of seats can be anything, names of files cannot, so a hash stands for it: two seats
/// with one bell would only look once too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) seat: u64,
    pub(crate) bell: Bell,
}

impl Name {
    pub(crate) fn of(seat: &SeatName, bell: Bell) -> Self {
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self { seat: seat.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, hash), bell }
    }

    fn at(self, side: &Path) -> PathBuf {
        let kind = match self.bell {
            Bell::Holder => "bell",
            Bell::Requests => "mail",
        };
        side.join(format!("{:016x}.{kind}", self.seat))
    }
}

/// The bells beside a database.
pub(crate) struct Bells {
    place: Place,
    watchers: Arc<Watchers>,
    ears: OnceLock<Option<ears::Ears>>,
    told: Once,
}

impl Bells {
    /// Whether this system can tell when one is rung.
    pub(crate) const CAN_LISTEN: bool = ears::CAN_LISTEN;

    pub(crate) fn new(place: Place, watchers: Arc<Watchers>) -> Self {
        Self { place, watchers, ears: OnceLock::new(), told: Once::new() }
    }

    /// Tells whoever listens.
    pub(crate) fn ring(&self, seat: &SeatName, bell: Bell) {
        let path = Name::of(seat, bell).at(&self.place.side);
        // Closing a file that was open for writing is what the others hear.
        if let Err(error) = side::open(&self.place, &path) {
            let seat = seat.clone();
            tenure_core::log::emit(tracing::Level::WARN, move || {
                tracing::warn!(%seat, %error, "watchers could not be notified that the seat has changed");
            });
        }
    }

    /// Has those who watch a seat told from now on; returns whether its bells can be heard.
    pub(crate) fn listen(&self, seat: &SeatName, requests: bool) -> bool {
        let ears = self.ears.get_or_init(|| match ears::Ears::new(self.watchers.clone()) {
            Ok(ears) => Some(ears),
            Err(error) => {
                tracing::warn!(%error, "changes cannot be listened for: looking every so often");
                None
            }
        });
        let Some(ears) = ears else { return false };
        let bells = [Some(Bell::Holder), requests.then_some(Bell::Requests)];
        bells.into_iter().flatten().all(|bell| match ears.listen(Name::of(seat, bell), &self.place) {
            Ok(()) => true,
            Err(error) => {
                // Once: it is so for all that come after.
                self.told.call_once(|| {
                    tracing::warn!(%seat, %error, "changes cannot be listened for (see fs.inotify.max_user_watches): looking every so often");
                });
                false
            }
        })
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod ears {
    use std::collections::HashMap;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::sync::{Arc, Mutex, MutexGuard};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

    use super::Name;
    use crate::place::Place;
    use crate::side;
    use crate::watchers::Watchers;

    pub(super) const CAN_LISTEN: bool = true;

    /// One thread that hears all bells this process listens for.
    pub(super) struct Ears {
        hears: Arc<Hears>,
        /// Closed with this, which ends the thread.
        _open: OwnedFd,
    }

    struct Hears {
        inotify: OwnedFd,
        watchers: Arc<Watchers>,
        bells: Mutex<Known>,
    }

    /// The bells that are listened to, and as what the kernel knows them.
    #[derive(Default)]
    struct Known {
        by_name: HashMap<Name, i32>,
        by_watch: HashMap<i32, Name>,
    }

    impl Ears {
        pub(super) fn new(watchers: Arc<Watchers>) -> io::Result<Self> {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let (closed, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let hears = Arc::new(Hears { inotify, watchers, bells: Mutex::default() });
            let thread_hears = hears.clone();
            std::thread::Builder::new()
                .name("tenure-bells".to_owned())
                .stack_size(64 * 1024)
                .spawn(move || thread_hears.run(&closed))?;
            Ok(Self { hears, _open: open })
        }

        pub(super) fn listen(&self, name: Name, place: &Place) -> io::Result<()> {
            let mut known = self.hears.lock();
            if known.by_name.contains_key(&name) {
                return Ok(());
            }
            let path = name.at(&place.side);
            let add = || inotify::add_watch(&self.hears.inotify, &path, WatchFlags::CLOSE_WRITE);
            let watch = match add() {
                Err(rustix::io::Errno::NOENT) => {
                    // Only then: making the file rings the bell, and whoever listens would look in vain.
                    side::open(place, &path)?;
                    add()?
                }
                watch => watch?,
            };
            known.by_name.insert(name, watch);
            known.by_watch.insert(watch, name);
            Ok(())
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
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                // Some were missed: everybody looks.
                return self.watchers.tell_all();
            }
            let mut known = self.lock();
            let Some(name) = known.by_watch.get(&watch).copied() else { return };
            if events.contains(ReadFlags::IGNORED) {
                // Somebody has removed the file. Whoever listens next makes it again.
                known.by_name.remove(&name);
                known.by_watch.remove(&watch);
            }
            drop(known);
            self.watchers.tell(name);
        }

        fn lock(&self) -> MutexGuard<'_, Known> {
            self.bells.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod ears {
    use std::io;
    use std::sync::Arc;

    use super::Name;
    use crate::place::Place;
    use crate::watchers::Watchers;

    pub(super) const CAN_LISTEN: bool = false;

    pub(super) struct Ears;

    impl Ears {
        pub(super) fn new(_: Arc<Watchers>) -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn listen(&self, _: Name, _: &Place) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::SqliteOptions;

    #[tokio::test]
    async fn who_comes_to_listen_does_not_ring() {
        let path = std::env::temp_dir().join(format!("tenure-bells-{}", std::process::id()));
        let place = Place::new(SqliteOptions { path: Some(path) });
        side::create_folder(&place).unwrap();
        let seat = SeatName::new("jobs").unwrap();
        let watchers: [Arc<Watchers>; 2] = Default::default();
        let [one, other] = watchers.clone().map(|watchers| Bells::new(place.clone(), watchers));
        let (holder, requests) = (watchers[0].watch(&seat, false), watchers[0].watch(&seat, true));
        assert!(one.listen(&seat, true));
        assert!(other.listen(&seat, true));
        // Events come in order: once a bell of this folder is heard, so would have been the one before.
        one.ring(&seat, Bell::Requests);
        requests.told().await;
        assert!(holder.told().now_or_never().is_none());
        assert!(requests.told().now_or_never().is_none());
        std::fs::remove_dir_all(&place.side).unwrap();
    }
}
