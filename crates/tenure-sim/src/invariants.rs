//! The invariants, which must hold whatever faults occur: one file each.

mod begin_and_end;
mod begins_with_time_left;
mod failing_store_spared;
mod free_seat_taken;
mod hand_overs;
mod heir_first;
mod highest_first;
mod looks_are_few;
mod no_false_loss;
mod no_livelock;
mod no_ping_pong;
mod occasions_run_once;
mod one_leader;
mod progress;
mod released_after_drained;
mod renewals_not_wasted;
mod requests_apart;
mod roster_is_true;
mod steps_aside;
mod stop_ends;
mod tokens_rise;
mod unhealthy_do_not_lead;
mod work_in_term;

use tenure_protocol::{Action, Input};

use crate::node::NodeNr;
use crate::plan::Plan;
use crate::world::World;

pub(crate) use progress::bound as progress_bound;

/// An event that an invariant can check.
pub(crate) enum What<'a> {
    /// A machine is about to process this input.
    TakesIn(NodeNr, &'a Input),
    /// A machine returned this action, and it has been performed or published.
    Acted(NodeNr, &'a Action),
    /// A machine has taken a step.
    Stepped(NodeNr),
    /// A process resumes after a pause, and has not processed any input yet.
    Resumed,
    /// A process is about to end.
    Gone(NodeNr),
    /// An event has been processed.
    Moved,
    /// The world has ended.
    Finished,
}

/// A condition that must hold in every world.
pub(crate) trait Invariant {
    /// Returns the name of the invariant, as reports and mutants refer to it.
    fn name(&self) -> &'static str;

    /// Checks an event. The error says how it violates the invariant.
    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String>;
}

/// Returns all invariants.
pub(crate) fn all(plan: &Plan) -> Vec<Box<dyn Invariant>> {
    let nodes = plan.parts.len();
    let mut all = always(nodes);
    if plan.occasions.is_none() {
        // Candidates leave a claimed occasion, so a free seat can stay free.
        all.extend(when_all_stand(nodes));
    }
    all
}

fn always(nodes: usize) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(one_leader::OneLeader),
        Box::new(tokens_rise::TokensRise::default()),
        Box::new(begin_and_end::BeginAndEnd::new(nodes)),
        Box::new(begins_with_time_left::BeginsWithTimeLeft),
        Box::new(work_in_term::WorkInTerm),
        Box::new(released_after_drained::ReleasedAfterDrained),
        Box::new(no_false_loss::NoFalseLoss),
        Box::new(steps_aside::StepsAside::new(nodes)),
        Box::new(unhealthy_do_not_lead::UnhealthyDoNotLead),
        Box::new(no_ping_pong::NoPingPong::new(nodes)),
        Box::new(requests_apart::RequestsApart::new(nodes)),
        Box::new(stop_ends::StopEnds::new(nodes)),
        Box::new(no_livelock::NoLivelock::new(nodes)),
        Box::new(looks_are_few::LooksAreFew::new(nodes)),
        Box::new(failing_store_spared::FailingStoreSpared::new(nodes)),
        Box::new(renewals_not_wasted::RenewalsNotWasted::new(nodes)),
        Box::new(roster_is_true::RosterIsTrue),
        Box::new(occasions_run_once::OccasionsRunOnce::default()),
    ]
}

fn when_all_stand(nodes: usize) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(heir_first::HeirFirst::new(nodes)),
        Box::new(highest_first::HighestFirst::default()),
        Box::new(free_seat_taken::FreeSeatTaken::default()),
        Box::new(progress::Progress),
    ]
}

/// Returns the names of all invariants.
pub(crate) fn names() -> Vec<&'static str> {
    let nodes = 0;
    always(nodes).iter().chain(&when_all_stand(nodes)).map(|invariant| invariant.name()).collect()
}
