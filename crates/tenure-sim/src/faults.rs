//! What goes wrong: one file each.
//!
//! A fault either shapes the fate of calls or strikes now and then; each is on or off per seed. A
//! fault that would break what is *not* promised holds back by itself: its guard says why.

pub(crate) mod clock_steps;
pub(crate) mod deletion;
pub(crate) mod fate;
pub(crate) mod flapping;
pub(crate) mod illness;
pub(crate) mod kills;
pub(crate) mod partition;
pub(crate) mod pauses;
pub(crate) mod roll_back;
pub(crate) mod sessions_ended;
pub(crate) mod severed;
pub(crate) mod step_downs;
pub(crate) mod stops;
pub(crate) mod store_restart;
pub(crate) mod transfers;
pub(crate) mod watches_cut;
pub(crate) mod whims;
pub(crate) mod writes_fail;

use tenure_protocol::{Dice, Score};

use crate::plan::{Kind, Weather};
use crate::world::World;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Requests and replies are lost.
    Loss,
    /// Messages are slow.
    Delay,
    /// A write lands long after its sender has stopped waiting.
    LateEffects,
    /// The store refuses or denies calls for no reason.
    Refusals,
    /// A node is cut off from the store.
    Partition,
    /// A process stands still.
    Pauses,
    /// The store's clock is set.
    ClockSteps,
    /// The store ends a session before its time.
    SessionsEnded,
    /// The seat is deleted.
    Deletion,
    /// The seat is set back to what it was.
    RollBack,
    /// The store restarts with another identity, maybe without its last writes.
    StoreRestart,
    /// Someone asks the leader to step down.
    StepDowns,
    /// A candidate is stopped, and started again later.
    Stops,
    /// A process is killed, and starts again under the same id.
    Kills,
    /// Candidates give up after some errors in a row.
    GiveUp,
    /// Users of manual elections bid and let go.
    Whims,
    /// Someone hands over to a named heir.
    Transfers,
    /// A candidate is unwell for a while.
    Illness,
    /// A candidate is well every other moment.
    Flapping,
    /// A node does not hear of writes for a while, and then of some again.
    WatchesCut,
    /// Readings take nearly as long as they may on their way to the store.
    SlowLooks,
    /// A leader is cut off right after a write of its own was answered.
    Severed,
    /// Readings work, and no write does.
    WritesFail,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 23] = [
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
        Self::Whims,
        Self::Transfers,
        Self::Illness,
        Self::Flapping,
        Self::WatchesCut,
        Self::SlowLooks,
        Self::Severed,
        Self::WritesFail,
    ];

    /// In words.
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
            Self::Whims => "manual bids and releases",
            Self::Transfers => "transfers",
            Self::Illness => "candidates unwell for a while",
            Self::Flapping => "candidates well every other moment",
            Self::WatchesCut => "watches cut",
            Self::SlowLooks => "readings slow on their way",
            Self::Severed => "leaders cut off right after a renewal",
            Self::WritesFail => "no write worked for a while",
        }
    }

    /// Lets the fault happen; false if its guard holds it back or there is nothing to do.
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
            Self::Whims => whims::strike(world),
            Self::Transfers => transfers::strike(world),
            Self::Illness => illness::strike(world),
            Self::Flapping => flapping::strike(world),
            Self::WatchesCut => watches_cut::strike(world),
            Self::WritesFail => writes_fail::strike(world),
            Self::Loss
            | Self::Delay
            | Self::LateEffects
            | Self::Refusals
            | Self::GiveUp
            | Self::SlowLooks
            | Self::Severed => false,
        }
    }

    /// How many leases lie between two strikes, on average; `None` for what shapes calls.
    pub(crate) fn leases_between(self) -> Option<u64> {
        match self {
            Self::Loss
            | Self::Delay
            | Self::LateEffects
            | Self::Refusals
            | Self::GiveUp
            | Self::SlowLooks
            | Self::Severed => None,
            Self::Deletion | Self::RollBack | Self::StoreRestart => Some(3),
            Self::ClockSteps => Some(4),
            Self::Whims | Self::WatchesCut => Some(1),
            Self::Flapping | Self::WritesFail => Some(4),
            _ => Some(2),
        }
    }
}

/// Faults that bring out the worst in each other; focused seeds have one of these and one more.
const THEMES: [&[FaultKind]; 28] = [
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
    &[FaultKind::Transfers, FaultKind::LateEffects, FaultKind::Illness],
    &[FaultKind::Transfers, FaultKind::Loss, FaultKind::SessionsEnded],
    &[FaultKind::Illness, FaultKind::Partition],
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
];

/// What may happen in good order.
const ORDERLY: [FaultKind; 5] =
    [FaultKind::StepDowns, FaultKind::Stops, FaultKind::Transfers, FaultKind::Illness, FaultKind::Flapping];

/// What an unwell candidate may report: from bad to hardly worth mentioning.
fn unwell(dice: &mut Dice) -> Score {
    Score::new([0.0, 0.4, 0.79][dice.below(3) as usize]).expect("it is between 0 and 1")
}

/// Which faults a seed has.
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
                faults.add(FaultKind::Whims);
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
                faults.add(FaultKind::Whims);
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
        // Whoever gives up forgets what it has seen of a seat that was lost since; and there must be
        // someone left who remembers.
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
