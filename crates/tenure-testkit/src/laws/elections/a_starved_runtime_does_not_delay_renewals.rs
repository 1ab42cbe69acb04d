//! Work that blocks its runtime, so that no other task on it is polled, delays no renewal.
//!
//! Protects from: renewals that starve behind the application's own tasks.

use std::sync::mpsc;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("starved");
    let (release, released) = mpsc::channel::<()>();
    let (entered, mut has_entered) = tokio::sync::mpsc::unbounded_channel();
    let (made, is_made) = tokio::sync::oneshot::channel();
    let inner = bench.clone();
    // The election itself also starts on that runtime.
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a tokio runtime: {error}")))?;
        runtime.block_on(async {
            let one = inner.stand(&seat, "one")?;
            let _ = made.send(one.counter.clone());
            one.election
                .run_while_leader(async |term| {
                    let _ = entered.send(term.clone());
                    // Blocks until the law drops the other end. Meanwhile this runtime polls nothing.
                    let _ = released.recv();
                })
                .await
                .ok();
            one.election.stop();
            Ok::<_, Failure>(one.stopped().await)
        })
    });
    let counter =
        bench.within("a candidate", is_made).await?.map_err(|_| Failure::new("the candidate did not start"))?;
    let term = bench.within("the work begins", has_entered.recv()).await?;
    ensure!(term.is_some(), "the work did not start");
    let before = counter.counts();
    bench
        .within("the seat is renewed while the runtime is blocked", async {
            counter.wait_for(|counts| counts.renewals >= before.renewals + 5).await;
        })
        .await?;
    drop(release);
    let ended = bench.within("everything ends", tokio::task::spawn_blocking(|| thread.join())).await?;
    match ended {
        Ok(Ok(ended)) => ended.map(drop),
        other => Err(Failure::new(format!("the runtime panicked: {other:?}"))),
    }
}
