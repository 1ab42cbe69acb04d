//! A candidate whose bid was won, but whose answer got lost, finds out by looking, and leads: one
//! term, with the token that is in the seat.
//!
//! Protects from: a candidate locked out of its own seat until the lease has lapsed, and from one
//! that leads with a token that is not in the seat.

use tenure_core::Event;

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
        .within("that a bid is made and looked after", async {
            one.counter.wait_for(|counts| counts.swaps >= 1 && counts.reads >= 2).await;
        })
        .await?;
    let store = bench.connect();
    // A bid that was given up before it had reached the store is followed by another.
    bench.until("that a bid has landed", || async { Ok(bench.read(&store, &seat).await.is_ok()) }).await?;
    let bid = bench.read(&store, &seat).await?.record;
    one.wire.set(Traffic::Pass);
    let term = one.term().await;
    let seen = bench.read(&store, &seat).await?.record;
    ensure!(seen.token == term.token(), "it leads with token {}, but the seat has {}", term.token(), seen.token);
    // On a machine so busy that the lease has lapsed meanwhile, it may have had to bid again.
    ensure!(
        term.token() == bid.token || now().since(began_at) > bench.lease() / 2,
        "a bid with token {} was won, but its bidder led only with {}",
        bid.token,
        term.token()
    );
    one.election.stop();
    one.stopped().await;

    let mut began = Vec::new();
    while let Some(event) = bench.within("the next event", events.next()).await? {
        if let Event::BecameLeader { term } = event {
            began.push(term.token());
        }
    }
    ensure!(began.first().is_some_and(|token| *token >= bid.token), "it led with {began:?}, but had bid {}", bid.token);
    ensure!(began.contains(&term.token()), "a term began that nobody was told of: {began:?}");
    Ok(())
}
