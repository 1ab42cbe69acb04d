//! A call can be dropped at any point, as the engine does with every call that times out. Nothing stays locked or
//! borrowed, and later calls are answered.
//!
//! Protects from: a lock that leaks when a client gives up, and a pool that runs out of connections.

use futures_util::FutureExt;
use tenure_core::{Board, Seen};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

/// More calls than a pool has connections.
const TIMES: usize = 40;

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("dropped");
    let store = bench.connect();
    let me = candidate("me");
    let mut version = bench.write(&store, &seat, None, &bench.held(&me, 1)).await?.version;
    for time in 0..TIMES {
        let (held, seen) = (bench.held(&me, 1), Seen { seat: Some(bench.read(&store, &seat).await?), requests: true });
        // A different number of polls each time, so that calls are dropped at different points.
        let polls = time % 6 + 1;
        drop_after(polls, store.read(&seat)).await;
        drop_after(polls, store.swap(&seat, Some(&version), &held)).await;
        drop_after(polls, store.renew(&seat, &version, &held)).await;
        drop_after(polls, store.changed(&seat, &seen)).await;
        if let Some(notes) = store.notes() {
            drop_after(polls, Box::pin(notes.list_one(&Board::Requests(seat.clone())))).await;
        }
        // Whatever the outcome of the dropped calls: the holder is unchanged, and the seat can be read and written.
        loop {
            let seen = bench.read(&store, &seat).await?;
            ensure!(seen.record.is_held_by(me.incarnation), "after a dropped call, the seat reads as {seen:?}");
            let swap = bench.within("an answer to a swap", store.swap(&seat, Some(&seen.version), &held)).await??;
            if let tenure_core::Swap::Done { version: next, .. } = swap {
                version = next;
                break;
            }
        }
    }
    Ok(())
}

async fn drop_after<T>(polls: usize, mut call: impl Future<Output = T> + Unpin) {
    for _ in 0..polls {
        if (&mut call).now_or_never().is_some() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
