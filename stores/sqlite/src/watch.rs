//! Receives notifications from other processes, and watches for the end of processes that lead. Only on Linux.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Once;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tenure_core::{Interest, InterestChange, Life, News, PushDetail, Scope, SeatName, StoreError};
use tokio::io::unix::AsyncFd;

use crate::notifier::{self, About, hash};
use crate::place::Place;
use crate::seats;
use crate::worker::Context;

/// How long a watch waits before it listens, unless another process holds a seat of interest.
///
/// The kernel needs about 13 ms to close an inotify descriptor, and the process cannot exit before. A process that wins
/// its seat at once, and ends soon, opens none. It misses nothing: the engine reads the seats again when the watch begins
/// to listen.
const LISTEN_AFTER: Duration = Duration::from_millis(100);

/// Reports changes of the seats of interest to `news`. Returns when changes may have been missed.
pub(crate) async fn watch(context: &Context, interest: &Interest, news: &News) -> StoreError {
    let failed = |error| StoreError::refused("the watch for changes of seats has failed").because(error);
    let (mut wanted, mut notifications) = (Wanted::default(), Vec::new());
    let is_held = async { while !wanted.update(interest.next().await, context, news) {} };
    // The end of either is the time to listen.
    let _ = tokio::time::timeout(LISTEN_AFTER, is_held).await;
    let inbox = match Inbox::new(&context.place, context.sender) {
        Ok(inbox) => inbox,
        Err(error) => return cannot_listen(error),
    };
    news.listening(Scope::All);
    loop {
        tokio::select! {
            biased;
            // Interest comes first, so that a seat is known before its notification is processed.
            deltas = interest.next() => drop(wanted.update(deltas, context, news)),
            () = async {}, if !notifications.is_empty() => for Notification { seat, about } in notifications.drain(..) {
                match (wanted.0.get(&seat), about) {
                    (Some(seat), About::Holder | About::Won) => news.holder(seat, PushDetail::Nothing),
                    (Some(seat), About::Requests) => news.request(seat),
                    (None, _) => {}
                }
            },
            received = inbox.receive() => match received {
                Ok(received) => notifications = received,
                Err(error) => return failed(error),
            },
        }
    }
}

/// The seats of interest, by the hash that represents them in notifications.
#[derive(Default)]
struct Wanted(BTreeMap<u128, SeatName>);

impl Wanted {
    /// Applies changes of the interest, and waits for the end of processes that hold these seats. Returns whether there
    /// are any.
    fn update(&mut self, deltas: Vec<InterestChange>, context: &Context, news: &News) -> bool {
        let mut is_held = false;
        for InterestChange { seat, wanted } in deltas {
            let Some(wanted) = wanted else {
                self.0.remove(&hash(&seat));
                continue;
            };
            // A holder that is already known to be gone needs no wait.
            let held = wanted.seen.and_then(|seen| seen.seat).filter(|seat| seat.life != Life::Over);
            let session = held.and_then(|seat| seats::session_of(&seat.version));
            if let Some(session) = session.filter(|session| context.process_locks.own() != Some(session.as_str())) {
                context.process_locks.report_when_over(session, news);
                is_held = true;
            }
            self.0.insert(hash(&seat), seat);
        }
        is_held
    }
}

/// Logs a warning once per process, because the engine retries the watch repeatedly.
fn cannot_listen(error: io::Error) -> StoreError {
    static WARNED: Once = Once::new();
    let message = "cannot watch for changes of seats, so candidates look for them every third of a lease; if the limit is \
                reached, raise fs.inotify.max_user_instances or fs.inotify.max_user_watches";
    WARNED.call_once(|| tracing::warn!(%error, "{message}"));
    StoreError::refused(message).because(error)
}

/// A change that another process has reported.
#[derive(Debug, PartialEq, Eq)]
struct Notification {
    seat: u128,
    about: About,
}

/// Receives the notifications of other processes about all seats.
struct Inbox {
    inotify: AsyncFd<OwnedFd>,
    own: u64,
}

impl Inbox {
    /// Starts to listen. The directory must exist.
    fn new(place: &Place, own: u64) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let sent = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        // No process sends notifications in a directory that is no longer at its path.
        let moved = WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, &place.side, sent | moved)?;
        #[allow(deprecated, reason = "`OwnedFd` keeps it open, and what is to be used instead is unsafe code")]
        let inotify = AsyncFd::new(inotify)?;
        Ok(Self { inotify, own })
    }

    /// Waits for notifications, and returns all that have arrived.
    ///
    /// # Errors
    /// If notifications were lost, or will be.
    async fn receive(&self) -> io::Result<Vec<Notification>> {
        let mut ready = self.inotify.readable().await?;
        let notifications = self.take()?;
        ready.clear_ready();
        Ok(notifications)
    }

    /// Reads all notifications that have arrived.
    fn take(&self) -> io::Result<Vec<Notification>> {
        let (mut notifications, mut buffer) = (Vec::new(), [MaybeUninit::uninit(); 4096]);
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) => {
                    notifications.extend(event.file_name().and_then(|name| self.parse(name.to_str().ok()?)));
                }
                // The queue overflowed, or the directory is gone.
                Ok(event) => return Err(io::Error::other(format!("inotify reported {:?}", event.events()))),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(notifications),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Parses the name of a file, if it is a notification from another process.
    fn parse(&self, name: &str) -> Option<Notification> {
        let mut parts = name.strip_suffix(notifier::SUFFIX)?.split('.');
        let seat = u128::from_str_radix(parts.next()?, 16).ok()?;
        let about = match parts.next()? {
            "holder" => About::Holder,
            "requests" => About::Requests,
            _ => return None,
        };
        (u64::from_str_radix(parts.next()?, 16).ok()? != self.own).then_some(Notification { seat, about })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use tenure_core::{Record, Seat, SeatInterest, Seen, Token, Version};
    use tenure_testkit::servers::Folder;

    use super::*;
    use crate::notifier::Notifier;
    use crate::process_locks::ProcessLocks;
    use crate::{SqliteOptions, side};

    #[test]
    fn only_another_process_that_holds_a_seat_makes_a_watch_listen_at_once() {
        let folder = Folder::new("watch");
        let place = Place::new(SqliteOptions { path: Some(folder.path().join("jobs.db")) });
        side::create_folder(&place).unwrap();
        let process_locks = ProcessLocks::new(place.clone());
        process_locks.begin().unwrap();
        let own = format!("nonce.1.{}", process_locks.own().unwrap());
        let (clock, news) = (OnceLock::new(), OnceLock::new());
        let context = Context { place, process_locks, read_only: false, sender: 1, clock, news };
        let seen = |version: &str, life| {
            let (record, version) = (Record::new(None, Token::ZERO, Duration::ZERO), Version::new(version));
            Some(Seen { seat: Some(Seat { record, version, life }), requests: false })
        };
        let is_held = |seen| {
            let seat = SeatName::new("jobs").unwrap();
            let change = InterestChange { seat, wanted: Some(SeatInterest { lease: Duration::ZERO, seen }) };
            Wanted::default().update(vec![change], &context, &News::unheard())
        };
        assert!(is_held(seen("nonce.1.another", Life::Held)));
        assert!(!is_held(seen("nonce.1.another", Life::Over)));
        assert!(!is_held(seen(&own, Life::Held)));
        // It is vacant, or was not read yet.
        assert!(!is_held(seen("nonce.1", Life::Held)) && !is_held(None));
    }

    #[tokio::test]
    async fn a_process_that_opens_the_database_and_starts_to_listen_notifies_no_other() {
        let folder = Folder::new("arrival");
        let place = Place::new(SqliteOptions { path: Some(folder.path().join("jobs.db")) });
        side::create_folder(&place).unwrap();
        let inbox = Inbox::new(&place, 1).unwrap();
        let process_locks = ProcessLocks::new(place.clone());
        process_locks.begin().unwrap();
        let _other = Inbox::new(&place, 2).unwrap();
        // The kernel reports events in their order, so an earlier notification would arrive together with this one.
        let jobs = SeatName::new("jobs").unwrap();
        Notifier::new(place, 3).notify(&jobs, About::Holder);
        let received = inbox.receive().await.unwrap();
        assert_eq!(received, [Notification { seat: hash(&jobs), about: About::Holder }]);
    }

    #[tokio::test]
    async fn a_process_receives_the_notifications_of_others_and_not_its_own() {
        let path = std::env::temp_dir().join(format!("tenure-notifications-{}", std::process::id()));
        let place = Place::new(SqliteOptions { path: Some(path) });
        side::create_folder(&place).unwrap();
        let (mut one, mut other) = (Notifier::new(place.clone(), 1), Notifier::new(place.clone(), 2));
        let inbox = Inbox::new(&place, 1).unwrap();
        let [jobs, mail] = ["jobs", "mail"].map(|name| SeatName::new(name).unwrap());
        other.notify(&jobs, About::Holder);
        one.notify(&jobs, About::Holder);
        one.notify(&jobs, About::Requests);
        other.notify(&jobs, About::Holder);
        other.notify(&jobs, About::Requests);
        // A process that opens the database removes it.
        std::fs::remove_file(&other.file).unwrap();
        other.notify(&mail, About::Holder);
        let received: Vec<_> = inbox
            .receive()
            .await
            .unwrap()
            .into_iter()
            .map(|notification| (notification.seat, notification.about))
            .collect();
        let [jobs, mail] = [hash(&jobs), hash(&mail)];
        let sent = [(jobs, About::Holder), (jobs, About::Holder), (jobs, About::Requests), (mail, About::Holder)];
        assert_eq!(received, sent);
        // One file per process, however many notifications it has sent.
        assert_eq!(std::fs::read_dir(&place.side).unwrap().count(), 2);
        std::fs::remove_dir_all(&place.side).unwrap();
        assert!(inbox.receive().await.is_err(), "the loss of the directory must be reported");
    }
}
