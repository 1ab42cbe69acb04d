//! A renewal alone does not wake a watch. (A watch may occasionally resolve without a reason, for example when it
//! is no longer served.)
//!
//! Protects from: a fleet of followers that all read the seat whenever the leader renews.

use tenure_core::Seen;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Push];

const RENEWALS: usize = 8;

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("renewed");
    let (store, watcher) = (bench.connect(), bench.connect());
    let me = candidate("one");
    let mut held = bench.write(&store, &seat, None, &bench.held(&me, 1)).await?;
    let mut woken = 0;
    for _ in 0..RENEWALS {
        let seen = Seen { seat: Some(bench.read(&watcher, &seat).await?), requests: true };
        held = bench.renew(&store, &seat, &held.version, &bench.held(&me, 1)).await?;
        // Long enough for a push, short enough for the session to stay alive.
        let quiet = bench.lease() / 20;
        woken += usize::from(tokio::time::timeout(quiet, watcher.changed(&seat, &seen)).await.is_ok());
    }
    ensure!(woken <= RENEWALS / 3, "{woken} of {RENEWALS} renewals woke the watch");

    // The watch still works.
    let seen = Seen { seat: Some(bench.read(&watcher, &seat).await?), requests: true };
    bench.write(&store, &seat, Some(&held.version), &bench.vacant(1)).await?;
    bench.within("a watch wakes after many renewals", watcher.changed(&seat, &seen)).await?;
    Ok(())
}
