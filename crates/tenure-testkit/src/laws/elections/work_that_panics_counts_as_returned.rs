//! Work that panics counts as returned: the panic reaches whoever runs the work, and the seat can
//! be given up.
//!
//! Protects from: an election that waits for ever for work which is no more.

use std::time::Instant;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("panicking-work");
    let one = bench.stand_with(&seat, "one", |election| election.stop_grace(bench.lease() * 30))?;
    let election = one.election.clone();
    let (began, begins) = tokio::sync::oneshot::channel();
    let work = tokio::spawn(async move {
        election
            .run_while_leader(async |term| {
                let _ = began.send(());
                term.ending().await;
                // Without the message that a panic prints.
                std::panic::resume_unwind(Box::new("the work of a law panics, as it should"));
            })
            .await
    });
    bench.within("that the work begins", begins).await?.ok();
    let stops = Instant::now();
    one.election.stop();
    let outcome = bench.within("that the work ends", work).await?;
    ensure!(outcome.is_err_and(|error| error.is_panic()), "the panic of the work did not reach whoever ran it");
    one.stopped().await;
    ensure!(bench.gave_up(&seat, stops).await?, "work that panicked has kept the seat");
    Ok(())
}
