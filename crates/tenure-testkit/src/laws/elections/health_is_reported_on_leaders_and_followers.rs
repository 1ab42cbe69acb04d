//! The leader is healthy, and so are followers and observers that see a leader. A candidate that cannot reach the
//! store is unhealthy and gives the reason, and is healthy again once it reaches the store.
//!
//! Protects from: health checks that fail on every follower, or that pass where the state is unknown.

use tenure_core::Health;

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("health");
    let one = bench.stand(&seat, "one")?;
    one.term().await;
    let other = bench.stand(&seat, "other")?;
    let watching = other.elections.observe(seat.as_str())?;
    let followers = || [other.election.health(), watching.health()];
    let all_healthy = || async { Ok(one.election.health().is_healthy() && followers().iter().all(Health::is_healthy)) };
    bench.until("the leader and its followers are healthy", all_healthy).await?;

    other.wire.set(Traffic::Refuse);
    let all_unhealthy = || followers().iter().all(|health| matches!(health, Health::Unhealthy { .. }));
    bench.until("candidates that are cut off are unhealthy", || async { Ok(all_unhealthy()) }).await?;
    for health in followers() {
        ensure!(
            health.reason().contains("calls to the store fail"),
            "the health of a candidate that is cut off is: {health}"
        );
    }
    bench.until("the leader is healthy", || async { Ok(one.election.health().is_healthy()) }).await?;
    other.wire.set(Traffic::Pass);
    bench.until("all are healthy again", all_healthy).await
}
