//! A follower whose connections silently stop to deliver anything notices that within a third of a lease, and reads
//! the seat on another connection.
//!
//! Protects from: a store that promises not to lose notifications, and cannot distinguish a watch without changes
//! from a dead one.

use std::time::Duration;

use super::{Need, Rig};
use crate::Verdict;
use crate::failure::ensure;

pub(super) const NEEDS: &[Need] = &[Need::ProvenPush];

/// A follower that relies on notifications reads the seat after about a lease.
const LEASE: Duration = Duration::from_secs(18);

pub(super) async fn check(rig: Rig) -> Verdict {
    let mut leader = rig.other(LEASE);
    let first = leader.leads().await;
    let mut follower = rig.one(LEASE);
    follower.knows(first).await;
    // The watch must be established before it can fall silent.
    rig.faulty.quiet(Duration::from_secs(1)).await;
    rig.faulty.freeze();
    leader.election.stop();
    leader.stopped().await;
    // A third of the lease, and half as much again for a busy machine.
    let is_released = || follower.election.leader().is_none_or(|leader| leader.token != first);
    let noticed = tokio::time::timeout(LEASE / 2, rig.until("the follower reads the seat", is_released)).await;
    ensure!(noticed.is_ok(), "the follower relied on a watch that had fallen silent");
    rig.faulty.pass();
    follower.leads().await;
    rig.settles([leader, follower]).await
}
