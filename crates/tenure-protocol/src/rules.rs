//! The rules that differ from store to store and from election to election.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::{Claim, Score, Timing, shared_pairs};

/// The rules by which one candidate takes part in one election.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The lease, and all durations that are scaled from it.
    pub timing: Timing,
    /// When to rely on the store's clock ([`Life::Clock`](crate::Life::Clock)).
    pub clock_trust: ClockTrust,
    /// When to take a seat whose session has ended ([`Life::Over`](crate::Life::Over)).
    pub takeover: Takeover,
    /// How far the candidate relies on the store's pushes instead of reading the seat.
    pub push: Push,
    /// Whether the first renewal of a term comes at a random time, which spreads the renewals of elections that
    /// were won together. Off where one heartbeat renews all seats of a process.
    pub spread: bool,
    /// Whether the candidate bids on its own. Otherwise it bids only on [`Input::Bid`](crate::Input::Bid).
    pub stands: bool,
    /// Whether the seat stays taken for as long as this process keeps its session with the store. Such a seat
    /// does not lapse when its election stops while other elections keep the session alive.
    pub held_by_session: bool,
    /// Whether the candidate releases the seat when it stops. Otherwise the seat is left to lapse.
    pub release_on_stop: bool,
    /// The candidate's priority: when the seat is free, candidates with higher numbers go first.
    pub priority: i32,
    /// Whether the candidate asks a leader of lower priority to hand over.
    pub preempt: bool,
    /// The lowest health with which the candidate stands for the seat.
    pub min_health: Score,
    /// Whether a leader steps down when its health falls below `min_health`.
    pub step_down_when_unhealthy: bool,
    /// Key-value pairs for people to read, which the record shows while the candidate leads.
    pub metadata: Arc<BTreeMap<String, String>>,
    /// The occasion that the candidate claims by winning the seat. If another candidate has claimed it, this
    /// candidate does not bid, and stops.
    pub occasion: Option<Occasion>,
}

impl Rules {
    /// The default of [`Rules::min_health`]: a score of 0.8.
    pub const MIN_HEALTH: Score = Score::of_percent(80);

    /// Returns the default rules: the candidate stands on its own, releases the seat when it stops, and has
    /// priority 0.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            clock_trust: ClockTrust::default(),
            takeover: Takeover::default(),
            push: Push::default(),
            spread: false,
            held_by_session: false,
            stands: true,
            release_on_stop: true,
            priority: 0,
            preempt: false,
            min_health: Self::MIN_HEALTH,
            step_down_when_unhealthy: true,
            metadata: shared_pairs(BTreeMap::new()),
            occasion: None,
        }
    }
}

/// One of the times at which a recurring job is due, which a candidate claims for all.
///
/// The seat keeps the last claim ([`Claim`]) when the claiming term is over, so candidates that come late find
/// it. An occasion is a wall-clock time, and candidates compare the times of their own occasions with that of
/// the claim. So clocks that differ too much can run a job twice or skip it, but never run it in two places at
/// the same time: that rests on the term alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion {
    at_ms: u64,
    covers_ms: u64,
    resumes: bool,
}

impl Occasion {
    /// Creates the occasion at this time, in milliseconds since 1970. A claim with a later time, or with one less
    /// than `span` before it, claims it. With the shortest span, a millisecond, only the same time or a later one does.
    pub fn new(at_ms: u64, span: Duration) -> Self {
        let covers_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
        Self { at_ms, covers_ms, resumes: false }
    }

    /// Returns the same occasion, to be claimed again if the term that claimed it ended before its work returned.
    pub fn resumable(self) -> Self {
        Self { resumes: true, ..self }
    }

    /// Returns whether this claim is for the same occasion or a later one.
    fn is_covered_by(&self, claim: &Claim) -> bool {
        claim.at_ms.saturating_add(self.covers_ms) > self.at_ms
    }

    /// Returns whether this claim leaves nothing to do for another candidate: the occasion was claimed and is not
    /// resumed, or a later one was claimed.
    pub fn is_settled_by(&self, claim: &Claim) -> bool {
        let is_later = claim.at_ms >= self.at_ms.saturating_add(self.covers_ms);
        self.is_covered_by(claim) && (claim.done || !self.resumes || is_later)
    }

    /// Returns the time to claim over a seat with this claim, in milliseconds since 1970. A claim that is resumed keeps
    /// its time.
    pub fn time_after(&self, claim: Option<&Claim>) -> u64 {
        claim.filter(|claim| self.is_covered_by(claim)).map_or(self.at_ms, |claim| claim.at_ms)
    }
}

/// When a follower relies on the store's clock to tell that a lease has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockTrust {
    /// Where the candidate's own clock confirms what the store's clock says.
    #[default]
    Vouched,
    /// Never: a seat is free once the candidate has seen it unchanged for its lease.
    Never,
    /// Always. Only for a clock that cannot step, such as the one that all processes of a machine share.
    Always,
}

/// When a follower takes a seat whose session has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takeover {
    /// At once: the end of the session counts as the end of the leader.
    Instant,
    /// A lease after the follower first saw that the session had ended.
    #[default]
    Safe,
}

/// How far candidates can rely on the pushes of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Push {
    /// The store sends no pushes: changes must be looked for.
    #[default]
    None,
    /// A push can be lost without any sign of the loss.
    Hint,
    /// A push is never lost silently: when the store no longer serves a watch, the watch reports a gap, within a
    /// third of the shortest lease.
    Proven,
}
