//! A read that is sent after a bid was abandoned, as the engine abandons every call that times out, shows whether the bid
//! has won: the bid does not win after that read.
//!
//! Protects from: an election that has stopped because its seat read as free, and holds the seat all the same.

use futures_util::FutureExt;
use tenure_core::Swap;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

const TIMES: u64 = 60;

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("abandoned");
    let store = bench.connect();
    let me = candidate("me");
    let mut free = bench.write(&store, &seat, None, &bench.vacant(1)).await?.version;
    for time in 0..TIMES {
        let token = time + 2;
        let record = bench.held(&me, token);
        let mut bid = store.swap(&seat, Some(&free), &record);
        // A different number of polls each time, so that the bid is abandoned at different points.
        for _ in 0..time % 10 + 1 {
            if (&mut bid).now_or_never().is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(bid);
        let seen = bench.read(&store, &seat).await?;
        let vacant = bench.vacant(token);
        let release = bench.within("an answer to a swap", store.swap(&seat, Some(&seen.version), &vacant)).await??;
        let Swap::Done { version, .. } = release else {
            let last = bench.read(&store, &seat).await?;
            ensure!(
                last.record.nonce != record.nonce,
                "an abandoned bid has won after a later read had shown {seen:?}"
            );
            return Err(crate::Failure::new(format!("nobody else writes the seat, but now it reads as {last:?}")));
        };
        free = version;
    }
    Ok(())
}
