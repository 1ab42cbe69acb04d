//! What may differ from store to store and from election to election.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Score, Timing};

/// How one candidate behaves in one election.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How long everything takes.
    pub timing: Timing,
    /// How much the store's clock is believed ([`Life::Clock`](crate::Life::Clock)).
    pub clock_trust: ClockTrust,
    /// How soon a seat may be taken whose session is over ([`Life::Over`](crate::Life::Over)).
    pub takeover: Takeover,
    /// How much the store's push can be counted on.
    pub push: Push,
    /// Whether its first renewal in a term comes at a time of its own, so that the renewals of many elections
    /// that were won together are spread. Not where one heartbeat renews them all.
    pub spread: bool,
    /// Whether it stands by itself, or only when asked for a bid.
    pub stands: bool,
    /// Whether a seat stays taken for as long as this process keeps its session with the store: one that is left
    /// behind does not lapse while other elections of the process go on.
    pub held_by_session: bool,
    /// Whether the seat is given up when it stops; otherwise it is left to lapse.
    pub release_on_stop: bool,
    /// The higher, the sooner its turn when the seat is free.
    pub priority: i32,
    /// Whether it asks a leader of lower priority to hand over.
    pub preempt: bool,
    /// Below this it does not stand.
    pub min_health: Score,
    /// Whether it hands over when it leads and is no longer well enough.
    pub step_down_when_unhealthy: bool,
    /// What it says about itself while it leads.
    pub metadata: Arc<BTreeMap<String, String>>,
}

impl Rules {
    /// What a candidate must be well enough to stand, unless told otherwise.
    pub const MIN_HEALTH: Score = Score::of_percent(80);

    /// The usual ones: stands, releases when it stops, never gives up.
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
            metadata: Arc::default(),
        }
    }
}

/// When the store's clock is believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockTrust {
    /// Where the candidate's own clock confirms it.
    #[default]
    Vouched,
    /// Never: a seat has expired once it was seen unchanged for its lease.
    Never,
    /// Always: for a clock that cannot step, such as the one that all processes of a machine share.
    Always,
}

/// How soon a seat may be taken whose session is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takeover {
    /// At once: the session's end is taken for the leader's end.
    Instant,
    /// A lease after the session was first seen to be over.
    #[default]
    Safe,
}

/// How much a store's push can be counted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Push {
    /// It has none.
    #[default]
    None,
    /// It may be lost without a word.
    Hint,
    /// A watch that is no longer served resolves.
    Proven,
}
