//! The plan of a seed: the store, the candidates, and the faults.

use std::time::Duration;

use tenure_protocol::{ClockTrust, Dice, Durations, Push, Rules, Score, Takeover, Timing};

use crate::clock::{Time, nanos};
use crate::faults::{FaultKind, Faults};

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A follower only sees that versions change.
    Observe,
    /// A follower only sees that versions change, and listeners are notified of each write: late, twice, or not
    /// at all.
    Received,
    /// The store reports its time, which counts where a candidate's own clock vouches for it.
    ClockVouched,
    /// The store reports its time, which never counts.
    ClockObserve,
    /// The store reports its time, which never steps and always counts.
    ClockStore,
    /// The store reports its time, which never steps, and whether the holder's process is gone.
    Lock,
    /// The store has sessions, and the end of a session counts as the end of the leader.
    SessionInstant,
    /// The store has sessions, and followers wait for a lease after the end of one.
    SessionSafe,
}

impl Kind {
    /// All kinds of stores.
    pub(crate) const ALL: [Self; 8] = [
        Self::Observe,
        Self::Received,
        Self::ClockVouched,
        Self::ClockObserve,
        Self::ClockStore,
        Self::Lock,
        Self::SessionInstant,
        Self::SessionSafe,
    ];

    /// Returns the name of this kind, for the summary.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Received => "observe, notified of each write",
            Self::ClockVouched => "clock, vouched",
            Self::ClockObserve => "clock, clock_trust=never",
            Self::ClockStore => "clock, clock_trust=always",
            Self::Lock => "clock and locks",
            Self::SessionInstant => "session, takeover=instant",
            Self::SessionSafe => "session, takeover=safe",
        }
    }

    /// Returns whether the end of a holder's session or process counts as the end of the holder.
    pub(crate) fn takes_over_at_once(self) -> bool {
        matches!(self, Self::SessionInstant | Self::Lock)
    }

    pub(crate) fn has_sessions(self) -> bool {
        matches!(self, Self::SessionInstant | Self::SessionSafe)
    }
}

/// How many faults a seed has, and of which sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// No faults.
    Calm,
    /// Calls fail, but never more in a row than the timing allows for.
    Gentle,
    /// No faults, but candidates step down, hand over, become unhealthy, stop and start again.
    Orderly,
    /// A little of every fault.
    Rough,
    /// Two or three kinds of faults, many of each.
    Focused,
    /// Leaders are cut off right after a write, while others look, and something happens to the seat at that
    /// moment.
    Ambush,
}

impl Weather {
    /// Returns whether no call ever fails.
    pub(crate) fn is_orderly(self) -> bool {
        matches!(self, Self::Calm | Self::Orderly)
    }

    /// Returns whether more calls fail than the timing allows for.
    pub(crate) fn is_rough(self) -> bool {
        matches!(self, Self::Rough | Self::Focused | Self::Ambush)
    }
}

/// The priorities that candidates can have: none, two levels, or many.
const PRIORITIES: [&[i32]; 5] = [&[0], &[0], &[0, 1], &[-1, 0], &[i32::MIN, -1, 0, 0, 1, 2, i32::MAX]];

/// The part of one candidate in the plan.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) lease: Duration,
    pub(crate) ppm: i64,
    pub(crate) manual: bool,
    pub(crate) long_grace: bool,
    pub(crate) release_on_stop: bool,
    /// Its process outlives its election, and starts the next one as the same incarnation.
    pub(crate) outlives: bool,
    pub(crate) give_up_after: Option<Duration>,
    pub(crate) priority: i32,
    pub(crate) preempt: bool,
    pub(crate) min_health: Score,
    pub(crate) step_down_when_unhealthy: bool,
}

/// Occasions for which candidates stand when they start, and again when they have stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasions {
    /// The time between two occasions.
    pub(crate) every: Time,
    /// An occasion whose work was not done can be claimed again.
    pub(crate) resumes: bool,
}

impl Occasions {
    /// One seed in ten has occasions. They have their own dice, so that all other worlds are as they were without them.
    fn of(seed: u64, lease: Duration) -> Option<Self> {
        let mut dice = Dice::new(seed ^ 0x6f63_6361_7369_6f6e);
        dice.roll();
        let has_occasions = dice.chance(100);
        let every = nanos(lease) / 2 * (1 + dice.below(8));
        has_occasions.then(|| Self { every, resumes: dice.chance(500) })
    }
}

/// What a seed determines.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) weather: Weather,
    pub(crate) faults: Faults,
    pub(crate) parts: Vec<Part>,
    pub(crate) push: Push,
    pub(crate) drift_ppm: u32,
    /// The longest time of a message, one way, without faults.
    pub(crate) latency: Duration,
    /// How fast or slow the store's clock runs.
    pub(crate) store_ppm: i64,
    /// The store matches renewals by holder and term, not by version.
    pub(crate) renews_by_holder: bool,
    /// The store numbers its writes itself, and never issues the same version twice.
    pub(crate) own_versions: bool,
    pub(crate) has_floor: bool,
    pub(crate) has_identity: bool,
    pub(crate) has_board: bool,
    /// The store itself refuses bids for a seat whose session is alive. Otherwise it only compares versions.
    pub(crate) guards_sessions: bool,
    /// A renewal sends a heartbeat of its own. Otherwise it relies on the shared one.
    pub(crate) renewal_beats: bool,
    /// The TTL that a session is granted, in percent of the lease that was asked for.
    pub(crate) granted_percent: u32,
    /// Candidates stand for occasions.
    pub(crate) occasions: Option<Occasions>,
    /// When faults stop, and when the world ends.
    pub(crate) quiet_at: Time,
    pub(crate) ends_at: Time,
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x7465_6e75_7265_2121);
        dice.roll();
        let kind = Kind::ALL[dice.below(Kind::ALL.len() as u64) as usize];
        let weather = match dice.below(20) {
            0 => Weather::Calm,
            1 => Weather::Gentle,
            2 | 3 => Weather::Orderly,
            4..=10 => Weather::Focused,
            11..=15 => Weather::Ambush,
            _ => Weather::Rough,
        };
        let drift_ppm = [10_000, 10_000, 30_000, dice.below(100_001) as u32][dice.below(4) as usize];
        let longest = longest(&mut dice);
        let mixed = dice.chance(300) && !matches!(weather, Weather::Gentle | Weather::Ambush);
        let has_identity = dice.chance(500);
        let faults = Faults::of(weather, kind, has_identity, &mut dice);
        let nodes = 3 + dice.below(3) as usize;
        let extremes = dice.chance(500) || weather == Weather::Ambush;
        let priorities = PRIORITIES[dice.below(PRIORITIES.len() as u64) as usize];
        let preempts = dice.chance(500);
        let parts = (0..nodes)
            .map(|nr| Part {
                lease: if mixed { longest / [1, 2, 3][dice.below(3) as usize] } else { longest },
                ppm: rate(drift_ppm, extremes, &mut dice),
                manual: nr == 0 && dice.chance(250) && weather.is_rough(),
                long_grace: dice.chance(150),
                release_on_stop: !dice.chance(100) || weather == Weather::Orderly,
                outlives: dice.chance(300),
                give_up_after: (faults.has(FaultKind::GiveUp) && dice.chance(500))
                    .then(|| longest * (1 + dice.below(3) as u32)),
                priority: priorities[dice.below(priorities.len() as u64) as usize],
                preempt: preempts && dice.chance(700),
                min_health: min_health(&mut dice),
                step_down_when_unhealthy: dice.chance(800),
            })
            .collect();
        let granted_percent =
            if kind.has_sessions() && weather.is_rough() { [100, 100, 130, 85][dice.below(4) as usize] } else { 100 };
        let quiet_at = nanos(longest) * (8 + dice.below(10));
        Self {
            seed,
            kind,
            weather,
            faults,
            parts,
            push: [Push::None, Push::Hint, Push::Proven][dice.below(3) as usize],
            drift_ppm,
            // In millionths of a lease: from almost nothing to 4 ms per second.
            latency: longest.mul_f64([0.07, 33.0, 333.0, 4000.0][dice.below(4) as usize] / 1e6),
            store_ppm: rate(drift_ppm, extremes, &mut dice),
            renews_by_holder: dice.chance(500),
            own_versions: dice.chance(500),
            has_floor: dice.chance(300),
            has_identity,
            has_board: dice.chance(800),
            guards_sessions: dice.chance(500),
            renewal_beats: dice.chance(500) || matches!(weather, Weather::Gentle | Weather::Ambush),
            granted_percent,
            occasions: Occasions::of(seed, longest),
            quiet_at,
            ends_at: quiet_at + crate::invariants::progress_bound(longest) + nanos(longest),
        }
    }

    /// Returns the longest lease of all candidates.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.parts.iter().map(|part| part.lease).max().unwrap_or_default()
    }

    pub(crate) fn rules(&self, node: usize) -> Rules {
        let part = &self.parts[node];
        let mut asked = Durations { drift_ppm: self.drift_ppm, ..Durations::of(part.lease) };
        if part.long_grace {
            asked.stop_grace = Some(part.lease * 2);
        }
        asked.give_up_after = part.give_up_after;
        let timing = asked.check().expect("the default durations fit");
        let mut rules = Rules::new(timing);
        rules.clock_trust = match self.kind {
            Kind::ClockObserve => ClockTrust::Never,
            Kind::ClockStore | Kind::Lock => ClockTrust::Always,
            _ => ClockTrust::Vouched,
        };
        rules.takeover = if self.kind.takes_over_at_once() { Takeover::Instant } else { Takeover::Safe };
        rules.push = self.push;
        rules.spread = !self.kind.has_sessions();
        rules.stands = !part.manual;
        rules.held_by_session = self.kind.has_sessions();
        rules.release_on_stop = part.release_on_stop;
        rules.priority = part.priority;
        rules.preempt = part.preempt;
        rules.min_health = part.min_health;
        rules.step_down_when_unhealthy = part.step_down_when_unhealthy;
        rules
    }
}

/// Returns 15 s in most seeds, otherwise any lease that is allowed.
fn longest(dice: &mut Dice) -> Duration {
    if dice.chance(700) {
        return Duration::from_secs(15);
    }
    // Three times the shortest lease, because some candidates have a third of it.
    let (shortest, most) = (Timing::SHORTEST_LEASE.as_secs_f64() * 3.0, Timing::LONGEST_LEASE.as_secs_f64());
    let share = dice.below(1001) as f64 / 1000.0;
    Duration::from_secs_f64((shortest * (most / shortest).powf(share)).clamp(shortest, most))
}

/// Returns the default in most seeds, otherwise 0, 0.5 or 1.
fn min_health(dice: &mut Dice) -> Score {
    match dice.below(8) {
        0 => Score::ZERO,
        1 => Score::FULL,
        2 => Score::new(0.5).expect("0.5 is a valid score"),
        _ => Rules::MIN_HEALTH,
    }
}

fn rate(drift_ppm: u32, extremes: bool, dice: &mut Dice) -> i64 {
    let most = i64::from(drift_ppm);
    if extremes {
        [-most, most][dice.below(2) as usize]
    } else {
        dice.below(2 * u64::from(drift_ppm) + 1) as i64 - most
    }
}
