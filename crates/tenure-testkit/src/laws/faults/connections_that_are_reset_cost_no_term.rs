//! A leader whose connections are reset repeatedly reconnects and keeps its term. Where a term ends with its
//! connection, no two candidates ever lead at once, and a candidate leads again.
//!
//! Protects from: a store that does not reconnect, or that mistakes a broken connection for a lost seat.

use super::{Need, Rig};
use crate::Verdict;

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(rig: Rig) -> Verdict {
    let lease = rig.lease() * 2;
    let mut one = rig.one(lease);
    let first = one.leads().await;
    let mut other = rig.other(lease);
    other.knows(first).await;
    if rig.server.ends_with_its_connection() {
        for _ in 0..10 {
            rig.faulty.reset();
            tokio::time::sleep(lease / 10).await;
        }
        rig.works_above(first).await?;
    } else {
        for _ in 0..8 {
            rig.faulty.reset();
            rig.is_renewed(&one, first).await?;
        }
        rig.is_kept(&one, first).await?;
        rig.led_once()?;
    }
    rig.settles([one, other]).await
}
