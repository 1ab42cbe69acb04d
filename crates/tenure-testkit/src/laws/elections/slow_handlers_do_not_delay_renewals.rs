//! A handler that blocks for as long as it likes delays neither renewals nor anything else of the
//! election.
//!
//! Protects from: a leader that loses its seat because its own handler was slow.

use std::sync::mpsc;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("slow");
    let (release, released) = mpsc::channel::<()>();
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    let one = bench.stand_with(&seat, "one", |election| {
        election.on_started_leading(move |term| {
            let _ = entered.send(term.token());
            // Until the law lets go of the other end.
            let _ = released.recv();
        })
    })?;
    bench.within("that the handler is called", has_entered.recv()).await?;
    let before = one.counter.counts();
    bench
        .within("that the seat is renewed while a handler blocks", async {
            one.counter.wait_for(|counts| counts.renewals >= before.renewals + 5).await;
        })
        .await?;
    let leader = one.election.leader().map(|leader| leader.candidate);
    ensure!(
        leader.is_none_or(|leader| leader == *one.election.candidate()),
        "another leads, though nobody else stands"
    );
    drop(release);
    one.election.stop();
    one.stopped().await;
    Ok(())
}
