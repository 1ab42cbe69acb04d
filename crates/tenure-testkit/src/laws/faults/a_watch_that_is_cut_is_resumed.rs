//! A follower whose connections are reset watches again, and is notified when the seat is released: it does not
//! find out only by polling.
//!
//! Protects from: a watch that silently ends or hangs with its connection.

use std::time::Duration;

use super::{Need, Rig};
use crate::Verdict;
use crate::failure::ensure;

pub(super) const NEEDS: &[Need] = &[Need::Push];

/// A follower without notifications reads the seat after a third of this at the earliest.
const LEASE: Duration = Duration::from_secs(180);

/// A follower that is notified reads the seat sooner than this.
const SOON: Duration = Duration::from_secs(LEASE.as_secs() / 6);

pub(super) async fn check(rig: Rig) -> Verdict {
    let mut leader = rig.other(LEASE);
    let first = leader.leads().await;
    // A follower whose watch ended without a change watches again only after a pause.
    let retry = Duration::from_millis(200);
    let mut follower = rig.stand(&rig.faulty, "one", LEASE, |election| election.retry_every(retry));
    follower.knows(first).await;
    for _ in 0..3 {
        // The watch must be established before it can be cut.
        rig.faulty.quiet(retry * 5).await;
        rig.faulty.reset();
    }
    rig.faulty.quiet(retry * 5).await;
    leader.election.stop();
    let led = tokio::time::timeout(SOON, follower.leads()).await;
    ensure!(led.is_ok(), "the follower was not notified that the seat is free");
    rig.settles([leader, follower]).await
}
