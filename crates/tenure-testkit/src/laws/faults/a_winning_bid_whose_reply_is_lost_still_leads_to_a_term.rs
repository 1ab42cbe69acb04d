//! A candidate whose bid reaches the server, but whose reply is lost with its connection, reads the seat back and
//! leads with the token of that bid. It is not locked out of its own seat until the lease expires.
//!
//! Protects from: a read from a cache that does not know of the bid, and a store that does not reconnect.

use tenure_core::Token;

use super::{Need, Rig};
use crate::failure::ensure;
use crate::{Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Plain];

/// The connection is cut at the first bytes that the server sends after the bid. If many calls share a connection,
/// these can be another reply, and the bid may not take effect. Then the trial is repeated.
const TRIALS: u64 = 20;

pub(super) async fn check(mut rig: Rig) -> Verdict {
    // One ordinary term first, so that later bids need no preparation, such as prepared statements.
    let warm = rig.other(rig.lease());
    warm.term().await;
    warm.election.stop();
    warm.stopped().await;
    drop(warm);
    for trial in 1..=TRIALS {
        rig.begin_anew();
        if is_led(&rig, trial).await? {
            return Ok(());
        }
    }
    Err(Failure::new(format!("the replies of {TRIALS} bids were lost, and none of them led to a term")))
}

/// Returns whether a bid succeeded, its reply was lost, and its bidder leads with the token of that bid.
async fn is_led(rig: &Rig, trial: u64) -> Result<bool, Failure> {
    let lease = rig.server.long_lease();
    rig.faulty.drop_reply_to(rig.server.bid());
    let one = rig.one(lease);
    rig.faulty.caught(trial).await;
    if rig.server.ends_with_its_connection() {
        // The bid did not take effect, and the seat is free for both candidates.
        let other = rig.other(lease);
        rig.works_above(Token::ZERO).await?;
        rig.settles([one, other]).await?;
        return Ok(true);
    }
    let landed = rig.record().await?;
    let bids = one.counter.counts().swaps;
    let other = rig.other(lease);
    let led = match landed {
        Some(record) if bids == 1 => {
            let term = one.term().await;
            let (won, leads) = (record.token, term.token());
            ensure!(won == leads, "the bid with token {won} succeeded, but its bidder leads only with {leads}");
            rig.is_kept(&one, won).await?;
            rig.led_once()?;
            true
        }
        _ => false,
    };
    rig.settles([one, other]).await?;
    Ok(led)
}
