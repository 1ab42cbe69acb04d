//! A watch counts from what its caller has seen, not from when it begins: what changed in between
//! resolves it at once.
//!
//! Protects from: the gap between a look and a watch, in which a release goes unheard.

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
        // Twice: on a connection that watches already, and on one that never did.
        for watcher in [&watcher, &bench.connect()] {
            let change = bench
                .within("that a watch tells what changed before it began", watcher.changed(&seat, &seen))
                .await?;
            ensure!(change == Change::Look, "a watch of another's seat resolved with {change:?}");
        }
    }
    Ok(())
}
