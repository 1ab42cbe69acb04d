//! Every watch of a seat resolves when the seat is taken, released, and taken by another candidate.
//!
//! Protects from: a push that is promised and never comes, so that every hand-over takes until the next look.

use futures_util::future::join_all;
use tenure_core::{Change, Seen};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Push];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("watched");
    let store = bench.connect();
    let watchers: Vec<_> = (0..3).map(|_| bench.connect()).collect();
    let mut version = None;
    for record in
        [bench.held(&candidate("one"), 1), bench.vacant(1), bench.held(&candidate("other"), 2), bench.vacant(2)]
    {
        let mut watching = Vec::new();
        for watcher in &watchers {
            let reading = bench.within("a reading", watcher.read(&seat)).await??;
            let (watcher, seat, bench) = (watcher.clone(), seat.clone(), bench.clone());
            let seen = Seen { seat: reading.seat, requests: false };
            watching.push(tokio::spawn(async move {
                bench.within("a watch wakes when the holder changes", watcher.changed(&seat, &seen)).await
            }));
        }
        version = Some(bench.write(&store, &seat, version.as_ref(), &record).await?.version);
        for watched in join_all(watching).await {
            let change = watched.map_err(|panic| Failure::new(format!("a watch panicked: {panic}")))??;
            ensure!(
                change == Change::Look,
                "the watch of a seat that another candidate holds resolved with {change:?}"
            );
        }
    }
    Ok(())
}
