//! A server that stops until a renewal is due and then goes on costs no term. One that stops for longer than a lease
//! ends the term in time, and when it goes on somebody leads, with a higher token.
//!
//! Protects from: silence that is taken for an answer, and what was asked during the stop and is done after it.

use tenure_core::EndReason;

use super::{Need, Rig};
use crate::Verdict;
use crate::failure::ensure;

pub(super) const NEEDS: &[Need] = &[Need::Alone];

pub(super) async fn check(mut rig: Rig) -> Verdict {
    let lease = rig.lease();
    let mut one = rig.one(lease);
    let first = one.leads().await;
    let mut other = rig.other(lease);
    other.knows(first).await;
    let renewals = one.counter.counts().renewals;
    rig.server.pause();
    rig.within("that a renewal is due", one.counter.wait_for(|counts| counts.renewals > renewals)).await?;
    rig.server.resume();
    rig.is_kept(&one, first).await?;
    rig.led_once()?;

    rig.server.pause();
    let (lost, why) = one.loses().await;
    ensure!((lost, why) == (first, EndReason::NotRenewed), "the term {first} was lost as {lost}, because of {why:?}");
    // Longer than sessions last: they are all over at once when it goes on.
    tokio::time::sleep(lease * 2).await;
    rig.server.resume();
    rig.works_above(first).await?;
    rig.settles([one, other]).await
}
