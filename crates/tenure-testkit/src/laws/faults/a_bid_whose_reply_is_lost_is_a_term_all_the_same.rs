//! A candidate whose bid reaches the server, but whose reply is lost with its connection, reads the seat back and leads
//! with the token of that bid. It is not locked out of its own seat until its lease has lapsed.
//!
//! Protects from: a seat that is read back from a cache which has not heard of the bid, and a store that does not
//! connect again.

use tenure_core::Token;

use super::{Need, Rig};
use crate::failure::ensure;
use crate::{Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Plain];

/// A connection is cut by the first bytes that the server sends after the bid. Where many calls share a connection those
/// may be another reply, and then the bid may come to nothing: such a trial is repeated.
const TRIALS: u64 = 20;

pub(super) async fn check(mut rig: Rig) -> Verdict {
    // The server has been asked everything once, such as to prepare what later bids use.
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
    Err(Failure::new(format!("of {TRIALS} bids whose reply was lost, none made its bidder lead")))
}

/// Whether a bid was won whose reply was lost, and its bidder leads by it.
async fn is_led(rig: &Rig, trial: u64) -> Result<bool, Failure> {
    let lease = rig.server.long_lease();
    rig.faulty.drop_reply_to(rig.server.bid());
    let one = rig.one(lease);
    rig.faulty.caught(trial).await;
    if rig.server.ends_with_its_connection() {
        // The bid was lost with its connection, and the seat is free for both.
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
            ensure!(won == leads, "the bid with token {won} was won, but its bidder leads only with {leads}");
            rig.is_kept(&one, won).await?;
            rig.led_once()?;
            true
        }
        _ => false,
    };
    rig.settles([one, other]).await?;
    Ok(led)
}
