//! A watch of a held seat resolves when the holder's session ends or its process is gone: that, too, is a change of
//! the holder. It resolves once: a caller that has seen the end can wait for the next change.
//!
//! Protects from: session stores that push only releases, so that followers learn of a crash only by looking, and
//! followers that never sleep while no candidate takes over.

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
        .within("a watch wakes when the holder is dead", async {
            loop {
                let change = watcher.changed(&seat, &seen).await;
                ensure!(
                    change == Change::Look,
                    "the watch of a seat that another candidate holds resolved with {change:?}"
                );
                if bench.read(&watcher, &seat).await?.life == Life::Over {
                    return Verdict::Ok(());
                }
                // A watch may occasionally resolve without a reason.
                tokio::time::sleep(bench.lease() / 20).await;
            }
        })
        .await??;
    let seen = Seen { seat: Some(bench.read(&watcher, &seat).await?), requests: false };
    bench.stays_quiet("a dead holder that the caller has seen", &watcher, &seat, &seen).await
}
