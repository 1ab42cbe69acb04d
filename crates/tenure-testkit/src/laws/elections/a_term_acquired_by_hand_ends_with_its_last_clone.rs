//! What `try_acquire()` has won on a manual election is renewed until the last clone of its term is
//! dropped, and given up then; also if the answer to its bid was lost, or nobody waited for it.
//!
//! Protects from: a lock that leaks because the one who took it went away.

use futures_util::FutureExt;

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Failure, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("by-hand");
    let one = bench.stand_with(&seat, "one", |election| election.manual())?;
    let term = acquire(&bench, &one).await?;
    let clone = term.clone();
    drop(term);
    // A view from elsewhere holds nothing.
    let view = one.election.term();
    let before = one.counter.counts();
    bench
        .within("that what was acquired is renewed", async {
            one.counter.wait_for(|counts| counts.renewals >= before.renewals + 3).await;
        })
        .await?;
    ensure!(clone.is_current() || !one.election.is_leader(), "a term was given up while a clone of it is held");
    drop(clone);
    is_given_up(&bench, &one).await?;
    drop(view);

    // Nobody waits for the answer.
    let before = one.counter.counts();
    let bid = Box::pin(one.election.try_acquire()).now_or_never();
    ensure!(bid.is_none_or(|bid| bid.is_ok()), "a bid failed at once");
    bench
        .within("that a bid which nobody waits for is made, and what it won given up", async {
            one.counter.wait_for(|counts| counts.swaps >= before.swaps + 2).await;
        })
        .await?;
    is_given_up(&bench, &one).await?;

    // The answer is lost, but the bid was won.
    one.wire.set_writes(Traffic::LoseAnswers);
    let (bids, counter, wire) = (one.counter.counts().swaps, one.counter.clone(), one.wire.clone());
    let mend = tokio::spawn(async move {
        counter.wait_for(|counts| counts.swaps > bids).await;
        wire.set(Traffic::Pass);
    });
    let bid = bench.within("an answer to a bid whose first answer was lost", one.election.try_acquire()).await?;
    mend.abort();
    one.wire.set(Traffic::Pass);
    drop(bid);
    is_given_up(&bench, &one).await?;
    drop(acquire(&bench, &one).await?);
    is_given_up(&bench, &one).await
}

async fn acquire(bench: &Bench, standing: &TestCandidate) -> Result<tenure_core::Term, Failure> {
    bench
        .within("that a free seat is acquired", async {
            loop {
                match standing.election.try_acquire().await {
                    Ok(Some(term)) => return term,
                    _ => tokio::time::sleep(bench.lease() / 50).await,
                }
            }
        })
        .await
}

async fn is_given_up(bench: &Bench, standing: &TestCandidate) -> Verdict {
    // One who only asks is settled when its election has ended; another can tell at any time.
    let store = bench.connect();
    let seat = tenure_core::SeatName::new(standing.election.name())?;
    bench
        .until("that a seat which nobody holds on to is given up", || async {
            Ok(bench.read(&store, &seat).await?.record.is_vacant() && !standing.election.is_leader())
        })
        .await
}
