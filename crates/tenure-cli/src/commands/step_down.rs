//! `tenure step-down`: asks the leader to hand over.

use serde_json::json;
use tenure::{Event, Leader};

use super::{leader_json, leader_words, print};
use crate::args::{Global, StepDown};
use crate::failure::Failure;
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &StepDown) -> Result<u8, Failure> {
    let elections = setup.elections()?;
    if elections.look(&args.election).await?.leader.is_none() {
        return tell(global, args, None, false).map(|()| 1);
    }
    let observer = elections.observe(&args.election)?;
    let mut events = observer.events();
    // The observer must have seen the leader before it can ask it.
    let seen = async {
        while let Some(event) = events.next().await {
            if matches!(event, Event::LeaderChanged { leader: Some(_) }) {
                return;
            }
        }
    };
    let patience = std::time::Duration::from_secs(10);
    if tokio::time::timeout(patience, seen).await.is_err() {
        return Err(Failure::new("the leader is gone or the store does not answer: look again with `tenure status`"));
    }
    let Some(leader) = observer.request_step_down().await? else {
        return tell(global, args, None, false).map(|()| 1);
    };
    let Some(wait) = args.wait else {
        return tell(global, args, Some(&leader), false).map(|()| 0);
    };
    let handed_over = async {
        while let Some(event) = events.next().await {
            if let Event::LeaderChanged { leader: now } = event
                && now.is_none_or(|now| now.token != leader.token)
            {
                return;
            }
        }
    };
    if tokio::time::timeout(wait, handed_over).await.is_err() {
        let who = leader_words(&leader);
        return Err(Failure::new(format!("{who} was asked but still leads: look at its log, or wait longer")));
    }
    tell(global, args, Some(&leader), true).map(|()| 0)
}

fn tell(global: &Global, args: &StepDown, asked: Option<&Leader>, handed_over: bool) -> Result<(), Failure> {
    if global.json {
        let asked = asked.map(leader_json);
        return print(json!({ "election": args.election, "asked": asked, "handed_over": handed_over }));
    }
    if global.quiet {
        return Ok(());
    }
    match asked {
        None => print("nobody leads"),
        Some(leader) if handed_over => print(format!("{} has handed over", leader_words(leader))),
        Some(leader) => print(format!("asked {} to hand over", leader_words(leader))),
    }
}
