//! A call may be dropped wherever it waits, as every call is that takes too long: nothing stays
//! locked or lent, and later calls are answered.
//!
//! Protects from: a lock that leaks when a client gives up, and a pool that runs dry.

use futures_util::FutureExt;
use tenure_core::{Board, Seen};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

/// More than any pool should be given.
const TIMES: usize = 40;

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("dropped");
    let store = bench.connect();
    let me = candidate("me");
    let mut version = bench.write(&store, &seat, None, &bench.held(&me, 1)).await?.version;
    for time in 0..TIMES {
        let (held, seen) = (bench.held(&me, 1), Seen { seat: Some(bench.read(&store, &seat).await?), requests: true });
        // Polled a few times, so that it is dropped at another place each time.
        let polls = time % 6 + 1;
        drop_after(polls, store.read(&seat)).await;
        drop_after(polls, store.swap(&seat, Some(&version), &held)).await;
        drop_after(polls, store.renew(&seat, &version, &held)).await;
        drop_after(polls, store.changed(&seat, &seen)).await;
        if let Some(notes) = store.notes() {
            drop_after(polls, Box::pin(notes.list_one(&Board::Requests(seat.clone())))).await;
        }
        // Whatever came of it: the seat is ours, and can be read and written.
        loop {
            let seen = bench.read(&store, &seat).await?;
            ensure!(seen.record.is_held_by(me.incarnation), "a call that was dropped has left behind {seen:?}");
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
