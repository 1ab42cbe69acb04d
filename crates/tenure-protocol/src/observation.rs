//! What has been seen of the seat, and when it may be taken.
//!
//! Every rule on *whose turn it is* stands here; what to do about it is the machine's business.

use std::time::Duration;

use crate::{
    ClockTrust, Identity, Incarnation, Life, Moment, Reading, Rules, Seat, StoreTime, Takeover, Timing, Token, Version,
};

/// What one candidate has seen of the seat.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    me: Incarnation,
    /// The seat as last read, or as last written by us.
    seat: Option<Seat>,
    /// When the last reading was sent and received.
    sent: Moment,
    received: Moment,
    /// When this very version was first received.
    unchanged_since: Moment,
    /// When the holder's session was first seen to be over.
    over_since: Option<Moment>,
    /// The last reading of the store's clock.
    glance: Option<Glance>,
    /// A reading of the store's clock from before this version was written.
    earlier: Option<Glance>,
    /// What our last bid was to replace; `None`: nothing.
    bid_over: Option<Version>,
    /// Who held the seat last, as far as was seen.
    last_holder: Option<Incarnation>,
    /// The highest token ever seen or bid, and what the store says that tokens must exceed.
    highest: Token,
    floor: Token,
    /// Which life of the store's data this is. `None` before the first reading.
    identity: Option<Option<Identity>>,
    /// Until when nobody may bid, as something was lost that may have named a leader.
    wait_out: Moment,
}

/// A reading of the store's clock.
#[derive(Clone, Copy, Debug)]
struct Glance {
    received: Moment,
    store: StoreTime,
}

/// When the seat may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// Now, by what the last reading says.
    Now,
    /// Not before this moment, and then only if another reading agrees.
    At(Moment),
    /// Not before the store says otherwise.
    WhenTold,
}

impl Observation {
    /// Nothing is seen yet.
    pub(crate) fn new(me: Incarnation) -> Self {
        Self {
            me,
            seat: None,
            sent: Moment::ORIGIN,
            received: Moment::ORIGIN,
            unchanged_since: Moment::ORIGIN,
            over_since: None,
            glance: None,
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

    /// Who held the seat last, as far as was seen.
    pub(crate) fn last_holder(&self) -> Option<Incarnation> {
        self.last_holder
    }

    /// Whether the seat was ever read.
    pub(crate) fn has_looked(&self) -> bool {
        self.identity.is_some()
    }

    /// The identity of the data that the seat was last read from.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()?.as_ref()
    }

    /// When everything that was lost has been waited out.
    pub(crate) fn waited_out_at(&self) -> Moment {
        self.wait_out
    }

    /// The token for a bid that replaces the seat as last seen: above everything ever seen, tried or
    /// demanded by the store, so that no number is used twice even if the seat was deleted.
    ///
    /// After the highest there is, an operator must remove the seat: then numbers begin anew, and the answer says so.
    pub(crate) fn next_token(&mut self) -> Option<(Token, bool)> {
        let last = self.highest.max(self.floor);
        let begins_anew = last == Token::MAX && self.seat.is_none();
        let next = if begins_anew { self.floor.next()? } else { last.next()? };
        self.highest = next;
        self.bid_over = self.seat.as_ref().map(|seat| seat.version.clone());
        Some((next, begins_anew))
    }

    /// Whether the seat is still what our last bid was to replace.
    pub(crate) fn is_as_bid_for(&self) -> bool {
        self.seat.as_ref().map(|seat| &seat.version) == self.bid_over.as_ref()
    }

    /// Whether the seat names us.
    pub(crate) fn is_held_by_us(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.record.is_held_by(self.me))
    }

    /// The highest token ever seen or tried.
    pub(crate) fn highest_token(&self) -> Token {
        self.highest
    }

    /// Takes in a reading that was sent and received at these moments. Returns whether something was
    /// lost since the one before.
    pub(crate) fn read(&mut self, sent: Moment, received: Moment, reading: Reading, timing: &Timing) -> bool {
        let Reading { seat, floor, identity } = reading;
        let another_life = self.identity.as_ref().is_some_and(|known| *known != identity);
        let stepped_back = self.seat.as_ref().is_some_and(|before| is_step_back(before, seat.as_ref()));
        let lost = another_life || stepped_back || self.is_misplaced(seat.as_ref());
        if lost {
            // A leader may be at work whose term this store has forgotten. Its hold ends within
            // its lease from its last renewal, which was before now.
            let known = self.seat.as_ref().map_or(Duration::ZERO, |before| before.record.lease);
            self.wait_out = self.wait_out.max(received + known.max(timing.lease()));
        }
        if another_life {
            self.glance = None;
        }

        let before = self.seat.take();
        let unchanged =
            !another_life && before.as_ref().map(|before| &before.version) == seat.as_ref().map(|seat| &seat.version);
        if !unchanged {
            self.unchanged_since = received;
            // A write that was under way when we looked last may bear a time from before that: then what we saw
            // of the clock before is still good.
            let earlier = match (self.glance, seat.as_ref().map(|seat| seat.life)) {
                (Some(glance), Some(Life::Clock { renewed, .. })) if glance.store > renewed => self.earlier,
                (glance, _) => glance,
            };
            // The clock may have been set since. The shorter the time, the less it can have been.
            let lease = seat.as_ref().map_or(Duration::ZERO, |seat| seat.record.lease);
            self.earlier = earlier.filter(|earlier| received.since(earlier.received) <= lease);
        }
        let is_over = seat.as_ref().is_some_and(|seat| seat.life == Life::Over);
        let was_over = before.is_some_and(|before| before.life == Life::Over) && unchanged;
        self.over_since = is_over.then(|| self.over_since.filter(|_| was_over).unwrap_or(received));
        self.glance = match seat.as_ref().map(|seat| seat.life) {
            Some(Life::Clock { now, .. }) => Some(Glance { received, store: now }),
            _ => None,
        };
        self.sent = sent;
        self.received = received;
        self.floor = floor;
        self.highest = self.highest.max(seat.as_ref().map_or(Token::ZERO, |seat| seat.record.token));
        self.identity = Some(identity);
        self.seat = seat;
        self.note_holder();
        lost
    }

    /// Whether a bid of ours has landed after we had already seen another seat in its place: the seat
    /// went backwards in between, and what we saw may have named a leader.
    fn is_misplaced(&self, after: Option<&Seat>) -> bool {
        let ours = |seat: Option<&Seat>| seat.is_some_and(|seat| seat.record.is_held_by(self.me));
        let before = self.seat.as_ref();
        ours(after) && !ours(before) && before.map(|before| &before.version) != self.bid_over.as_ref()
    }

    /// Takes in what we have written ourselves.
    pub(crate) fn wrote(&mut self, now: Moment, seat: Seat) {
        self.highest = self.highest.max(seat.record.token);
        self.unchanged_since = now;
        self.over_since = None;
        self.earlier = None;
        self.seat = Some(seat);
        self.note_holder();
    }

    fn note_holder(&mut self) {
        let holder = self.seat.as_ref().and_then(|seat| seat.record.holder.as_ref());
        self.last_holder = holder.map(|holder| holder.incarnation).or(self.last_holder);
    }

    /// When a seat that is not our own may be taken.
    pub(crate) fn free(&self, rules: &Rules) -> Free {
        let Some(seat) = self.seat.as_ref().filter(|seat| !seat.record.is_vacant()) else {
            return Free::Now;
        };
        // The holder's own lease counts, not ours.
        let lease = seat.record.lease;
        match seat.life {
            Life::Held => Free::WhenTold,
            Life::Over => match rules.takeover {
                Takeover::Instant => Free::Now,
                Takeover::Safe => self.once(self.over_since.unwrap_or(self.received) + lease),
            },
            Life::Observe => self.once(self.unchanged_since + lease),
            // We have received it then, if not by looking.
            Life::Received { at } => self.once(self.unchanged_since.min(at) + lease),
            Life::Clock { now, renewed } => match rules.clock_trust {
                ClockTrust::Never => self.once(self.unchanged_since + lease),
                ClockTrust::Always => self.once_store_says(now, renewed, lease, &rules.timing, Moment::ORIGIN),
                ClockTrust::Vouched => self.once_vouched(now, renewed, lease, &rules.timing),
            },
        }
    }

    /// Free if the last reading was sent at this moment or later.
    fn once(&self, moment: Moment) -> Free {
        if self.sent >= moment { Free::Now } else { Free::At(moment) }
    }

    /// Free once a lease has passed on the store's clock, and not before `own` on ours.
    fn once_store_says(
        &self,
        now: StoreTime,
        renewed: StoreTime,
        lease: Duration,
        timing: &Timing,
        own: Moment,
    ) -> Free {
        let left = lease.saturating_sub(now.checked_since(renewed).unwrap_or_default());
        if left.is_zero() { self.once(own) } else { Free::At(own.max(self.received + timing.stretched(left))) }
    }

    /// The store's clock steps, so its word counts only where our own clock vouches for it.
    ///
    /// With an earlier reading (received r, store time S <= renewed), the seat was renewed at most
    /// `(renewed - S) / (1 - drift)` of true time after r, unless the store's clock was set back in
    /// between. So from `r + lease + (renewed - S)(1 + drift)/(1 - drift)` on our clock, a true
    /// lease has passed since the renewal; and if the clock was set back, the store itself still
    /// counts a lease from then on. Without such a reading we count from when we first saw this
    /// version, which is always sound.
    ///
    /// The rule fails only if the clock was set back between the earlier reading and the renewal,
    /// and forward again between the renewal and this reading. The earlier reading is at most a
    /// lease older than when we first saw this version, and a lease after that we need no
    /// vouching any more: so both steps must fall within two leases, and an attempt at either end.
    fn once_vouched(&self, now: StoreTime, renewed: StoreTime, lease: Duration, timing: &Timing) -> Free {
        let observed = self.unchanged_since + lease;
        if self.sent >= observed {
            return Free::Now;
        }
        let vouched = self.earlier.and_then(|earlier| {
            let after = renewed.checked_since(earlier.store)?;
            Some(earlier.received + lease + timing.stretched(after))
        });
        match vouched.map(|own| self.once_store_says(now, renewed, lease, timing, own)) {
            None => Free::At(observed),
            Some(Free::At(moment)) => Free::At(moment.min(observed)),
            Some(free) => free,
        }
    }
}

/// Whether the seat has vanished, or says less than it did before: a lower token, a term that was
/// over and runs again, one term with two holders, or a renewal older than one that was seen.
fn is_step_back(before: &Seat, after: Option<&Seat>) -> bool {
    let Some(after) = after else { return true };
    if after.record.token != before.record.token {
        return after.record.token < before.record.token;
    }
    let holder = |seat: &Seat| -> Option<Incarnation> { seat.record.holder.as_ref().map(|h| h.incarnation) };
    // A term is given up once, and last of all.
    if holder(after).is_none() {
        return false;
    }
    if holder(after) != holder(before) {
        return true;
    }
    // Or the store's clock was set back, which costs nothing: we count from when we saw it anyway.
    matches!((before.life, after.life), (Life::Clock { renewed: was, .. }, Life::Clock { renewed, .. }) if renewed < was)
}
