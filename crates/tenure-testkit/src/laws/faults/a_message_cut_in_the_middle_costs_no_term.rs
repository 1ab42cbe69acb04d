//! A leader keeps its term though a message to the server, and then one from the server, ends in the middle with its
//! connection.
//!
//! Protects from: half a message that is taken for a whole one, or put before the next one.

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
    // Of requests those that keep the term, if they can be told apart; of replies any.
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
