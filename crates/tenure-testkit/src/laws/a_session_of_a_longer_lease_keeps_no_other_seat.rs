//! A process holds two seats with different leases. It renews the one with the longer lease, and no longer the other.
//! The other seat reads as over after its own lease.
//!
//! Protects from: one session for all leases of a process, so that a heartbeat for one election keeps the seat of
//! another that no longer renews.

use tenure_core::{Life, Record};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Sessions];

pub(super) async fn check(bench: Bench) -> Verdict {
    let [short, long] = ["short", "long"].map(|name| bench.seat(name));
    let (one, other, me) = (bench.connect(), bench.connect(), candidate("one"));
    let of_long = || Record { lease: bench.lease() * 4, ..bench.held(&me, 1) };
    bench.write(&one, &short, None, &bench.held(&me, 1)).await?;
    let mut kept = bench.write(&one, &long, None, &of_long()).await?;
    let is_over = async || Ok::<_, crate::Failure>(bench.read(&other, &short).await?.life == Life::Over);
    bench
        .within("the seat with the short lease reads as over", async {
            while !is_over().await? {
                kept = bench.renew(&one, &long, &kept.version, &of_long()).await?;
                tokio::time::sleep(bench.lease() / 10).await;
            }
            Ok::<_, crate::Failure>(())
        })
        .await??;
    let life = bench.read(&other, &long).await?.life;
    ensure!(life == Life::Held, "the seat with the long lease was renewed, but reads as {life:?}");
    Ok(())
}
