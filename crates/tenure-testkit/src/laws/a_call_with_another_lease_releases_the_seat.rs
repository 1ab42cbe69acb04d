//! A process releases a seat in a call for another lease than the one with which it won the seat. The seat is free at
//! once.
//!
//! Protects from: writes on the session of the call's lease, which cannot release what another session of the process
//! holds.

use tenure_core::Record;

use crate::bench::candidate;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Sessions];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("released-with-another-lease");
    let (one, other) = (bench.connect(), bench.connect());
    let won = bench.write(&one, &seat, None, &bench.held(&candidate("one"), 1)).await?;
    let vacant = Record { lease: bench.lease() * 4, ..bench.vacant(1) };
    bench.write(&one, &seat, Some(&won.version), &vacant).await?;
    let seen = bench.read(&other, &seat).await?;
    bench.write(&other, &seat, Some(&seen.version), &bench.held(&candidate("other"), 2)).await?;
    Ok(())
}
