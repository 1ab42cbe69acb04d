//! A process that restarts with the same id is another candidate: it does not take over the old term, but waits
//! until the seat is free, and leads with a higher token.
//!
//! Protects from: a restart that silently renews the lease of the previous process, which may still run.

use tenure_core::Token;

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("restarts");
    let detector = OverlapDetector::new();
    let before = bench.stand(&seat, "same")?;
    before.reports_to(&detector);
    let first = bench.within("the first one works", detector.acted_above(Token::ZERO)).await?;
    let old = before.term().await;
    // The old process cannot reach the store, but it still runs.
    before.wire.set(Traffic::Hang);
    let after = bench.stand(&seat, "same")?;
    after.reports_to(&detector);
    ensure!(
        before.election.candidate() != after.election.candidate(),
        "a restarted process is the same candidate as before"
    );
    let second = bench.within("the restarted process works", detector.acted_above(first)).await?;
    let term = after.election.term().map(|term| term.token());
    ensure!(term.is_none_or(|token| token >= second), "the restarted process leads with {term:?}, not {second}");
    // The check waits for the end of the term, so that it includes all of its acts.
    bench.within("the old term ends", old.ended()).await?;
    detector.acts_do_not_overlap()
}
