//! A term that `try_acquire()` wins in a manual election is renewed until its last clone is dropped, and released
//! then. This also holds if the answer to its bid was lost, or if the caller stopped waiting for it.
//!
//! Protects from: a lock that leaks because its owner went away.

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
    // A term that the election returns does not keep the seat.
    let view = one.election.term();
    let before = one.counter.counts();
    bench
        .within("the acquired term is renewed", async {
            one.counter.wait_for(|counts| counts.renewals >= before.renewals + 3).await;
        })
        .await?;
    ensure!(clone.is_current() || !one.election.is_leader(), "a term was released while a clone of it exists");
    drop(clone);
    is_released(&bench, &one).await?;
    drop(view);

    // The caller stops waiting for the answer.
    let before = one.counter.counts();
    let is_done = one.counter.wait_for(|counts| counts.swaps >= before.swaps + 2);
    let abandon = async {
        // On a busy machine, the read before a bid can time out. Then nothing is bid, and the caller tries again.
        loop {
            let bid = Box::pin(one.election.try_acquire()).now_or_never();
            ensure!(bid.is_none_or(|bid| bid.is_ok()), "a bid failed at once");
            tokio::time::sleep(bench.lease()).await;
        }
    };
    let done = async {
        tokio::select! {
            _ = is_done => Ok(()),
            failed = abandon => failed,
        }
    };
    bench.within("the abandoned bid is made, and its term is released", done).await??;
    is_released(&bench, &one).await?;

    // The answer is lost, but the bid succeeds.
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
    is_released(&bench, &one).await?;
    drop(acquire(&bench, &one).await?);
    is_released(&bench, &one).await
}

async fn acquire(bench: &Bench, standing: &TestCandidate) -> Result<tenure_core::Term, Failure> {
    bench
        .within("a free seat is acquired", async {
            loop {
                match standing.election.try_acquire().await {
                    Ok(Some(term)) => return term,
                    _ => tokio::time::sleep(bench.lease() / 50).await,
                }
            }
        })
        .await
}

async fn is_released(bench: &Bench, standing: &TestCandidate) -> Verdict {
    // Another connection polls the seat: it sees the release at any time, not only after the election has ended.
    let store = bench.connect();
    let seat = tenure_core::SeatName::new(standing.election.name())?;
    bench
        .until("the seat is released after its last clone was dropped", || async {
            Ok(bench.read(&store, &seat).await?.record.is_vacant() && !standing.election.is_leader())
        })
        .await
}
