//! The faults, one file each.
//!
//! A fault either changes what happens to calls, or strikes at random times. Each seed has some of the faults.
//! A fault never does anything that the protocol does *not* promise to survive: its guard refuses, and says
//! why.

pub(crate) mod clock_steps;
pub(crate) mod deletion;
pub(crate) mod fate;
pub(crate) mod flapping;
pub(crate) mod kills;
pub(crate) mod manual_bids;
pub(crate) mod partition;
pub(crate) mod pauses;
pub(crate) mod roll_back;
pub(crate) mod sessions_ended;
pub(crate) mod severed;
pub(crate) mod step_downs;
pub(crate) mod stops;
pub(crate) mod store_restart;
pub(crate) mod transfers;
pub(crate) mod unhealthy;
pub(crate) mod watches_cut;
pub(crate) mod writes_fail;

use tenure_protocol::{Dice, Score};

use crate::plan::{Kind, Weather};
use crate::world::World;

/// The kinds of faults that a world can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Requests and replies are lost on their way.
    Loss,
    /// Messages take up to a twelfth of a lease longer.
    Delay,
    /// A write takes effect long after its sender has timed out.
    LateEffects,
    /// The store refuses or denies calls without a reason.
    Refusals,
    /// A node is cut off from the store for a while.
    Partition,
    /// A process pauses, while its clock continues.
    Pauses,
    /// The store's clock is set forward or back.
    ClockSteps,
    /// The store ends a session before its TTL has passed.
    SessionsEnded,
    /// The seat is deleted from the store, as by an operator.
    Deletion,
    /// The seat is set back to an earlier record.
    RollBack,
    /// The store restarts with another identity, possibly without its last writes.
    StoreRestart,
    /// A user or a request asks the leader to step down.
    StepDowns,
    /// A candidate is stopped, and started again later.
    Stops,
    /// A process is killed, and starts again under the same id.
    Kills,
    /// Candidates give up after the store has failed for some time.
    GiveUp,
    /// Users of manual elections bid and release at any time.
    ManualBids,
    /// A user or a request asks the leader to hand over to an heir.
    Transfers,
    /// A candidate reports bad health for a while.
    Unhealthy,
    /// The health of a candidate changes again and again.
    Flapping,
    /// A node gets no notifications of writes for a while, and then some of them twice.
    WatchesCut,
    /// Reads take almost the whole time-out on their way to the store.
    SlowLooks,
    /// A leader is cut off right after a write of its own was answered.
    Severed,
    /// Reads succeed, but all writes fail for a while.
    WritesFail,
    /// A killed process has left a last will. It is executed late or twice, or loses.
    Wills,
}

impl FaultKind {
    /// All kinds of faults, in the order in which the summary lists them.
    pub const ALL: [Self; 24] = [
        Self::Loss,
        Self::Delay,
        Self::LateEffects,
        Self::Refusals,
        Self::Partition,
        Self::Pauses,
        Self::ClockSteps,
        Self::SessionsEnded,
        Self::Deletion,
        Self::RollBack,
        Self::StoreRestart,
        Self::StepDowns,
        Self::Stops,
        Self::Kills,
        Self::GiveUp,
        Self::ManualBids,
        Self::Transfers,
        Self::Unhealthy,
        Self::Flapping,
        Self::WatchesCut,
        Self::SlowLooks,
        Self::Severed,
        Self::WritesFail,
        Self::Wills,
    ];

    /// Returns what the summary calls this kind of fault.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "messages lost",
            Self::Delay => "messages slow",
            Self::LateEffects => "writes landing late",
            Self::Refusals => "calls refused",
            Self::Partition => "nodes cut off",
            Self::Pauses => "processes paused",
            Self::ClockSteps => "store clock set",
            Self::SessionsEnded => "sessions ended early",
            Self::Deletion => "seat deleted",
            Self::RollBack => "seat rolled back",
            Self::StoreRestart => "store restarted",
            Self::StepDowns => "step-downs",
            Self::Stops => "stops",
            Self::Kills => "kills",
            Self::GiveUp => "candidates gave up",
            Self::ManualBids => "manual bids and releases",
            Self::Transfers => "transfers",
            Self::Unhealthy => "candidates unhealthy for a while",
            Self::Flapping => "candidates with flapping health",
            Self::WatchesCut => "watches cut",
            Self::SlowLooks => "reads slow on their way",
            Self::Severed => "leaders cut off right after a renewal",
            Self::WritesFail => "times with all writes failing",
            Self::Wills => "seats freed by a last will",
        }
    }

    /// Makes the fault happen. Returns false if its guard refuses or there is nothing to do.
    pub(crate) fn strike(self, world: &mut World) -> bool {
        match self {
            Self::Partition => partition::strike(world),
            Self::Pauses => pauses::strike(world),
            Self::ClockSteps => clock_steps::strike(world),
            Self::SessionsEnded => sessions_ended::strike(world),
            Self::Deletion => deletion::strike(world),
            Self::RollBack => roll_back::strike(world),
            Self::StoreRestart => store_restart::strike(world),
            Self::StepDowns => step_downs::strike(world),
            Self::Stops => stops::strike(world),
            Self::Kills => kills::strike(world),
            Self::ManualBids => manual_bids::strike(world),
            Self::Transfers => transfers::strike(world),
            Self::Unhealthy => unhealthy::strike(world),
            Self::Flapping => flapping::strike(world),
            Self::WatchesCut => watches_cut::strike(world),
            Self::WritesFail => writes_fail::strike(world),
            Self::Loss
            | Self::Delay
            | Self::LateEffects
            | Self::Refusals
            | Self::GiveUp
            | Self::SlowLooks
            | Self::Severed
            | Self::Wills => false,
        }
    }

    /// Returns how many leases pass between two strikes on average. `None` for faults that change calls.
    pub(crate) fn leases_between(self) -> Option<u64> {
        match self {
            Self::Loss
            | Self::Delay
            | Self::LateEffects
            | Self::Refusals
            | Self::GiveUp
            | Self::SlowLooks
            | Self::Severed
            | Self::Wills => None,
            Self::Deletion | Self::RollBack | Self::StoreRestart => Some(3),
            Self::ClockSteps => Some(4),
            Self::ManualBids | Self::WatchesCut => Some(1),
            Self::Flapping | Self::WritesFail => Some(4),
            _ => Some(2),
        }
    }
}

/// Faults that are most dangerous together. A focused seed has one of these sets and one more fault.
const THEMES: [&[FaultKind]; 31] = [
    &[FaultKind::LateEffects, FaultKind::Deletion],
    &[FaultKind::Loss, FaultKind::Deletion, FaultKind::Stops],
    &[FaultKind::Loss, FaultKind::RollBack, FaultKind::StepDowns],
    &[FaultKind::Loss, FaultKind::RollBack, FaultKind::SessionsEnded],
    &[FaultKind::LateEffects, FaultKind::RollBack, FaultKind::SessionsEnded],
    &[FaultKind::LateEffects, FaultKind::RollBack, FaultKind::Stops],
    &[FaultKind::StoreRestart, FaultKind::Partition],
    &[FaultKind::StoreRestart, FaultKind::StepDowns, FaultKind::Refusals],
    &[FaultKind::Delay, FaultKind::Partition],
    &[FaultKind::Pauses, FaultKind::Delay],
    &[FaultKind::ClockSteps, FaultKind::SessionsEnded, FaultKind::Pauses],
    &[FaultKind::Loss, FaultKind::Kills],
    &[FaultKind::Transfers, FaultKind::Kills],
    &[FaultKind::Transfers, FaultKind::LateEffects, FaultKind::Unhealthy],
    &[FaultKind::Transfers, FaultKind::Loss, FaultKind::SessionsEnded],
    &[FaultKind::Unhealthy, FaultKind::Partition],
    &[FaultKind::Flapping, FaultKind::Pauses],
    &[FaultKind::WatchesCut, FaultKind::Delay, FaultKind::RollBack],
    &[FaultKind::WatchesCut, FaultKind::Pauses, FaultKind::Kills],
    &[FaultKind::SlowLooks, FaultKind::Severed],
    &[FaultKind::LateEffects, FaultKind::RollBack],
    &[FaultKind::Loss, FaultKind::RollBack, FaultKind::Severed],
    &[FaultKind::Loss, FaultKind::LateEffects, FaultKind::RollBack],
    &[FaultKind::Severed, FaultKind::GiveUp],
    &[FaultKind::Severed, FaultKind::Stops],
    &[FaultKind::WritesFail, FaultKind::Partition],
    &[FaultKind::ClockSteps, FaultKind::Partition],
    &[FaultKind::ClockSteps, FaultKind::Partition, FaultKind::Pauses],
    &[FaultKind::Wills, FaultKind::Kills],
    &[FaultKind::Wills, FaultKind::Kills, FaultKind::LateEffects],
    &[FaultKind::Wills, FaultKind::Kills, FaultKind::Deletion],
];

/// Events that are not faults: everything a user may do.
const ORDERLY: [FaultKind; 5] =
    [FaultKind::StepDowns, FaultKind::Stops, FaultKind::Transfers, FaultKind::Unhealthy, FaultKind::Flapping];

/// Returns a health score that an unhealthy candidate may report: from very bad to almost good enough.
fn unhealthy_score(dice: &mut Dice) -> Score {
    Score::new([0.0, 0.4, 0.79][dice.below(3) as usize]).expect("these are valid scores")
}

/// The set of faults that a seed has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults(u32);

impl Faults {
    pub(crate) fn of(weather: Weather, kind: Kind, has_identity: bool, dice: &mut Dice) -> Self {
        let mut faults = Self::default();
        match weather {
            Weather::Calm => {}
            Weather::Gentle => faults.add(FaultKind::Loss),
            Weather::Orderly => {
                for fault in ORDERLY {
                    if dice.chance(350) {
                        faults.add(fault);
                    }
                }
                faults.add(ORDERLY[dice.below(ORDERLY.len() as u64) as usize]);
            }
            Weather::Focused => {
                for &fault in THEMES[dice.below(THEMES.len() as u64) as usize] {
                    faults.add(fault);
                }
                faults.add(FaultKind::ManualBids);
                faults.add(FaultKind::ALL[dice.below(FaultKind::ALL.len() as u64) as usize]);
            }
            Weather::Ambush => {
                for fault in [FaultKind::SlowLooks, FaultKind::Severed, FaultKind::ClockSteps] {
                    faults.add(fault);
                }
                let often = if kind.has_sessions() { FaultKind::SessionsEnded } else { FaultKind::StoreRestart };
                faults.add(if dice.chance(600) { often } else { FaultKind::Deletion });
                if dice.chance(300) {
                    faults.add(FaultKind::Stops);
                }
            }
            Weather::Rough => {
                for fault in FaultKind::ALL {
                    if dice.chance(300) {
                        faults.add(fault);
                    }
                }
                faults.add(FaultKind::ManualBids);
            }
        }
        let clock_may_step = matches!(kind, Kind::ClockVouched | Kind::ClockObserve);
        for (fault, possible) in [
            (FaultKind::ClockSteps, clock_may_step),
            (FaultKind::SessionsEnded, kind.has_sessions()),
            (FaultKind::WatchesCut, kind == Kind::Received),
            (FaultKind::StoreRestart, has_identity),
        ] {
            if !possible {
                faults.remove(fault);
            }
        }
        // A candidate that gives up forgets what it has seen of a seat that was lost since, and at least one
        // candidate must remember it.
        if [FaultKind::Deletion, FaultKind::RollBack, FaultKind::StoreRestart].iter().any(|&fault| faults.has(fault)) {
            faults.remove(FaultKind::GiveUp);
        }
        faults
    }

    pub(crate) fn has(self, fault: FaultKind) -> bool {
        self.0 & (1 << fault as u32) != 0
    }

    fn add(&mut self, fault: FaultKind) {
        self.0 |= 1 << fault as u32;
    }

    fn remove(&mut self, fault: FaultKind) {
        self.0 &= !(1 << fault as u32);
    }
}
