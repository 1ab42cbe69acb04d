//! A server that comes back without its data costs the term, and nobody takes the seat before whoever led must have
//! stopped, also if the leader is cut off and cannot notice. The token of the next term is above that of the last one:
//! for candidates that were there in any case, for others as far as the store promises it.
//!
//! Protects from: two leaders, and tokens that are given out twice, after a loss of data.

use tenure_core::{Event, Token};

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
        ensure!(token > last, "a newcomer has the token {token}, but {last} was given out before");
    }
    Ok(())
}

/// Has the server lose its data while somebody leads, and returns the last token.
async fn lose(rig: &mut Rig, is_cut_off: bool) -> Result<Token, Failure> {
    let mut one = rig.one(rig.lease());
    one.leads().await;
    // Above what a new server may begin with.
    for _ in 0..3 {
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
    one.event("it loses its term", |event| match event {
        Event::LostLeadership { token, .. } if *token == first => Some(()),
        _ => None,
    })
    .await;
    let second = rig.works_above(first).await?;
    rig.faulty.pass();
    one.knows(second).await;
    rig.settles([one, other]).await?;
    Ok(second)
}
