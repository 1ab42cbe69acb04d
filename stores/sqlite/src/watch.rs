//! Receives notifications from other processes, and watches for the end of processes that lead. Only on Linux.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Once;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tenure_core::{Interest, InterestChange, Life, News, PushDetail, Scope, StoreError};
use tokio::io::unix::AsyncFd;

use crate::notifier::{self, About, hash};
use crate::place::Place;
use crate::seats;
use crate::worker::Context;

/// Reports changes of the seats of interest to `news`. Returns when changes may have been missed.
pub(crate) async fn watch(context: &Context, interest: &Interest, news: &News) -> StoreError {
    let failed = |error| StoreError::refused("the watch for changes of seats has failed").because(error);
    let inbox = match Inbox::new(&context.place, context.sender) {
        Ok(inbox) => inbox,
        Err(error) => return cannot_listen(error),
    };
    news.listening(Scope::All);
    let (mut wanted, mut notifications) = (BTreeMap::new(), Vec::new());
    loop {
        tokio::select! {
            biased;
            // Interest comes first, so that a seat is known before its notification is processed.
            deltas = interest.next() => for InterestChange { seat, wanted: now } in deltas {
                let Some(now) = now else {
                    wanted.remove(&hash(&seat));
                    continue;
                };
                // A holder that is already known to be gone needs no wait.
                let held = now.seen.and_then(|seen| seen.seat).filter(|seat| seat.life != Life::Over);
                if let Some(session) = held.and_then(|seat| seats::session_of(&seat.version)) {
                    context.process_locks.report_when_over(session, news);
                }
                wanted.insert(hash(&seat), seat);
            },
            () = async {}, if !notifications.is_empty() => for Notification { seat, about } in notifications.drain(..) {
                match (wanted.get(&seat), about) {
                    (Some(seat), About::Holder) => news.holder(seat, PushDetail::Nothing),
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
    use tenure_core::SeatName;

    use super::*;
    use crate::notifier::Notifier;
    use crate::{SqliteOptions, side};

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
