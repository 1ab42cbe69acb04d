//! When the holder's own session ends, its watch resolves with `SessionOver` and not only with `Look`: the leader
//! must stop at once.
//!
//! Protects from: a leader that is the last to learn that it no longer leads.

use tenure_core::{Change, Seen};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Sessions, Need::Push, Need::EndSession];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("own");
    let store = bench.connect();
    bench.write(&store, &seat, None, &bench.held(&candidate("me"), 1)).await?;
    let seen = Seen { seat: Some(bench.read(&store, &seat).await?), requests: true };
    let (watcher, watched) = (store.clone(), seat.clone());
    let watch = tokio::spawn(async move { watcher.changed(&watched, &seen).await });
    if let Some(end) = bench.subject.end_session(&seat) {
        bench.within("the session is ended", end).await?;
    }
    let change = bench.within("the holder's own watch reports the end of its session", watch).await?;
    ensure!(
        matches!(change, Ok(Change::SessionOver)),
        "the holder's own watch must resolve with SessionOver when its session ends, but resolved with {change:?}"
    );
    Ok(())
}
