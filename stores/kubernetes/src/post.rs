//! What was heard of one seat, and what of it is news to whom.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::{Life, Moment, Seat, SeatName, Seen, Version};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::List;
use crate::lease::Lease;
use crate::names;

/// Where the news of one seat arrives.
pub(crate) struct Post {
    seat: SeatName,
    object: String,
    pub(crate) heard: watch::Sender<Heard>,
    /// The revision at which there was no seat, when it was last read.
    absent_at: AtomicU64,
    /// Whether the seat was last read without our mark: others have made it, and it is not heard of.
    unmarked: AtomicBool,
    used: Mutex<Instant>,
    /// The lease of the seat, as whoever waits for news last knew it.
    lease: Mutex<Duration>,
}

/// What was heard of one seat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// Whether somebody listens.
    pub(crate) served: bool,
    /// As of which revision.
    revision: u64,
    seat: Option<Seat>,
    /// The objects that are requests on its board.
    requests: BTreeSet<String>,
    /// Those that we have removed ourselves, and have not yet heard of.
    removed: BTreeSet<String>,
}

impl Post {
    pub(crate) fn new(seat: &SeatName) -> Self {
        Self {
            seat: seat.clone(),
            object: names::object_of(seat),
            heard: watch::Sender::default(),
            absent_at: AtomicU64::new(0),
            unmarked: AtomicBool::new(false),
            used: Mutex::new(Instant::now()),
            lease: Mutex::new(Duration::from_secs(1)),
        }
    }

    /// When somebody last asked for it.
    pub(crate) fn used(&self) -> MutexGuard<'_, Instant> {
        self.used.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The lease of the seat.
    pub(crate) fn lease(&self) -> MutexGuard<'_, Duration> {
        self.lease.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What was just read of the seat.
    pub(crate) fn looked(&self, object: Option<&Lease>, revision: u64) {
        if object.is_none() {
            self.absent_at.store(revision, Ordering::Relaxed);
        }
        let unmarked = object.is_some_and(|object| object.label(names::SEAT).is_none());
        self.unmarked.store(unmarked, Ordering::Relaxed);
    }

    /// Whether changes of the seat are heard of at all.
    pub(crate) fn is_marked(&self) -> bool {
        !self.unmarked.load(Ordering::Relaxed)
    }

    /// What this says to somebody who has seen the seat as it was at some revision.
    pub(crate) fn is_news(&self, heard: &Heard, seen: &Seen, seen_at: Option<u64>) -> bool {
        let known = seen_at.unwrap_or_else(|| self.absent_at.load(Ordering::Relaxed));
        heard.served
            && ((heard.revision > known && seen.differs_from(heard.seat.as_ref()))
                || (seen.requests && !heard.requests.is_empty()))
    }

    /// When this very write was heard of.
    pub(crate) fn received(&self, revision: u64) -> Option<Moment> {
        let heard = self.heard.borrow();
        match heard.seat.as_ref()?.life {
            Life::Received { at } if heard.revision == revision => Some(at),
            _ => None,
        }
    }

    /// We have put a request on the board, or taken it off, and need not hear of that.
    pub(crate) fn request(&self, object: &str, is_there: bool) {
        self.heard.send_modify(|heard| {
            if is_there {
                heard.removed.remove(object);
            } else if heard.requests.remove(object) {
                heard.removed.insert(object.to_owned());
            }
        });
    }

    /// The cluster's data has gone backwards: what was heard no longer counts.
    pub(crate) fn forget(&self) {
        self.absent_at.store(0, Ordering::Relaxed);
        self.heard.send_modify(|heard| *heard = Heard { served: heard.served, ..Heard::default() });
    }

    /// Nobody listens any more.
    pub(crate) fn unserved(&self) {
        self.heard.send_if_modified(|heard| std::mem::take(&mut heard.served));
    }

    fn seat(&self, object: &Lease, at: Moment) -> Option<Seat> {
        // What cannot be read is news, and whoever looks is told why.
        let record = object.record(&self.seat).ok()?;
        Some(Seat { record, version: Version::new(""), life: Life::Received { at } })
    }

    pub(crate) fn take_list(&self, list: &List, at: Moment) {
        let mark = names::mark_of(&self.seat);
        let mine = || list.items.iter().filter(|object| object.label(names::SEAT) == Some(mark.as_str()));
        let requests = || mine().filter(|object| is_request(object)).map(|object| object.metadata.name.clone());
        let seat = mine().find(|object| object.metadata.name == self.object);
        self.heard.send_modify(|heard| {
            heard.served = true;
            let revision = seat.and_then(|seat| seat.revision().ok()).unwrap_or(list.revision);
            // What was there before keeps the moment at which it was first heard of.
            if revision > heard.revision {
                heard.revision = revision;
                heard.seat = seat.and_then(|seat| self.seat(seat, at));
            }
            let listed: BTreeSet<_> = requests().collect();
            heard.removed.retain(|object| listed.contains(object));
            heard.requests = listed.difference(&heard.removed).cloned().collect();
        });
    }

    pub(crate) fn take_event(&self, object: &Lease, is_there: bool, revision: u64, at: Moment) {
        let name = &object.metadata.name;
        self.heard.send_modify(|heard| {
            if is_request(object) {
                match is_there {
                    true if !heard.removed.contains(name) => drop(heard.requests.insert(name.clone())),
                    true => {}
                    false => {
                        heard.requests.remove(name);
                        heard.removed.remove(name);
                    }
                }
            } else if *name == self.object && revision > heard.revision {
                heard.revision = revision;
                heard.seat = if is_there { self.seat(object, at) } else { None };
            }
        });
    }
}

fn is_request(object: &Lease) -> bool {
    object.label(names::NOTE).is_some()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tenure_core::{Record, Token};

    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn seat() -> SeatName {
        SeatName::new("jobs").unwrap()
    }

    fn written(revision: u64) -> Lease {
        let mut object = Lease::new(names::object_of(&seat()));
        object.put(&seat(), &Record::new(None, Token::new(revision), LEASE), Timestamp::UNIX_EPOCH).unwrap();
        object.metadata.resource_version = revision.to_string();
        object
    }

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn only_the_very_write_that_was_heard_of_last_was_received() {
        let post = Post::new(&seat());
        assert_eq!(post.received(5), None);
        post.take_event(&written(5), true, 5, at(1));
        assert_eq!((post.received(5), post.received(4), post.received(6)), (Some(at(1)), None, None));
        post.take_event(&written(7), true, 7, at(2));
        // What is told again, or late, is no news.
        post.take_event(&written(5), true, 5, at(3));
        post.take_event(&written(7), true, 7, at(4));
        assert_eq!((post.received(5), post.received(7)), (None, Some(at(2))));
        post.take_event(&written(7), false, 8, at(5));
        assert_eq!((post.received(7), post.received(8)), (None, None), "it was deleted");
    }

    #[test]
    fn a_list_counts_from_when_it_came_unless_it_shows_what_was_heard_of() {
        let list = |revision, items| List { revision, items, date: None };
        let post = Post::new(&seat());
        post.take_event(&written(5), true, 5, at(1));
        post.take_list(&list(9, vec![written(5)]), at(10));
        assert_eq!(post.received(5), Some(at(1)), "it is the same as before");
        post.take_list(&list(20, vec![written(12)]), at(20));
        assert_eq!(post.received(12), Some(at(20)), "when it was written is not known");
        // The cluster was set back, and numbers come again.
        post.forget();
        assert_eq!(post.received(12), None);
        post.take_event(&written(12), true, 12, at(30));
        assert_eq!(post.received(12), Some(at(30)));
    }
}
