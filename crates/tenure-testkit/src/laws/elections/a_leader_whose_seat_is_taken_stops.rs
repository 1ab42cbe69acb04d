//! A leader that finds another candidate in its seat, for whatever reason, stops at once and is notified of the
//! reason.
//!
//! Protects from: a leader that keeps renewing a seat that is no longer its own.

use tenure_core::{EndReason, EventKind, Swap};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::NoSessions];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("taken");
    let store = bench.connect();
    let one = bench.stand(&seat, "one")?;
    let mut term = one.term().await;
    let mut events = one.election.events();
    let usurper = candidate("usurper");
    // The leader renews at the same time, so this can take a few attempts.
    loop {
        let seen = bench.read(&store, &seat).await?;
        let record = bench.held(&usurper, seen.record.token.get() + 1);
        if bench.within("an answer", store.swap(&seat, Some(&seen.version), &record)).await?? != Swap::Lost {
            break;
        }
        term = one.term().await;
    }
    let before = one.counter.counts();
    let ended = bench
        .event(
            "an event that the leader has lost its seat",
            &mut events,
            |event| matches!(event, EventKind::LostLeadership { token, .. } if *token >= term.token()),
        )
        .await?;
    let EventKind::LostLeadership { why, .. } = ended else { return Ok(()) };
    // One read may have been in flight already. A later one must show the new holder.
    let looked = one.counter.counts().reads > before.reads + 1;
    ensure!(
        why == EndReason::SeatLost || (why == EndReason::NotRenewed && !looked),
        "a leader has seen that its seat was taken, but its term ended for another reason: {}",
        why.as_str()
    );
    ensure!(!term.is_current(), "the term of a leader whose seat was taken is still current");
    Ok(())
}
