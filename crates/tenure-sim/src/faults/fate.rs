//! What happens to one call: it is lost, slow, refused, or takes effect late.

use std::time::Duration;

use tenure_protocol::{Dice, Fault};

use super::FaultKind;
use crate::clock::nanos;
use crate::node::NodeNr;
use crate::plan::Weather;
use crate::world::World;

/// What happens to one call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// It never reaches the store.
    pub(crate) request_lost: bool,
    /// It takes effect, but the answer is lost.
    pub(crate) reply_lost: bool,
    /// The store refuses it, without an effect.
    pub(crate) refused: Option<Fault>,
    /// How long the request takes, and how long the reply.
    pub(crate) there: u64,
    pub(crate) back: u64,
}

/// The sort of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Read,
    Bid,
    /// A renewal, a release or a heartbeat.
    Keep,
    /// A call for the board.
    Side,
}

/// How many writes, and how many reads, fail at most in gentle weather until one succeeds: two renewals with
/// their read-backs, which is what the timing allows for.
const FAILURES: u32 = 2;

/// Decides what happens to a call of this node.
pub(crate) fn of_call(world: &mut World, node: NodeNr, sort: Sort) -> Fate {
    let plan = &world.plan;
    let (faults, lease, latency) = (plan.faults, nanos(plan.parts[node].lease), plan.latency);
    let gentle = plan.weather == Weather::Gentle;
    let attempt = nanos(world.nodes[node].rules.timing.call_timeout());
    let storm = world.now < plan.quiet_at;
    let until_quiet = plan.quiet_at.saturating_sub(world.now);
    let cut_off = world.now < world.nodes[node].cut_off_until;
    let more = if plan.weather == Weather::Focused { 2 } else { 1 };
    let failed = &mut world.nodes[node].failed;
    let mut uncounted = 0;
    let failed = match sort {
        Sort::Read => &mut failed.1,
        Sort::Bid | Sort::Keep => &mut failed.0,
        Sort::Side => &mut uncounted,
    };
    let dice = &mut world.dice;
    let mut fate = Fate { there: one_way(dice, latency), back: one_way(dice, latency), ..Fate::default() };
    let mut struck = Vec::new();
    if !storm {
        return fate;
    }
    if cut_off {
        fate.request_lost = true;
        world.trouble(node);
        return fate;
    }
    if faults.has(FaultKind::Loss) && dice.chance(150 * more) && (!gentle || *failed < FAILURES) {
        if dice.chance(500) {
            fate.request_lost = true
        } else {
            fate.reply_lost = true
        }
        *failed += 1;
        struck.push(FaultKind::Loss);
    }
    if faults.has(FaultKind::Loss) && sort == Sort::Bid && more > 1 && dice.chance(400) {
        // Bids are few, and those that land much later are the most dangerous calls.
        fate.request_lost = true;
        struck.push(FaultKind::Loss);
    }
    if faults.has(FaultKind::SlowLooks) && sort == Sort::Read && dice.chance(500) {
        fate.there = attempt / 2 + dice.below(attempt * 9 / 20);
        struck.push(FaultKind::SlowLooks);
    }
    if faults.has(FaultKind::Delay) && dice.chance(200 * more) {
        fate.there += dice.below(lease / 12);
        fate.back += dice.below(lease / 12);
        struck.push(FaultKind::Delay);
    }
    if faults.has(FaultKind::LateEffects) && matches!(sort, Sort::Bid | Sort::Keep) && dice.chance(100 * more) {
        // A call that is in flight when faults stop takes effect soon after.
        fate.there += dice.below(lease * 3).min(until_quiet);
        struck.push(FaultKind::LateEffects);
    }
    if faults.has(FaultKind::Refusals) && dice.chance(80 * more) {
        fate.refused = Some(if dice.chance(200) { Fault::Denied } else { Fault::Refused });
        struck.push(FaultKind::Refusals);
    }
    if !struck.is_empty() && sort != Sort::Side {
        world.trouble(node);
    }
    for fault in struck {
        world.count(fault);
    }
    fate
}

fn one_way(dice: &mut Dice, latency: Duration) -> u64 {
    1 + dice.below(nanos(latency))
}
