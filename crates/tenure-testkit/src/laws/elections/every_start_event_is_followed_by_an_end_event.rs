//! A listener or handler that was notified of the start of a term is notified of its end before the next start.
//! This holds for listeners that read at once, for listeners so slow that they miss most events, and for handlers.
//!
//! Protects from: a missing end event, so that work is never stopped.

use std::sync::{Arc, Mutex};

use tenure_core::{EventKind, Token};

use crate::bench::now;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

/// The number of terms: enough to overflow a queue of reasonable length.
const TERMS: usize = 80;

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("ends");
    let handled: Arc<Mutex<Vec<Step>>> = Arc::default();
    let (started, stopped) = (handled.clone(), handled.clone());
    let one = bench.stand_with(&seat, "one", |election| {
        election
            .manual()
            .on_event(move |event| {
                if let EventKind::BecameLeader { term } = event.kind {
                    note(&started, Step::Began(term.token()));
                }
            })
            .on_stopped_leading(move |token, _| note(&stopped, Step::Ended(token)))
    })?;
    let mut slow = one.election.events();
    let mut stalled = one.election.events();
    let mut heard = Vec::new();
    let until = now() + bench.patience;
    for number in 0..TERMS {
        ensure!(now() < until, "{number} terms, each dropped at once, took {:?}", bench.patience);
        let term = bench
            .within("a free seat is acquired", async {
                loop {
                    match one.election.try_acquire().await {
                        Ok(Some(term)) => return term,
                        _ => tokio::time::sleep(bench.lease() / 100).await,
                    }
                }
            })
            .await?;
        if number == 0 {
            // Reads the first start event, and then nothing for a while.
            let event = bench
                .event("the first start event", &mut stalled, |event| matches!(event, EventKind::BecameLeader { .. }))
                .await?;
            heard.extend(Step::of(&event));
        }
        let view = one.election.term().unwrap_or_else(|| term.clone());
        drop(term);
        bench.within("a term ends when it is dropped", view.ended()).await?;
    }
    one.election.stop();
    one.stopped().await;
    for (who, events, mut heard) in [("slow", &mut slow, Vec::new()), ("stalled", &mut stalled, heard)] {
        while let Some(event) = bench.within("the next event", events.next()).await? {
            heard.extend(Step::of(&event.kind));
        }
        pairs_up(&format!("a {who} listener"), &heard)?;
    }
    let handled = handled.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    ensure!(handled.len() >= 2, "the handlers got no events");
    pairs_up("the handlers", &handled)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Began(Token),
    Ended(Token),
}

impl Step {
    fn of(event: &EventKind) -> Option<Self> {
        match event {
            EventKind::BecameLeader { term } => Some(Self::Began(term.token())),
            EventKind::LostLeadership { token, .. } => Some(Self::Ended(*token)),
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
            (step, open) => ensure!(false, "{who} got {step:?} while the open term was {open:?}"),
        }
    }
    ensure!(open.is_none(), "{who} got a start event of term {open:?}, but no end event");
    Ok(())
}
