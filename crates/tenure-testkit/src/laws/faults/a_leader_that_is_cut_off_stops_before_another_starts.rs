//! A leader whose network drops all packets, in one direction or both, or does not let it connect, stops on its own
//! before another leader starts. Once the network works again, it follows, and messages that arrive late change
//! nothing.
//!
//! Protects from: a store that answers in place of the server, calls that hang forever, and writes that count
//! although they arrive after the term of their sender.

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

/// Checks one fault. `is_silent`: the fault keeps all notifications from the leader.
async fn cut_off<T>(rig: &Rig, fault: impl FnOnce(&Proxy) -> T, is_silent: bool) -> Verdict {
    let mut one = rig.one(rig.lease());
    let first = one.leads().await;
    let mut other = rig.other(rig.lease());
    other.knows(first).await;

    fault(&rig.faulty);
    let (lost, why) = one.loses().await;
    ensure!(lost == first, "the event for the end of term {first} has the token {lost}");
    ensure!(
        why == EndReason::NotRenewed || !is_silent,
        "the term ended because of {why:?}, but the leader cannot have been notified of that"
    );
    let second = rig.works_above(first).await?;
    rig.faulty.pass();
    one.knows(second).await;
    rig.is_kept(&other, second).await?;
    rig.settles([one, other]).await
}
