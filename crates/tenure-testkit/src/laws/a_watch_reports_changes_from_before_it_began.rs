//! A watch compares with the state that its caller has seen, not with the state when the watch begins. A change in
//! between resolves it at once.
//!
//! Protects from: a release that is missed because it happened between a look and a watch.

use tenure_core::{Change, Seen};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Push];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("before");
    let (store, watcher) = (bench.connect(), bench.connect());
    let mut version = None;
    for record in [bench.held(&candidate("one"), 1), bench.vacant(1), bench.held(&candidate("other"), 2)] {
        let seen = Seen { seat: bench.within("a reading", watcher.read(&seat)).await??.seat, requests: false };
        version = Some(bench.write(&store, &seat, version.as_ref(), &record).await?.version);
        // On a connection that has watched before, and on a new one.
        for watcher in [&watcher, &bench.connect()] {
            let change =
                bench.within("a watch reports a change from before it began", watcher.changed(&seat, &seen)).await?;
            ensure!(
                change == Change::Look,
                "the watch of a seat that another candidate holds resolved with {change:?}"
            );
        }
    }
    Ok(())
}
