//! After a write whose outcome is unknown, a read shows the outcome: the seat reads as before the write or as after
//! it, and every connection reads the same every time.
//!
//! Protects from: reads from a replica or a cache that lags behind, which would show the loser of a race as its
//! winner, or the winner as a loser.

use futures_util::FutureExt;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("read-back");
    let (one, other) = (bench.connect(), bench.connect());
    let mut version = bench.write(&one, &seat, None, &bench.vacant(1)).await?.version;
    for token in 2..12 {
        // All connections read the write at once.
        let me = candidate("one");
        let written = bench.write(&one, &seat, Some(&version), &bench.held(&me, token)).await?;
        for store in [&one, &other, &bench.connect()] {
            let seen = bench.read(store, &seat).await?;
            ensure!(
                seen.record.is_held_by(me.incarnation) && seen.version == written.version,
                "the seat was just written, but reads as {seen:?}"
            );
        }
        // A write that is dropped before its answer: it takes effect or not, but not both.
        let vacant = bench.vacant(token);
        {
            let mut swap = one.swap(&seat, Some(&written.version), &vacant);
            for _ in 0..token - 2 {
                if (&mut swap).now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // A write that is still in flight arrives before or after this one, which settles the outcome.
        let mut seen = bench.read(&one, &seat).await?;
        while !seen.record.is_vacant() {
            let swap = bench.within("an answer", one.swap(&seat, Some(&seen.version), &vacant)).await??;
            ensure!(
                swap != tenure_core::Swap::Lost || bench.read(&other, &seat).await?.record.is_vacant(),
                "a swap on the version just read was lost, but the seat is not vacant"
            );
            seen = bench.read(&one, &seat).await?;
        }
        for store in [&one, &other] {
            let again = bench.read(store, &seat).await?;
            ensure!(again.version == seen.version, "two reads of the same state differ: {seen:?} and {again:?}");
        }
        version = seen.version;
    }
    Ok(())
}
