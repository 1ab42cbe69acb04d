//! The state of the store: the last known object of each seat, and the progress of the watch.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::{Moment, PushDetail, SeatName, Version};
use tokio::time::Instant;

use crate::lease::Lease;
use crate::names;

/// What was last read, written and received.
#[derive(Default)]
pub(crate) struct Seats {
    /// The highest known revision of the cluster, and the epoch: how often the revision was found to have gone
    /// backwards.
    revision: u64,
    epoch: u64,
    known: HashMap<SeatName, KnownSeat>,
    /// The revision up to which the watch has reported, and the revision that it must report next, with the
    /// deadline for it.
    heard: u64,
    awaited: Option<(u64, Instant)>,
}

/// What is known about one seat.
#[derive(Default)]
struct KnownSeat {
    /// The object as last read or written, and in which epoch; `None` inside means that it did not exist. An
    /// update replaces the whole object, so it must contain the fields of other clients. With this copy, a
    /// renewal or a bid is one call; without it, each would have to read first.
    object: Option<(u64, Option<Lease>)>,
    /// Whether this process wrote the object last and it names a holder, which is then a candidate of this
    /// process.
    is_ours: bool,
    /// The last report of the watch about this seat.
    heard: Option<Report>,
    /// The time between the last two events of the term: its leader may renew less often than every third of a lease.
    interval: Option<Duration>,
    /// Whether the watch covers this seat now.
    is_watched: bool,
}

/// A report of the watch about a seat.
#[derive(Clone, Copy)]
pub(crate) struct Report {
    pub(crate) revision: u64,
    pub(crate) detail: PushDetail,
    /// The lease in the record, zero if there is no record.
    pub(crate) lease: Duration,
    pub(crate) at: Moment,
    /// Whether an event reported it, and not a list, which shows a write some time after it was made.
    pub(crate) is_event: bool,
}

impl Seats {
    /// Returns the highest known revision, and the epoch.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.revision, self.epoch)
    }

    /// Records the revision of an answer to a call that was sent when `asked` was the highest known revision. All
    /// answers come from the one history of the cluster, so an answer cannot be older than what was known when
    /// its call was sent. If it is older, the cluster was restored to an earlier state, and may have lost the
    /// record of who leads. Returns the epoch.
    pub(crate) fn take_revision(&mut self, asked: u64, revision: u64) -> u64 {
        if revision < asked {
            self.epoch += 1;
            self.revision = revision;
            // Revisions repeat, so earlier reports no longer count.
            self.listed(0);
            self.known.values_mut().for_each(|known| known.heard = None);
        }
        self.revision = self.revision.max(revision);
        self.epoch
    }

    /// Records a seat as it was read, or as this process wrote it.
    pub(crate) fn take(&mut self, seat: &SeatName, object: Option<Lease>, by_us: bool) {
        let known = self.known.entry(seat.clone()).or_default();
        let before = known.object.as_ref().and_then(|(_, object)| object.as_ref());
        // A renewal by this process may have been written without an answer. So the holder counts, and not the
        // version.
        known.is_ours = match by_us {
            true => object.as_ref().and_then(Lease::holder).is_some(),
            false => known.is_ours && before.and_then(Lease::holder) == object.as_ref().and_then(Lease::holder),
        };
        known.object = Some((self.epoch, object));
    }

    /// Returns the object with this version, if it is the last one known of the seat.
    pub(crate) fn object(&self, seat: &SeatName, version: &Version) -> Option<Lease> {
        let (epoch, object) = self.known.get(seat)?.object.as_ref()?;
        let object = object.as_ref()?;
        (*epoch == self.epoch && version_of(*epoch, object) == *version).then(|| object.clone())
    }

    /// Whether a candidate of this process held the seat when it was last seen.
    pub(crate) fn is_ours(&self, seat: &SeatName) -> bool {
        self.known.get(seat).is_some_and(|known| known.is_ours)
    }

    /// Whether the object had no label of ours when it was last seen. Then another client created it, and the
    /// watch, which selects by the label, does not report it until a candidate of Tenure has written it.
    pub(crate) fn is_unlabelled(&self, seat: &SeatName) -> bool {
        let object = self.known.get(seat).and_then(|known| known.object.as_ref()?.1.as_ref());
        object.is_some_and(|object| object.label(names::SEAT).is_none())
    }

    /// Forgets a seat that no election uses any more.
    pub(crate) fn forget(&mut self, seat: &SeatName) {
        self.known.remove(seat);
    }

    /// Forgets all seats that no election uses. Such seats are known because they were looked at once, or because their
    /// elections ended while there was no watch.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&SeatName) -> bool) {
        self.known.retain(|seat, _| is_wanted(seat));
    }

    /// Records that the watch covers this seat from now on.
    pub(crate) fn watch(&mut self, seat: &SeatName) {
        self.known.entry(seat.clone()).or_default().is_watched = true;
    }

    /// Records that the watch has ended.
    pub(crate) fn unwatch(&mut self) {
        self.known.values_mut().for_each(|known| known.is_watched = false);
    }

    /// Whether the watch reports changes of this seat.
    pub(crate) fn is_reported(&self, seat: &SeatName) -> bool {
        self.known.get(seat).is_some_and(|known| known.is_watched) && !self.is_unlabelled(seat)
    }

    /// Returns how often the watch reports a renewal of this seat, as far as is known; `None` if the last report names no
    /// holder.
    pub(crate) fn renewed_every(&self, seat: &SeatName) -> Option<Duration> {
        let known = self.known.get(seat)?;
        let heard = known.heard.filter(|heard| matches!(heard.detail, PushDetail::Names(Some((Some(_), _)))))?;
        Some(known.interval.unwrap_or_default().max(heard.lease / 3))
    }

    /// Records a report of the watch about a seat. Returns whether it names another holder or term than the report before.
    pub(crate) fn record_report(&mut self, seat: &SeatName, report: Report) -> bool {
        let known = self.known.entry(seat.clone()).or_default();
        // A repeated report keeps the moment at which it was first received.
        if known.heard.is_some_and(|heard| report.revision <= heard.revision) {
            return false;
        }
        let before = known.heard.replace(report).filter(|before| before.detail == report.detail);
        match before {
            Some(before) if before.is_event && report.is_event => known.interval = Some(report.at.since(before.at)),
            Some(_) => {}
            None => known.interval = None,
        }
        before.is_none()
    }

    /// Returns when the report of this write was received.
    pub(crate) fn received(&self, seat: &SeatName, revision: u64) -> Option<Moment> {
        let heard = self.known.get(seat)?.heard?;
        (heard.revision == revision && heard.detail != PushDetail::Names(None)).then_some(heard.at)
    }

    /// Records that the watch starts over after a list at this revision.
    pub(crate) fn listed(&mut self, revision: u64) {
        (self.heard, self.awaited) = (revision, None);
    }

    /// Records that the watch has reported everything up to this revision.
    pub(crate) fn advance_to(&mut self, revision: u64) {
        self.heard = self.heard.max(revision);
        self.awaited = self.awaited.filter(|(awaited, _)| *awaited > revision);
    }

    /// Records that a seat was read or written at this revision, which the watch must report as well. Returns
    /// whether the watch has not done so yet, and no other report was awaited.
    pub(crate) fn await_echo(&mut self, seat: &SeatName, revision: u64, lease: Duration) -> bool {
        let awaits = self.awaited.is_none() && self.is_reported(seat) && revision > self.heard;
        if awaits {
            self.awaited = Some((revision, Instant::now() + lease / 3));
        }
        awaits
    }

    /// Returns the deadline for the awaited report.
    pub(crate) fn echo_deadline(&self) -> Option<Instant> {
        self.awaited.map(|(_, until)| until)
    }
}

/// Returns the version of an object: its write, and the epoch in which it was seen.
pub(crate) fn version_of(epoch: u64, object: &Lease) -> Version {
    Version::new(format!("{epoch}/{}", object.metadata.resource_version))
}

#[cfg(test)]
mod tests {
    use tenure_core::{Incarnation, Token};

    use super::*;

    fn seat() -> SeatName {
        SeatName::new("jobs").unwrap()
    }

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    /// The detail of a seat that was released after this term.
    fn term(token: u64) -> PushDetail {
        PushDetail::Names(Some((None, Token::new(token))))
    }

    /// An event of the watch, of a seat with a lease of nine seconds.
    fn heard(revision: u64, detail: PushDetail, second: u64) -> Report {
        Report { revision, detail, lease: Duration::from_secs(9), at: at(second), is_event: true }
    }

    #[test]
    fn renewals_are_expected_as_often_as_the_term_was_renewed_and_at_least_every_third_of_its_lease() {
        let (seat, mut seats) = (seat(), Seats::default());
        let held = |token| PushDetail::Names(Some((Some(Incarnation::from_bits(1)), Token::new(token))));
        let listed = |revision, second| Report { is_event: false, ..heard(revision, held(1), second) };
        let mut after = |report| {
            seats.record_report(&seat, report);
            seats.renewed_every(&seat).map(|every| every.as_secs())
        };
        assert_eq!(after(heard(1, held(1), 0)), Some(3), "a third of the lease");
        assert_eq!(after(heard(2, held(1), 4)), Some(4));
        assert_eq!(after(listed(3, 10)), Some(4), "the time of this write is not known");
        assert_eq!(after(heard(4, held(1), 12)), Some(4), "nor is the time since then an interval");
        assert_eq!(after(heard(4, held(1), 15)), Some(4), "the same write");
        assert_eq!(after(heard(5, held(1), 13)), Some(3));
        assert_eq!(after(heard(6, held(1), 18)), Some(5));
        assert_eq!(after(heard(7, held(2), 25)), Some(3), "another term");
        assert_eq!(after(heard(8, term(2), 26)), None, "the seat was released");
    }

    #[test]
    fn only_the_last_reported_write_counts_as_received() {
        let (seat, mut seats) = (seat(), Seats::default());
        assert_eq!(seats.received(&seat, 5), None);
        assert!(seats.record_report(&seat, heard(5, term(5), 1)));
        let received = |seats: &Seats, revision| seats.received(&seat, revision);
        assert_eq!((received(&seats, 5), received(&seats, 4), received(&seats, 6)), (Some(at(1)), None, None));
        assert!(seats.record_report(&seat, heard(7, term(7), 2)));
        // A repeated or late report is not a change.
        assert!(!seats.record_report(&seat, heard(5, term(5), 3)));
        assert!(!seats.record_report(&seat, heard(7, term(7), 4)));
        assert_eq!((received(&seats, 5), received(&seats, 7)), (None, Some(at(2))));
        assert!(seats.record_report(&seat, heard(8, PushDetail::Names(None), 5)));
        assert_eq!((received(&seats, 7), received(&seats, 8)), (None, None), "the object was deleted");
    }

    #[test]
    fn nothing_is_kept_of_seats_that_no_election_uses() {
        let mut seats = Seats::default();
        let names: Vec<_> = (0..1000).map(|number| SeatName::new(format!("job-{number}")).unwrap()).collect();
        for seat in &names {
            seats.take(seat, None, false);
            seats.watch(seat);
            seats.record_report(seat, heard(5, term(5), 1));
        }
        names[..500].iter().for_each(|seat| seats.forget(seat));
        assert_eq!(seats.known.len(), 500);
        seats.retain(|seat| *seat == names[999]);
        assert_eq!(seats.known.len(), 1);
    }

    #[test]
    fn a_renewal_is_received_but_is_not_a_change() {
        let (seat, mut seats) = (seat(), Seats::default());
        assert!(seats.record_report(&seat, heard(5, term(5), 1)));
        assert!(!seats.record_report(&seat, heard(6, term(5), 2)));
        assert_eq!(seats.received(&seat, 6), Some(at(2)));
    }

    #[test]
    fn a_list_counts_from_its_receipt_unless_it_repeats_a_report() {
        let (seat, mut seats) = (seat(), Seats::default());
        seats.record_report(&seat, heard(5, term(5), 1));
        seats.listed(9);
        seats.record_report(&seat, heard(5, term(5), 10));
        assert_eq!(seats.received(&seat, 5), Some(at(1)), "the write is the same as before");
        seats.listed(20);
        seats.record_report(&seat, heard(12, term(5), 20));
        assert_eq!(seats.received(&seat, 12), Some(at(20)), "the time of the write is not known");
        // The cluster was restored to an earlier state, and revisions repeat.
        assert_eq!(seats.take_revision(20, 11), 1);
        assert_eq!(seats.received(&seat, 12), None);
        seats.record_report(&seat, heard(12, term(5), 30));
        assert_eq!(seats.received(&seat, 12), Some(at(30)));
    }
}
