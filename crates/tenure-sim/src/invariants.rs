//! What must hold whatever goes wrong: one file each.

mod asks_with_pauses;
mod begin_and_end;
mod begins_with_room;
mod failing_store_spared;
mod free_seat_taken;
mod hand_overs;
mod heir_first;
mod highest_first;
mod looks_are_few;
mod no_false_loss;
mod no_livelock;
mod no_ping_pong;
mod one_leader;
mod progress;
mod released_after_drained;
mod renewals_not_wasted;
mod roster_is_true;
mod steps_aside;
mod stop_ends;
mod tokens_rise;
mod unfit_lead_not;
mod work_in_term;

use tenure_protocol::{Action, Input};

use crate::node::NodeNr;
use crate::plan::Plan;
use crate::world::World;

pub(crate) use progress::bound as progress_bound;

/// Something that an invariant may look at.
pub(crate) enum What<'a> {
    /// A machine is about to take this in.
    TakesIn(NodeNr, &'a Input),
    /// A machine asked for this, and it has been done or published.
    Acted(NodeNr, &'a Action),
    /// A machine has taken a step.
    Stepped(NodeNr),
    /// A process goes on after a pause, and has not taken anything in yet.
    Resumed,
    /// A process is about to be gone.
    Gone(NodeNr),
    /// Something has happened.
    Moved,
    /// The world has come to its end.
    Finished,
}

/// Something that must hold.
pub(crate) trait Invariant {
    /// What it says, in few words.
    fn name(&self) -> &'static str;

    /// Looks at what happened; an error tells how it broke the invariant.
    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String>;
}

/// All of them.
pub(crate) fn all(plan: &Plan) -> Vec<Box<dyn Invariant>> {
    let nodes = plan.parts.len();
    vec![
        Box::new(one_leader::OneLeader),
        Box::new(tokens_rise::TokensRise::default()),
        Box::new(begin_and_end::BeginAndEnd::new(nodes)),
        Box::new(begins_with_room::BeginsWithRoom),
        Box::new(work_in_term::WorkInTerm),
        Box::new(released_after_drained::ReleasedAfterDrained),
        Box::new(no_false_loss::NoFalseLoss),
        Box::new(steps_aside::StepsAside::new(nodes)),
        Box::new(unfit_lead_not::UnfitLeadNot),
        Box::new(heir_first::HeirFirst::new(nodes)),
        Box::new(highest_first::HighestFirst::default()),
        Box::new(no_ping_pong::NoPingPong::new(nodes)),
        Box::new(asks_with_pauses::AsksWithPauses::new(nodes)),
        Box::new(free_seat_taken::FreeSeatTaken::default()),
        Box::new(stop_ends::StopEnds::new(nodes)),
        Box::new(no_livelock::NoLivelock::new(nodes)),
        Box::new(looks_are_few::LooksAreFew::new(nodes)),
        Box::new(failing_store_spared::FailingStoreSpared::new(nodes)),
        Box::new(renewals_not_wasted::RenewalsNotWasted::new(nodes)),
        Box::new(roster_is_true::RosterIsTrue),
        Box::new(progress::Progress),
    ]
}

/// The names of all invariants.
pub(crate) fn names() -> Vec<&'static str> {
    all(&Plan::of(0)).iter().map(|invariant| invariant.name()).collect()
}
