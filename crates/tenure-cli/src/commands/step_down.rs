//! `tenure step-down`: asks the leader to hand over, to any candidate or to a named one.

use std::time::Duration;

use serde_json::json;
use tenure::{Error, EventKind, Events, Leader};

use super::{leader_json, leader_words, print, printable};
use crate::args::{Global, StepDown};
use crate::failure::Failure;
use crate::json::versioned;
use crate::setup::Setup;

/// How long to wait for a hand-over to a named candidate by default. It takes as long as the leader's command needs to
/// wrap up.
const WAIT_FOR_HEIR: Duration = Duration::from_secs(30);

/// How long to wait until the observer sees the leader, after a first look has found one.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn run(global: &Global, setup: &Setup, args: &StepDown) -> Result<u8, Failure> {
    let elections = setup.elections_to_read()?;
    if elections.look(&args.election).await?.leader.is_none() {
        return print_result(global, setup, args, None, None).map(|()| 1);
    }
    let observer = elections.observe(&args.election)?;
    let mut events = observer.events();
    // The observer must see the leader before it can send it a request.
    let seen = leader_that(&mut events, Option::is_some);
    let Ok(Some(leader)) = tokio::time::timeout(OBSERVE_TIMEOUT, seen).await else {
        return Err(Failure::new("the leader is gone or the store does not respond; check with `tenure status`"));
    };
    let asked = match &args.to {
        None => observer.request_step_down().await?,
        Some(to) => match observer.transfer_to(to).await {
            // The leader has left meanwhile.
            Err(Error::NoLeader { .. }) => None,
            asked => asked.map(|()| Some(leader))?,
        },
    };
    let Some(leader) = asked else {
        return print_result(global, setup, args, None, None).map(|()| 1);
    };
    let wait = args.wait.unwrap_or(if args.to.is_some() { WAIT_FOR_HEIR } else { Duration::ZERO });
    if wait.is_zero() {
        return print_result(global, setup, args, Some(&leader), None).map(|()| 0);
    }
    let mut last = leader.token;
    if let Some(to) = &args.to {
        // The leader that was asked can be a later one than the leader that the observer saw first.
        let look = elections.look(&args.election).await?;
        if look.leader.as_ref().is_some_and(|now| is_named(now, to)) {
            return print_result(global, setup, args, Some(&leader), Some(look.leader.as_ref())).map(|()| 0);
        }
        last = look.token;
    }
    let is_next = |now: &Option<Leader>| match now {
        Some(now) => now.token > last,
        // Without --to, a vacant seat counts as handed over.
        None => args.to.is_none(),
    };
    let who = leader_words(&leader);
    let Ok(next) = tokio::time::timeout(wait, leader_that(&mut events, is_next)).await else {
        let wait = tenure::span::show(wait);
        return Err(Failure::new(match &args.to {
            None => format!("{who} was asked but still leads after {wait}; check its log, or use a longer --wait"),
            Some(to) => {
                format!(
                    "{who} was asked, but {to} does not lead after {wait}; check their logs, or use a longer --wait"
                )
            }
        }));
    };
    match (&args.to, &next) {
        (Some(to), Some(next)) if !is_named(next, to) => Err(Failure::new(format!(
            "{who} has handed over, but {} leads instead of {to}; try again",
            leader_words(next)
        ))),
        _ => print_result(global, setup, args, Some(&leader), Some(next.as_ref())).map(|()| 0),
    }
}

fn is_named(leader: &Leader, name: &str) -> bool {
    &*leader.candidate.id == name || leader.candidate.incarnation.to_string() == name
}

/// Waits for the next leader, or vacancy, that satisfies `is`.
async fn leader_that(events: &mut Events, is: impl Fn(&Option<Leader>) -> bool) -> Option<Leader> {
    while let Some(event) = events.next().await {
        if let EventKind::LeaderChanged { leader, .. } = event.kind
            && is(&leader)
        {
            return leader;
        }
    }
    None
}

/// Prints the leader that was asked and, after a wait, the next leader.
fn print_result(
    global: &Global,
    setup: &Setup,
    args: &StepDown,
    asked: Option<&Leader>,
    next: Option<Option<&Leader>>,
) -> Result<(), Failure> {
    if global.json {
        return print(versioned(json!({
            "election": args.election,
            "store": setup.shown(),
            "asked": asked.map(leader_json),
            "to": args.to,
            "handed_over": next.is_some(),
            "leader": next.flatten().map(leader_json),
        })));
    }
    if global.quiet {
        return Ok(());
    }
    let Some(asked) = asked.map(leader_words) else { return print("no leader") };
    match (&args.to, next) {
        (Some(_), Some(Some(next))) => print(format!("{asked} has handed over: {} leads", leader_words(next))),
        (_, Some(_)) => print(format!("{asked} has handed over")),
        (Some(to), None) => print(format!("asked {asked} to hand over to {}", printable(to))),
        (None, None) => print(format!("asked {asked} to hand over")),
    }
}
