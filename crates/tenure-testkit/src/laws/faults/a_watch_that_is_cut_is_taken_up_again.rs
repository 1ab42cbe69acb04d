//! A follower whose connections are reset watches again, and is told when the seat is released: it does not find out
//! only by looking.
//!
//! Protects from: a watch that ends or hangs with its connection, without a word.

use std::time::Duration;

use super::{Need, Rig};
use crate::Verdict;
use crate::failure::ensure;

pub(super) const NEEDS: &[Need] = &[Need::Push];

/// A follower that is not told anything looks by itself after a third of it at the earliest.
const LEASE: Duration = Duration::from_secs(180);

/// A follower that is told looks sooner than this.
const SOON: Duration = Duration::from_secs(LEASE.as_secs() / 6);

pub(super) async fn check(rig: Rig) -> Verdict {
    let mut leader = rig.other(LEASE);
    let first = leader.leads().await;
    // A follower that was told of nothing new watches again only after a while.
    let retry = Duration::from_millis(200);
    let mut follower = rig.stand(&rig.faulty, "one", LEASE, |election| election.retry_every(retry));
    follower.knows(first).await;
    for _ in 0..3 {
        // A watch that is not there yet cannot be cut.
        rig.faulty.quiet(retry * 5).await;
        rig.faulty.reset();
    }
    rig.faulty.quiet(retry * 5).await;
    leader.election.stop();
    let told = tokio::time::timeout(SOON, follower.leads()).await;
    ensure!(told.is_ok(), "the follower was not told that the seat is free");
    rig.settles([leader, follower]).await
}
