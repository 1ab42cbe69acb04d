//! The leader and whoever sees one are healthy, those who only watch too; whoever cannot reach the store is
//! not, and says why; and is healthy again once it can.
//!
//! Protects from: health checks that are red on every follower, or green where nothing is known any more.

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
    bench.until("that the leader and its followers are healthy", all_healthy).await?;

    other.wire.set(Traffic::Refuse);
    let all_unhealthy = || followers().iter().all(|health| matches!(health, Health::Unhealthy { .. }));
    bench.until("that who is cut off is not healthy", || async { Ok(all_unhealthy()) }).await?;
    for health in followers() {
        ensure!(health.reason().contains("cannot be reached"), "who is cut off says: {health}");
    }
    bench.until("that the leader is healthy", || async { Ok(one.election.health().is_healthy()) }).await?;
    other.wire.set(Traffic::Pass);
    bench.until("that all are healthy again", all_healthy).await
}
