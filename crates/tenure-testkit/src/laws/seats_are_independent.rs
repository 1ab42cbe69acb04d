//! A change to one seat changes no other seat, also not one of the same holder over the same connection.
//!
//! Protects from: one election that ends or blocks another.

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (here, there) = (bench.seat("here"), bench.seat("there"));
    let (one, other) = (bench.connect(), bench.connect());
    let me = candidate("one");
    let held = bench.write(&one, &here, None, &bench.held(&me, 7)).await?;
    let reading = bench.within("a reading", other.read(&there)).await??;
    ensure!(reading.seat.is_none(), "a seat that was never taken reads as {:?}", reading.seat);

    let next = candidate("other");
    let taken = bench.write(&other, &there, None, &bench.held(&next, 1)).await?;
    let taken = bench.renew(&other, &there, &taken.version, &bench.held(&next, 1)).await?;
    bench.write(&other, &there, Some(&taken.version), &bench.vacant(1)).await?;

    let seen = bench.read(&one, &here).await?;
    ensure!(seen.version == held.version, "a write of another seat has changed this one: {seen:?}");
    bench.renew(&one, &here, &held.version, &bench.held(&me, 7)).await?;
    let seen = bench.read(&one, &there).await?;
    ensure!(seen.record.is_vacant(), "a renewal of one seat has changed another: {seen:?}");
    Ok(())
}
