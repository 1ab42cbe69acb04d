//! An election that was given a token with `stop_on` stops when it is cancelled, as if stopped by
//! hand.
//!
//! Protects from: a service that is asked to end, and leads on.

use std::time::Instant;

use tenure_core::{CancellationToken, Ended};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("cancelled");
    let token = CancellationToken::new();
    let one = bench.stand_with(&seat, "one", |election| election.stop_on(token.clone()))?;
    one.term().await;
    let stops = Instant::now();
    token.cancel();
    let ended = one.stopped().await;
    ensure!(ended == Ended::Stopped, "a cancelled token must end it as stopped, not as: {ended}");
    ensure!(bench.gave_up(&seat, stops).await?, "a candidate that was stopped by a token has kept the seat");
    // Also if it was cancelled before the start.
    let late = bench.stand_with(&bench.seat("late"), "late", |election| election.stop_on(token))?;
    late.stopped().await;
    Ok(())
}
