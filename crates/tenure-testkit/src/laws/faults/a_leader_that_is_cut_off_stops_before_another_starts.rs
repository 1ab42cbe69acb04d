//! A leader whose network swallows everything, one way or both, or lets it connect to nobody any more, stops by itself
//! before another starts. Once the network is back it follows, and what arrives late changes nothing.
//!
//! Protects from: a store that answers in the server's place, calls that hang for ever, and writes that count though
//! they arrive after the term of their sender.

use tenure_core::EndReason;

use super::{Need, Rig};
use crate::Verdict;
use crate::failure::ensure;
use crate::proxy::{Proxy, Way};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(mut rig: Rig) -> Verdict {
    let up = |proxy: &Proxy| proxy.black_hole(Way::Up);
    let down = |proxy: &Proxy| proxy.black_hole(Way::Down);
    cut_off(&rig, up, true).await?;
    rig.begin_anew();
    cut_off(&rig, down, true).await?;
    rig.begin_anew();
    cut_off(&rig, |proxy| [up(proxy), down(proxy)], true).await?;
    rig.begin_anew();
    let is_silent = !rig.server.ends_with_its_connection();
    cut_off(&rig, |proxy| [proxy.refuse(), proxy.reset()], is_silent).await
}

/// `is_silent`: nothing tells the leader that its term is over.
async fn cut_off<T>(rig: &Rig, fault: impl FnOnce(&Proxy) -> T, is_silent: bool) -> Verdict {
    let mut one = rig.one(rig.lease());
    let first = one.leads().await;
    let mut other = rig.other(rig.lease());
    other.knows(first).await;

    fault(&rig.faulty);
    let (lost, why) = one.loses().await;
    ensure!(lost == first, "the term {first} was told as lost with the token {lost}");
    ensure!(why == EndReason::NotRenewed || !is_silent, "the term was lost because of {why:?}, which nobody can have told");
    let second = rig.works_above(first).await?;
    rig.faulty.pass();
    one.knows(second).await;
    rig.is_kept(&other, second).await?;
    rig.settles([one, other]).await
}
