//! After a write whose outcome is not known, reading tells it: the seat reads as it was or as it was
//! to be, the same from every connection and every time.
//!
//! Protects from: readings from a replica or a cache that lags behind, which would take the loser of
//! a race for its winner, or the winner for a loser.

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
        // Written by one, read by all, at once.
        let me = candidate("one");
        let written = bench.write(&one, &seat, Some(&version), &bench.held(&me, token)).await?;
        for store in [&one, &other, &bench.connect()] {
            let seen = bench.read(store, &seat).await?;
            ensure!(
                seen.record.is_held_by(me.incarnation) && seen.version == written.version,
                "what was just written was not read back, but {seen:?}"
            );
        }
        // A write that was begun and dropped: done or not, but not both.
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
        // What is still on its way arrives before or after this write, which settles it.
        let mut seen = bench.read(&one, &seat).await?;
        while !seen.record.is_vacant() {
            let swap = bench.within("an answer", one.swap(&seat, Some(&seen.version), &vacant)).await??;
            ensure!(
                swap != tenure_core::Swap::Lost || bench.read(&other, &seat).await?.record.is_vacant(),
                "a swap on the version just read was lost, and the seat is not vacant either"
            );
            seen = bench.read(&one, &seat).await?;
        }
        for store in [&one, &other] {
            let again = bench.read(store, &seat).await?;
            ensure!(again.version == seen.version, "two readings of one state differ: {seen:?} and {again:?}");
        }
        version = seen.version;
    }
    Ok(())
}
