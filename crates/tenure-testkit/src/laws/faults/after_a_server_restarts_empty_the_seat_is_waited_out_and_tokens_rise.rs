//! When a server restarts without its data, the term ends, and no candidate takes the seat before the old leader
//! must have stopped, also if that leader is cut off and cannot notice. The token of the next term is higher than
//! the last one: always for candidates that were present, and for new ones as far as the store promises it.
//!
//! Protects from: two leaders, and tokens that are issued twice, after a loss of data.

use tenure_core::{EventKind, Token};

use super::{AfterLoss, Need, Rig};
use crate::failure::ensure;
use crate::proxy::Way;
use crate::{Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Alone, Need::Loss];

pub(super) async fn check(mut rig: Rig) -> Verdict {
    let mut last = Token::ZERO;
    for is_cut_off in [false, true] {
        rig.begin_anew();
        last = last.max(lose(&mut rig, is_cut_off).await?);
    }
    if rig.server.after_loss() == Some(AfterLoss::AllTokensRise) {
        rig.server.restart_empty();
        let newcomer = rig.other(rig.lease());
        let token = newcomer.term().await.token();
        ensure!(token > last, "a new candidate has token {token}, which is not above {last}");
    }
    Ok(())
}

/// Restarts the server without its data while a candidate leads, and returns the last token.
async fn lose(rig: &mut Rig, is_cut_off: bool) -> Result<Token, Failure> {
    let mut one = rig.one(rig.lease());
    one.leads().await;
    // Several terms, so that the token is above the first one of a new server.
    for _ in 0..if rig.server.is_slow() { 1 } else { 3 } {
        one.election.step_down();
        one.leads().await;
    }
    let first = one.elected().await;
    let mut other = rig.other(rig.lease());
    other.knows(first).await;
    if is_cut_off {
        rig.faulty.black_hole(Way::Up);
        rig.faulty.black_hole(Way::Down);
    }
    rig.server.restart_empty();
    one.event("the candidate loses its term", |event| match event {
        EventKind::LostLeadership { token, .. } if *token == first => Some(()),
        _ => None,
    })
    .await;
    let second = rig.works_above(first).await?;
    rig.faulty.pass();
    one.knows(second).await;
    rig.settles([one, other]).await?;
    Ok(second)
}
