//! An election that was given a token with `stop_on` stops when the token is cancelled, as after a call of
//! `stop()`.
//!
//! Protects from: a service that is asked to end and keeps leading.

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
    ensure!(ended == Ended::Stopped, "a cancelled token must end the election as stopped, not as: {ended}");
    ensure!(bench.has_released(&seat, stops).await?, "a candidate that a token stopped did not release the seat");
    // A token that was cancelled before the start has the same effect.
    let late = bench.stand_with(&bench.seat("late"), "late", |election| election.stop_on(token))?;
    late.stopped().await;
    Ok(())
}
