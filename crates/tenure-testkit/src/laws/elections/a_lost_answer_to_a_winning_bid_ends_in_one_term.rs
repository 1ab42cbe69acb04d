//! A candidate whose bid succeeds, but whose answer is lost, finds out by reading the seat, and leads: one term,
//! with the token in the seat.
//!
//! Protects from: a candidate that is locked out of its own seat until the lease expires, and a candidate that
//! leads with a token that is not in the seat.

use tenure_core::EventKind;

use crate::bench::now;
use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("lost-answer");
    let began_at = now();
    let one = bench.stand_behind(|wire| wire.set_writes(Traffic::LoseAnswers), &seat, "one", |election| election)?;
    let mut events = one.election.events();
    bench
        .within("a bid, and a read after it", async {
            one.counter.wait_for(|counts| counts.swaps >= 1 && counts.reads >= 2).await;
        })
        .await?;
    let store = bench.connect();
    // If a bid times out before it reaches the store, the candidate bids again.
    bench.until("a bid reaches the store", || async { Ok(bench.read(&store, &seat).await.is_ok()) }).await?;
    let bid = bench.read(&store, &seat).await?.record;
    one.wire.set(Traffic::Pass);
    let term = one.term().await;
    let seen = bench.read(&store, &seat).await?.record;
    ensure!(
        seen.token == term.token(),
        "the candidate leads with token {}, but the seat has {}",
        term.token(),
        seen.token
    );
    // If the machine is so busy that the lease expired meanwhile, the candidate had to bid again.
    ensure!(
        term.token() == bid.token || now().since(began_at) > bench.lease() / 2,
        "a bid with token {} succeeded, but its bidder led only with {}",
        bid.token,
        term.token()
    );
    one.election.stop();
    one.stopped().await;

    let mut began = Vec::new();
    while let Some(event) = bench.within("the next event", events.next()).await? {
        if let EventKind::BecameLeader { term } = event.kind {
            began.push(term.token());
        }
    }
    ensure!(
        began.first().is_some_and(|token| *token >= bid.token),
        "terms started with tokens {began:?}, but the bid had token {}",
        bid.token
    );
    ensure!(began.contains(&term.token()), "the term has no start event; there are events for {began:?}");
    Ok(())
}
