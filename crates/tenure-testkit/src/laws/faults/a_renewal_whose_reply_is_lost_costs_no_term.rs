//! A leader keeps its term although the reply to a renewal is lost with its connection: it renews again on another
//! connection.
//!
//! Protects from: a renewal on an outdated version of the seat, and a store that does not reconnect.

use super::{Need, Rig};
use crate::Verdict;

pub(super) const NEEDS: &[Need] = &[Need::Plain, Need::OutlivesConnections, Need::Renewals];

pub(super) async fn check(rig: Rig) -> Verdict {
    // The store notices a lost reply at once, or when the call times out.
    let lease = rig.lease() * 2;
    let mut one = rig.one(lease);
    let first = one.leads().await;
    let mut other = rig.other(lease);
    other.knows(first).await;
    for (marker, count) in rig.server.renewals().iter().zip(1..) {
        rig.faulty.drop_reply_to(*marker);
        rig.faulty.caught(count).await;
        rig.is_kept(&one, first).await?;
    }
    rig.led_once()?;
    rig.settles([one, other]).await
}
