//! An election that was given a token with `stop_on` stops when it is cancelled, as if stopped by
//! hand.
//!
//! Protects from: a service that is asked to end, and leads on.

use tenure_core::{CancellationToken, Ended};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("cancelled");
    let token = CancellationToken::new();
    let one = bench.stand_with(&seat, "one", |election| election.stop_on(token.clone()))?;
    bench.elected(&one).await?;
    token.cancel();
    let ended = bench.stopped(&one).await?;
    ensure!(ended == Ended::Stopped, "a cancelled token must end it as stopped, not as: {ended}");
    let seen = bench.read(&bench.connect(), &seat).await?;
    ensure!(seen.record.is_vacant(), "a candidate that was stopped by a token has kept the seat");
    // Also if it was cancelled before the start.
    let late = bench.stand_with(&bench.seat("late"), "late", |election| election.stop_on(token))?;
    bench.stopped(&late).await?;
    Ok(())
}
