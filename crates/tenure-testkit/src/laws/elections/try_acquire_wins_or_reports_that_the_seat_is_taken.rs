//! `try_acquire()` makes one bid: it wins a free seat, and reports when another candidate holds the seat. In an
//! election that is not manual, it returns the current term.
//!
//! Protects from: waiting where the caller wants an answer, and "taken" where the store has failed.

use tenure_core::Error;

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("acquired");
    let standing = bench.stand(&seat, "standing")?;
    let term = standing.term().await;
    let again = standing.bid().await;
    if standing.election.term().is_some_and(|now| now.token() == term.token()) {
        let again = again.map(|term| term.token());
        ensure!(again == Some(term.token()), "the leader itself gets {again:?}, not its term {}", term.token());
    }

    let manual = bench.stand_with(&seat, "manual", |election| election.manual())?;
    if let Some(won) = manual.bid().await {
        // Possible only if the other candidate has lost the seat on a busy machine.
        ensure!(won.token() > term.token() && !standing.election.is_leader(), "a held seat was acquired");
    }
    standing.election.stop();
    standing.stopped().await;
    let won = loop {
        // The release of the last term may still be in flight.
        if let Some(won) = manual.bid().await {
            break won;
        }
        tokio::time::sleep(bench.lease() / 50).await;
    };
    ensure!(won.token() > term.token(), "a term with token {} was acquired after {}", won.token(), term.token());
    ensure!(manual.election.is_leader() || !won.is_current(), "a term was acquired, but its election does not lead");

    let failing = bench.stand_with(&bench.seat("failing"), "failing", |election| election.manual())?;
    failing.wire.set(Traffic::Refuse);
    match bench.within("an answer", failing.election.try_acquire()).await? {
        Err(Error::Store(_)) => Ok(()),
        other => Err(Failure::new(format!("the store failed, but the answer is {other:?}"))),
    }
}
