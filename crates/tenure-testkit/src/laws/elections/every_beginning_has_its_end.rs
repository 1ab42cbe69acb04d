//! Whoever was told that a term began is told that it ended, before the next begins: listeners that
//! read at once, listeners so slow that they miss most of it, and handlers.
//!
//! Protects from: "stopped leading" that is never told, and work that is therefore never stopped.

use std::sync::{Arc, Mutex};

use tenure_core::{Event, Token};

use crate::bench::now;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

/// So many that a queue of reasonable length overflows.
const TERMS: usize = 80;

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("ends");
    let handled: Arc<Mutex<Vec<Step>>> = Arc::default();
    let (started, stopped) = (handled.clone(), handled.clone());
    let one = bench.stand_with(&seat, "one", |election| {
        election
            .manual()
            .on_started_leading(move |term| note(&started, Step::Began(term.token())))
            .on_stopped_leading(move |token, _| note(&stopped, Step::Ended(token)))
    })?;
    let mut slow = one.election.events();
    let mut half_asleep = one.election.events();
    let mut heard = Vec::new();
    let until = now() + bench.patience;
    for number in 0..TERMS {
        ensure!(now() < until, "{number} terms, each let go at once, took {:?}", bench.patience);
        let term = bench
            .within("that a free seat is acquired", async {
                loop {
                    match one.election.try_acquire().await {
                        Ok(Some(term)) => return term,
                        _ => tokio::time::sleep(bench.lease() / 100).await,
                    }
                }
            })
            .await?;
        if number == 0 {
            // Hears of the first beginning, then nods off.
            let event = bench
                .event("the first beginning", &mut half_asleep, |event| matches!(event, Event::BecameLeader { .. }))
                .await?;
            heard.extend(Step::of(&event));
        }
        let view = one.election.term().unwrap_or_else(|| term.clone());
        drop(term);
        bench.within("that a term ends when it is let go", view.ended()).await?;
    }
    one.election.stop();
    one.stopped().await;
    for (who, events, mut heard) in [("slow", &mut slow, Vec::new()), ("dozing", &mut half_asleep, heard)] {
        while let Some(event) = bench.within("the next event", events.next()).await? {
            heard.extend(Step::of(&event));
        }
        pairs_up(&format!("a {who} listener"), &heard)?;
    }
    let handled = handled.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    ensure!(handled.len() >= 2, "the handlers were told of nothing");
    pairs_up("the handlers", &handled)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Began(Token),
    Ended(Token),
}

impl Step {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::BecameLeader { term } => Some(Self::Began(term.token())),
            Event::LostLeadership { token, .. } => Some(Self::Ended(*token)),
            _ => None,
        }
    }
}

fn note(steps: &Mutex<Vec<Step>>, step: Step) {
    steps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(step);
}

fn pairs_up(who: &str, steps: &[Step]) -> Verdict {
    let mut open = None;
    for step in steps {
        match (*step, open) {
            (Step::Began(token), None) => open = Some(token),
            (Step::Ended(token), Some(began)) if began == token => open = None,
            (step, open) => ensure!(false, "{who} heard {step:?} while {open:?} was open"),
        }
    }
    ensure!(open.is_none(), "{who} heard that term {open:?} began, and never that it ended");
    Ok(())
}
