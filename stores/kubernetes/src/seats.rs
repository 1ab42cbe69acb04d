//! What was last seen and heard of the cluster and of each seat.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::{Moment, PushDetail, SeatName, Version};
use tokio::time::Instant;

use crate::lease::Lease;
use crate::names;

/// What was last seen and heard.
#[derive(Default)]
pub(crate) struct Seats {
    /// As which revision the cluster is known, and how often it was found to have gone backwards.
    revision: u64,
    life: u64,
    known: HashMap<SeatName, Known>,
    /// Up to which revision the watch has told what happened, and which one it should have told of by when.
    heard: u64,
    awaited: Option<(u64, Instant)>,
}

/// What is known of one seat.
#[derive(Default)]
struct Known {
    /// The object as it was last read or written, and in which life of the cluster; `None` inside: there was none. An
    /// update replaces the whole object, so what others have put there must be known. With this, a renewal or a bid is
    /// one call; without it, each would read first.
    object: Option<(u64, Option<Lease>)>,
    /// Whether we wrote it last, and it names a holder: one of ours.
    is_ours: bool,
    /// What the watch last told of it.
    heard: Option<Heard>,
    /// Whether the watch tells of it now.
    is_watched: bool,
}

#[derive(Clone, Copy)]
struct Heard {
    revision: u64,
    said: PushDetail,
    at: Moment,
}

impl Seats {
    /// As which revision the cluster is known, and in which life of it we are.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.revision, self.life)
    }

    /// Takes in the revision of an answer to a call that was sent when the cluster was known as `asked`. Every
    /// answer comes from the one history of the cluster, so it cannot be older than what was known when the call was
    /// sent; if it is, the cluster was set back, and may have forgotten who leads. Returns in which life of
    /// the cluster we are.
    pub(crate) fn take_revision(&mut self, asked: u64, revision: u64) -> u64 {
        if revision < asked {
            self.life += 1;
            self.revision = revision;
            // Numbers come again: what was heard before does not count.
            self.listed(0);
            self.known.values_mut().for_each(|known| known.heard = None);
        }
        self.revision = self.revision.max(revision);
        self.life
    }

    /// Takes in a seat as it was read, or as it was written by us.
    pub(crate) fn take(&mut self, seat: &SeatName, object: Option<Lease>, by_us: bool) {
        let known = self.known.entry(seat.clone()).or_default();
        let before = known.object.as_ref().and_then(|(_, object)| object.as_ref());
        // A renewal of our own may have landed unseen: who holds it counts, not which write it is.
        known.is_ours = match by_us {
            true => object.as_ref().and_then(Lease::holder).is_some(),
            false => known.is_ours && before.and_then(Lease::holder) == object.as_ref().and_then(Lease::holder),
        };
        known.object = Some((self.life, object));
    }

    /// The object of this version, if that is what was last seen of the seat.
    pub(crate) fn object(&self, seat: &SeatName, version: &Version) -> Option<Lease> {
        let (life, object) = self.known.get(seat)?.object.as_ref()?;
        let object = object.as_ref()?;
        (*life == self.life && version_of(*life, object) == *version).then(|| object.clone())
    }

    /// Whether one of ours held the seat when it was last seen.
    pub(crate) fn is_ours(&self, seat: &SeatName) -> bool {
        self.known.get(seat).is_some_and(|known| known.is_ours)
    }

    /// Whether the seat was last seen without our mark: another client has made it, and the watch, which goes by marks,
    /// does not tell of it before one of ours has written it.
    pub(crate) fn is_unmarked(&self, seat: &SeatName) -> bool {
        let object = self.known.get(seat).and_then(|known| known.object.as_ref()?.1.as_ref());
        object.is_some_and(|object| object.label(names::SEAT).is_none())
    }

    /// The seat is of no interest any more.
    pub(crate) fn forget(&mut self, seat: &SeatName) {
        self.known.remove(seat);
    }

    /// The watch tells of this seat from now on.
    pub(crate) fn watch(&mut self, seat: &SeatName) {
        self.known.entry(seat.clone()).or_default().is_watched = true;
    }

    /// The watch tells of nothing any more.
    pub(crate) fn unwatch(&mut self) {
        self.known.values_mut().for_each(|known| known.is_watched = false);
    }

    /// Whether changes of this seat are heard of.
    pub(crate) fn is_heard(&self, seat: &SeatName) -> bool {
        self.known.get(seat).is_some_and(|known| known.is_watched) && !self.is_unmarked(seat)
    }

    /// The watch tells what a seat was as of some revision. Returns whether that names another holder or term than
    /// what it told before.
    pub(crate) fn hear(&mut self, seat: &SeatName, revision: u64, said: PushDetail, at: Moment) -> bool {
        let known = self.known.entry(seat.clone()).or_default();
        // What is told again keeps the moment at which it was first heard of.
        if known.heard.is_some_and(|heard| revision <= heard.revision) {
            return false;
        }
        let before = known.heard.replace(Heard { revision, said, at });
        before.is_none_or(|before| before.said != said)
    }

    /// When this very write was heard of.
    pub(crate) fn received(&self, seat: &SeatName, revision: u64) -> Option<Moment> {
        let heard = self.known.get(seat)?.heard?;
        (heard.revision == revision && heard.said != PushDetail::Names(None)).then_some(heard.at)
    }

    /// The watch begins anew, after a list as of this revision.
    pub(crate) fn listed(&mut self, revision: u64) {
        (self.heard, self.awaited) = (revision, None);
    }

    /// The watch has told what happened up to this revision.
    pub(crate) fn come_by(&mut self, revision: u64) {
        self.heard = self.heard.max(revision);
        self.awaited = self.awaited.filter(|(awaited, _)| *awaited > revision);
    }

    /// A seat was read or written as of this revision, which the watch should tell of, too. Returns whether it has not
    /// done so yet and nothing else was awaited.
    pub(crate) fn await_echo(&mut self, seat: &SeatName, revision: u64, lease: Duration) -> bool {
        let awaits = self.awaited.is_none() && self.is_heard(seat) && revision > self.heard;
        if awaits {
            self.awaited = Some((revision, Instant::now() + lease / 3));
        }
        awaits
    }

    /// Until when something should have come by.
    pub(crate) fn awaits_until(&self) -> Option<Instant> {
        self.awaited.map(|(_, until)| until)
    }
}

/// A version names a write, and the life of the cluster in which it was seen.
pub(crate) fn version_of(life: u64, object: &Lease) -> Version {
    Version::new(format!("{life}/{}", object.metadata.resource_version))
}

#[cfg(test)]
mod tests {
    use tenure_core::Token;

    use super::*;

    fn seat() -> SeatName {
        SeatName::new("jobs").unwrap()
    }

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    /// What is said of a seat that was given up after this term.
    fn term(token: u64) -> PushDetail {
        PushDetail::Names(Some((None, Token::new(token))))
    }

    #[test]
    fn only_the_very_write_that_was_heard_of_last_was_received() {
        let (seat, mut seats) = (seat(), Seats::default());
        assert_eq!(seats.received(&seat, 5), None);
        assert!(seats.hear(&seat, 5, term(5), at(1)));
        let received = |seats: &Seats, revision| seats.received(&seat, revision);
        assert_eq!((received(&seats, 5), received(&seats, 4), received(&seats, 6)), (Some(at(1)), None, None));
        assert!(seats.hear(&seat, 7, term(7), at(2)));
        // What is told again, or late, is no news.
        assert!(!seats.hear(&seat, 5, term(5), at(3)));
        assert!(!seats.hear(&seat, 7, term(7), at(4)));
        assert_eq!((received(&seats, 5), received(&seats, 7)), (None, Some(at(2))));
        assert!(seats.hear(&seat, 8, PushDetail::Names(None), at(5)));
        assert_eq!((received(&seats, 7), received(&seats, 8)), (None, None), "it was deleted");
    }

    #[test]
    fn a_renewal_is_received_and_is_no_news() {
        let (seat, mut seats) = (seat(), Seats::default());
        assert!(seats.hear(&seat, 5, term(5), at(1)));
        assert!(!seats.hear(&seat, 6, term(5), at(2)));
        assert_eq!(seats.received(&seat, 6), Some(at(2)));
    }

    #[test]
    fn a_list_counts_from_when_it_came_unless_it_shows_what_was_heard_of() {
        let (seat, mut seats) = (seat(), Seats::default());
        seats.hear(&seat, 5, term(5), at(1));
        seats.listed(9);
        seats.hear(&seat, 5, term(5), at(10));
        assert_eq!(seats.received(&seat, 5), Some(at(1)), "it is the same as before");
        seats.listed(20);
        seats.hear(&seat, 12, term(5), at(20));
        assert_eq!(seats.received(&seat, 12), Some(at(20)), "when it was written is not known");
        // The cluster was set back, and numbers come again.
        assert_eq!(seats.take_revision(20, 11), 1);
        assert_eq!(seats.received(&seat, 12), None);
        seats.hear(&seat, 12, term(5), at(30));
        assert_eq!(seats.received(&seat, 12), Some(at(30)));
    }
}
