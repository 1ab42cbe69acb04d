//! What one candidate has seen of the seat, and when the seat may be taken.
//!
//! Every rule about *when the seat is free* is in this file. What to do about it is decided in the machine.

use std::time::Duration;

use crate::{
    ClockTrust, DataIdentity, Incarnation, Life, Moment, Reading, Release, Rules, Seat, StoreTime, Takeover, Timing,
    Token, Version,
};

/// What one candidate has seen of the seat.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    me: Incarnation,
    /// The seat as last read, or as last written by this candidate.
    seat: Option<Seat>,
    /// When the last read was sent and its answer received.
    sent: Moment,
    received: Moment,
    /// When the current version was first received.
    unchanged_since: Moment,
    /// When the holder's session was first seen to have ended.
    over_since: Option<Moment>,
    /// The last reading of the store's clock.
    clock: Option<ClockReading>,
    /// A reading of the store's clock from before the current version was written.
    earlier: Option<ClockReading>,
    /// The version that the last bid was to replace. `None`: the seat did not exist.
    bid_over: Option<Version>,
    /// The last holder of the seat, as far as was seen.
    last_holder: Option<Incarnation>,
    /// The highest token that was ever seen or bid, and the lower bound that the store demands.
    highest: Token,
    floor: Token,
    /// The identity of the store's data. `None` before the first reading.
    identity: Option<Option<DataIdentity>>,
    /// No bid before this moment, because data was lost that may have named a leader.
    wait_out: Moment,
}

/// A reading of the store's clock.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    received: Moment,
    store: StoreTime,
}

/// When the seat may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// Now, according to the last reading.
    Now,
    /// Not before this moment, and then only if another reading confirms it.
    At(Moment),
    /// Only after the store reports that the session has ended.
    WhenNotified,
}

impl Observation {
    /// Creates the observation of a candidate that has not read the seat yet.
    pub(crate) fn new(me: Incarnation) -> Self {
        Self {
            me,
            seat: None,
            sent: Moment::ORIGIN,
            received: Moment::ORIGIN,
            unchanged_since: Moment::ORIGIN,
            over_since: None,
            clock: None,
            earlier: None,
            bid_over: None,
            last_holder: None,
            highest: Token::ZERO,
            floor: Token::ZERO,
            identity: None,
            wait_out: Moment::ORIGIN,
        }
    }

    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }

    /// Returns the last holder of the seat, as far as was seen.
    pub(crate) fn last_holder(&self) -> Option<Incarnation> {
        self.last_holder
    }

    /// Returns whether the seat was ever read.
    pub(crate) fn has_looked(&self) -> bool {
        self.identity.is_some()
    }

    /// Returns the identity of the data that the seat was last read from.
    pub(crate) fn identity(&self) -> Option<&DataIdentity> {
        self.identity.as_ref()?.as_ref()
    }

    /// Returns when everything that was lost has been waited out.
    pub(crate) fn waited_out_at(&self) -> Moment {
        self.wait_out
    }

    /// Returns the token for a bid that replaces the seat as last seen. It is above every token that was ever
    /// seen, tried or demanded by the store, so that no number is used twice even if the seat was deleted.
    ///
    /// After [`Token::MAX`], an operator must remove the seat. Then numbers begin again at the floor, and the
    /// second part of the result is true.
    pub(crate) fn next_token(&mut self) -> Option<(Token, bool)> {
        let last = self.highest.max(self.floor);
        let begins_anew = last == Token::MAX && self.seat.is_none();
        let next = if begins_anew { self.floor.next()? } else { last.next()? };
        self.highest = next;
        self.bid_over = self.seat.as_ref().map(|seat| seat.version.clone());
        Some((next, begins_anew))
    }

    /// Returns whether the seat is still the one that the last bid was to replace.
    pub(crate) fn is_as_bid_for(&self) -> bool {
        self.seat.as_ref().map(|seat| &seat.version) == self.bid_over.as_ref()
    }

    /// Returns whether the seat names this candidate.
    pub(crate) fn is_held_by_us(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.record.is_held_by(self.me))
    }

    /// Returns the highest token that was ever seen or tried.
    pub(crate) fn highest_token(&self) -> Token {
        self.highest
    }

    /// Takes in a reading, with the moments of its send and its receipt. Returns whether data was lost since
    /// the last reading.
    pub(crate) fn read(&mut self, sent: Moment, received: Moment, reading: Reading, timing: &Timing) -> bool {
        let Reading { seat, floor, identity } = reading;
        let another_identity = self.identity.as_ref().is_some_and(|known| *known != identity);
        let stepped_back = self.seat.as_ref().is_some_and(|before| is_step_back(before, seat.as_ref()));
        let lost = another_identity || stepped_back || self.is_late_bid(seat.as_ref());
        if lost {
            // A leader may still lead a term that this store has forgotten. Its hold ends within its lease from
            // its last renewal, and that renewal was sent before now.
            let known = self.seat.as_ref().map_or(Duration::ZERO, |before| before.record.lease);
            self.wait_out = self.wait_out.max(received + known.max(timing.lease()));
        }
        if another_identity {
            self.clock = None;
        }

        let before = self.seat.take();
        let unchanged = !another_identity
            && before.as_ref().map(|before| &before.version) == seat.as_ref().map(|seat| &seat.version);
        if !unchanged {
            self.unchanged_since = received;
            // A write that was in flight during the last look can bear a time from before that look. Then the
            // reading of the clock before that look is still the one that is older than the write.
            let earlier = match (self.clock, seat.as_ref().map(|seat| seat.life)) {
                (Some(clock), Some(Life::Clock { renewed, .. })) if clock.store > renewed => self.earlier,
                (clock, _) => clock,
            };
            // The store's clock may have been set since that reading. The shorter the time in between, the less
            // can have happened.
            let lease = seat.as_ref().map_or(Duration::ZERO, |seat| seat.record.lease);
            self.earlier = earlier.filter(|earlier| received.since(earlier.received) <= lease);
        }
        let is_over = seat.as_ref().is_some_and(|seat| seat.life == Life::Over);
        let was_over = before.is_some_and(|before| before.life == Life::Over) && unchanged;
        self.over_since = is_over.then(|| self.over_since.filter(|_| was_over).unwrap_or(received));
        self.clock = match seat.as_ref().map(|seat| seat.life) {
            Some(Life::Clock { now, .. }) => Some(ClockReading { received, store: now }),
            _ => None,
        };
        self.sent = sent;
        self.received = received;
        self.floor = floor;
        self.highest = self.highest.max(seat.as_ref().map_or(Token::ZERO, |seat| seat.record.token));
        self.identity = Some(identity);
        self.seat = seat;
        self.remember_holder();
        lost
    }

    /// Returns whether a bid of this candidate has landed after the candidate had already seen another seat in
    /// its place. Then the seat went backwards in between, and the seat that was lost may have named a leader.
    fn is_late_bid(&self, after: Option<&Seat>) -> bool {
        let ours = |seat: Option<&Seat>| seat.is_some_and(|seat| seat.record.is_held_by(self.me));
        let before = self.seat.as_ref();
        ours(after) && !ours(before) && before.map(|before| &before.version) != self.bid_over.as_ref()
    }

    /// Takes in a record that this candidate has written.
    pub(crate) fn wrote(&mut self, now: Moment, seat: Seat) {
        self.highest = self.highest.max(seat.record.token);
        self.unchanged_since = now;
        self.over_since = None;
        self.earlier = None;
        self.seat = Some(seat);
        self.remember_holder();
    }

    /// Takes in a release that the store pushed, if it is the release of the term that was last seen. Returns whether
    /// it is; if not, the seat must be read.
    ///
    /// *Claim.* A bid on this seat is as safe as one after a read. *Reasons.* A vacant seat is free whatever its age, and
    /// the bid is lost if the seat was written since. The token of the bid is above that of the seat, and the token of
    /// the seat was above the floor when its term was won. So it is above all tokens of this data, also if the seat was
    /// removed in between, because then the bid is lost. Data with another identity may have lost a later term, so there
    /// the seat must be read.
    pub(crate) fn released(&mut self, now: Moment, release: &Release) -> bool {
        let is_of_seen_term = self.seat.as_ref().is_some_and(|seat| {
            !seat.record.is_vacant() && !seat.record.is_held_by(self.me) && seat.record.token == release.record.token
        });
        let is_of_same_data = self.identity.as_ref() == Some(&release.identity);
        let is_accepted = is_of_seen_term && is_of_same_data && release.record.is_vacant();
        if is_accepted {
            let Release { record, version, .. } = release.clone();
            (self.unchanged_since, self.over_since, self.earlier) = (now, None, None);
            self.seat = Some(Seat { record, version, life: Life::Observe });
        }
        is_accepted
    }

    /// Takes in that the session of the holder has ended, if another candidate held the seat when it was last seen. Returns
    /// whether it did; if not, the seat must be read.
    ///
    /// *Claim.* A bid on this seat is as safe as one after a read. *Reasons.* A read would return the seat as it was last
    /// seen, now without a living session, or another version of it. In the second case the bid is lost, because it names
    /// the version that was last seen. That version belongs to this life of the data, so its tokens are known.
    pub(crate) fn holder_over(&mut self, now: Moment) -> bool {
        let me = self.me;
        let seat = self.seat.as_mut().filter(|seat| !seat.record.is_vacant() && !seat.record.is_held_by(me));
        let Some(seat) = seat else { return false };
        seat.life = Life::Over;
        self.over_since.get_or_insert(now);
        true
    }

    fn remember_holder(&mut self) {
        let holder = self.seat.as_ref().and_then(|seat| seat.record.holder.as_ref());
        self.last_holder = holder.map(|holder| holder.incarnation).or(self.last_holder);
    }

    /// Returns when a seat that names another candidate may be taken.
    pub(crate) fn free(&self, rules: &Rules) -> Free {
        let Some(seat) = self.seat.as_ref().filter(|seat| !seat.record.is_vacant()) else {
            return Free::Now;
        };
        // The lease of the holder counts, not that of this candidate.
        let lease = seat.record.lease;
        match seat.life {
            Life::Held => Free::WhenNotified,
            Life::Over => match rules.takeover {
                Takeover::Instant => Free::Now,
                Takeover::Safe => self.free_from(self.over_since.unwrap_or(self.received) + lease),
            },
            Life::Observe => self.free_from(self.unchanged_since + lease),
            // The store's client received this version at `at`, which may be before this candidate read it.
            Life::Received { at } => self.free_from(self.unchanged_since.min(at) + lease),
            Life::Clock { now, renewed } => match rules.clock_trust {
                ClockTrust::Never => self.free_from(self.unchanged_since + lease),
                ClockTrust::Always => self.free_by_store_clock(now, renewed, lease, &rules.timing, Moment::ORIGIN),
                ClockTrust::Vouched => self.free_by_vouched_clock(now, renewed, lease, &rules.timing),
            },
        }
    }

    /// Returns `Now` if the last read was sent at `moment` or later.
    fn free_from(&self, moment: Moment) -> Free {
        if self.sent >= moment { Free::Now } else { Free::At(moment) }
    }

    /// Returns `Now` once a lease has passed on the store's clock, but not before `own` on this process's
    /// clock.
    fn free_by_store_clock(
        &self,
        now: StoreTime,
        renewed: StoreTime,
        lease: Duration,
        timing: &Timing,
        own: Moment,
    ) -> Free {
        let left = lease.saturating_sub(now.checked_since(renewed).unwrap_or_default());
        if left.is_zero() { self.free_from(own) } else { Free::At(own.max(self.received + timing.stretched(left))) }
    }

    /// Returns when the seat is free by the store's clock, as far as this process's own clock vouches for it. A
    /// store's clock can step, so what it says does not count without that.
    ///
    /// *Claim.* Let an earlier reading of the clock have been received at `r`, with the store time
    /// `S <= renewed`. If the store's clock was not set back in between, the seat was renewed at most
    /// `(renewed - S) / (1 - drift)` of true time after `r`. So from
    /// `r + lease + (renewed - S)(1 + drift)/(1 - drift)` on our clock, a true lease has passed since the
    /// renewal. If the clock was set back in between, the rule still holds, because it also requires that a
    /// lease has passed on the store's clock since the renewal. Without such a reading, a lease counts from the
    /// first receipt of this version, which is always sound.
    ///
    /// *Limits.* The rule fails only if the clock was set back between the earlier reading and the renewal, and
    /// set forward again between the renewal and this reading. The earlier reading is at most a lease older
    /// than the first receipt of this version, and a lease after that receipt no vouching is needed. So both
    /// steps must fall within two leases, plus the time of a call at either end.
    fn free_by_vouched_clock(&self, now: StoreTime, renewed: StoreTime, lease: Duration, timing: &Timing) -> Free {
        let observed = self.unchanged_since + lease;
        if self.sent >= observed {
            return Free::Now;
        }
        let vouched = self.earlier.and_then(|earlier| {
            let after = renewed.checked_since(earlier.store)?;
            Some(earlier.received + lease + timing.stretched(after))
        });
        match vouched.map(|own| self.free_by_store_clock(now, renewed, lease, timing, own)) {
            None => Free::At(observed),
            Some(Free::At(moment)) => Free::At(moment.min(observed)),
            Some(free) => free,
        }
    }
}

/// Returns whether the seat has vanished or gone backwards: it has a lower token, a term that was over runs
/// again, one term has two holders, or the renewal is older than one that was seen.
fn is_step_back(before: &Seat, after: Option<&Seat>) -> bool {
    let Some(after) = after else { return true };
    if after.record.token != before.record.token {
        return after.record.token < before.record.token;
    }
    let holder = |seat: &Seat| -> Option<Incarnation> { seat.record.holder.as_ref().map(|h| h.incarnation) };
    // A release is the last write of a term, so a vacant seat is never a step back within it.
    if holder(after).is_none() {
        return false;
    }
    if holder(after) != holder(before) {
        return true;
    }
    // The other cause is a store clock that was set back. That costs no time, because the lease counts from the
    // receipt anyway.
    matches!((before.life, after.life), (Life::Clock { renewed: was, .. }, Life::Clock { renewed, .. }) if renewed < was)
}
