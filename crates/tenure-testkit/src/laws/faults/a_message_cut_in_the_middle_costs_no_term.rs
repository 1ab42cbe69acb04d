//! A leader keeps its term although a message to the server, and later one from the server, is cut in the middle
//! together with its connection.
//!
//! Protects from: half a message that is treated as a whole one, or joined with the next one.

use super::{Need, Rig};
use crate::Verdict;
use crate::proxy::Way;

pub(super) const NEEDS: &[Need] = &[Need::Plain, Need::OutlivesConnections];

pub(super) async fn check(rig: Rig) -> Verdict {
    let lease = rig.lease() * 2;
    let mut one = rig.one(lease);
    let first = one.leads().await;
    let mut other = rig.other(lease);
    other.knows(first).await;
    // Cuts a request that renews the term, if it can be distinguished from others, and then any reply.
    let renewal = rig.server.renewals().first().copied().unwrap_or_default();
    for (way, count) in [Way::Up, Way::Down].into_iter().cycle().take(6).zip(1..) {
        let marker = if way == Way::Up { renewal } else { "" };
        rig.faulty.cut_in_the_middle(way, marker, 2);
        rig.faulty.caught(count).await;
        rig.is_kept(&one, first).await?;
    }
    rig.led_once()?;
    rig.settles([one, other]).await
}
