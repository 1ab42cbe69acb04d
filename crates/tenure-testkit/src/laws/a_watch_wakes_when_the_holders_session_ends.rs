//! A watch of a seat that is held resolves when the holder's session ends, or its process is gone:
//! that, too, is a change of the holder. It is so once: who has seen it can wait on.
//!
//! Protects from: session stores that push releases and nothing else, so that followers learn of a
//! crash only by looking; and from followers that never sleep while nobody takes over.

use tenure_core::{Change, Life, Seen};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::SessionsOrLocks, Need::Push];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("crash");
    let (one, watcher) = (bench.connect(), bench.connect());
    bench.write(&one, &seat, None, &bench.held(&candidate("one"), 1)).await?;
    let seen = Seen { seat: Some(bench.read(&watcher, &seat).await?), requests: false };
    drop(one);
    bench
        .within("that a watch wakes when the holder is gone", async {
            loop {
                let change = watcher.changed(&seat, &seen).await;
                ensure!(change == Change::Look, "a watch of another's seat resolved with {change:?}");
                if bench.read(&watcher, &seat).await?.life == Life::Over {
                    return Verdict::Ok(());
                }
                // For no reason, which a watch may do now and then.
                tokio::time::sleep(bench.lease() / 20).await;
            }
        })
        .await??;
    let seen = Seen { seat: Some(bench.read(&watcher, &seat).await?), requests: false };
    bench.stays_quiet("a holder that was seen to be gone", &watcher, &seat, &seen).await
}
