//! A server that is paused until a renewal is due, and then resumes, costs no term. A server that is paused for
//! longer than a lease ends the term in time, and when it resumes, a candidate leads with a higher token.
//!
//! Protects from: silence that is treated as an answer, and requests from during the pause that take effect after
//! it.

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
    // A leader whose last call timed out would read the seat before it renews.
    rig.is_renewed(&one, first).await?;
    let renewals = one.counter.counts().renewals;
    rig.server.pause();
    rig.within("a renewal is due", one.counter.wait_for(|counts| counts.renewals > renewals)).await?;
    rig.server.resume();
    rig.is_kept(&one, first).await?;
    rig.led_once()?;

    rig.server.pause();
    let (lost, why) = one.loses().await;
    ensure!(
        (lost, why) == (first, EndReason::NotRenewed),
        "term {first} must end as not renewed, but term {lost} ended because of {why:?}"
    );
    // Longer than sessions last, so that all of them end at once when the server resumes.
    tokio::time::sleep(lease * 2).await;
    rig.server.resume();
    rig.works_above(first).await?;
    rig.settles([one, other]).await
}
