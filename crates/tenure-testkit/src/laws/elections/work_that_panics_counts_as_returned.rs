//! Work that panics counts as returned: the panic reaches the caller of the work, and the seat can be released.
//!
//! Protects from: an election that waits forever for work that has ended.

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
                // `resume_unwind` does not print a message.
                std::panic::resume_unwind(Box::new("an intended panic of the work"));
            })
            .await
    });
    bench.within("the work begins", begins).await?.ok();
    let stops = Instant::now();
    one.election.stop();
    let outcome = bench.within("the work ends", work).await?;
    ensure!(outcome.is_err_and(|error| error.is_panic()), "the panic of the work did not reach its caller");
    one.stopped().await;
    ensure!(bench.has_released(&seat, stops).await?, "the seat was not released after the work panicked");
    Ok(())
}
