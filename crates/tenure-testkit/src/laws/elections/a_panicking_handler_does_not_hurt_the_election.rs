//! Handlers that panic every time affect neither the election nor each other. The election renews, hands over and
//! ends as usual, and the handlers are still called.
//!
//! Protects from: a handler's panic that releases the lock but keeps the flag, or that ends the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("panics");
    let calls: [Arc<AtomicUsize>; 4] = Default::default();
    let count = |which: usize| {
        let calls = calls[which].clone();
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
            // `resume_unwind` does not print a message.
            std::panic::resume_unwind(Box::new("an intended panic of a handler"));
        }
    };
    let (event, started, stopped, leader) = (count(0), count(1), count(2), count(3));
    let one = bench.stand_with(&seat, "one", |election| {
        election
            .on_event(move |_| event())
            .on_started_leading(async move |_| started())
            .on_stopped_leading(move |_, _| stopped())
            .on_new_leader(move |_| leader())
    })?;
    one.term().await;
    let before = one.counter.counts();
    bench
        .within("the seat is renewed although handlers panic", async {
            one.counter.wait_for(|counts| counts.renewals >= before.renewals + 2).await;
        })
        .await?;
    one.election.stop();
    one.stopped().await;
    let names = ["on_event", "on_started_leading", "on_stopped_leading", "on_new_leader"];
    for (calls, name) in calls.iter().zip(names) {
        ensure!(calls.load(Ordering::SeqCst) > 0, "{name} was never called after other handlers panicked");
    }
    let other = bench.stand(&seat, "other")?;
    other.term().await;
    Ok(())
}
