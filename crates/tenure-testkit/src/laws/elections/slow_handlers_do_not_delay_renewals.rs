//! A handler that blocks delays neither renewals nor any other part of the election.
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
        election.on_leadership_changed(move |leads| {
            let _ = entered.send(leads);
            // Blocks until the law drops the other end.
            let _ = released.recv();
        })
    })?;
    bench.within("the handler is called", has_entered.recv()).await?;
    let before = one.counter.counts();
    bench
        .within("the seat is renewed while a handler blocks", async {
            one.counter.wait_for(|counts| counts.renewals >= before.renewals + 5).await;
        })
        .await?;
    let leader = one.election.leader().map(|leader| leader.candidate);
    ensure!(
        leader.is_none_or(|leader| leader == *one.election.candidate()),
        "another candidate leads, although there is only one"
    );
    drop(release);
    one.election.stop();
    one.stopped().await;
    Ok(())
}
