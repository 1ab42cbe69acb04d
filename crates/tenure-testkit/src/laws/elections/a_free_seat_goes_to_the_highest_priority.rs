//! When the seat becomes free, the candidate with the highest priority gets it, although others see the vacancy,
//! too. If that candidate is unhealthy, the next one gets it.
//!
//! Protects from: priorities that depend on luck.

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, OverlapDetector, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("priority");
    let detector = OverlapDetector::new();
    // A long lease, so that others leave the seat to the right candidate for longer than any machine is busy.
    let lease = bench.long_lease();
    let stand = |id: &str, priority| bench.stand_with(&seat, id, |election| election.lease(lease).priority(priority));
    let first = stand("first", 1)?;
    first.reports_to(&detector);
    first.term().await;
    let others = [stand("low", -1)?, stand("none", 0)?, stand("high", 7)?, stand("middle", 3)?];
    for other in &others {
        other.reports_to(&detector);
        other.knows_a_leader().await;
    }
    bench.until("five are listed", || async { Ok(first.election.candidates().await?.len() == 5) }).await?;
    let high = &others[2];
    // The candidate cannot bid for a while, so that it does not win only because it is the fastest. The time is too
    // short for its call to time out.
    high.wire.set_writes(Traffic::Wait);
    let token = first.term().await.token();
    first.election.step_down();
    let hasty = tokio::time::timeout(bench.lease() / 4, detector.acted_above(token)).await;
    ensure!(hasty.is_err(), "a candidate of lower priority took the free seat at once, with token {hasty:?}");
    high.wire.set_writes(Traffic::Pass);
    let next = high.term().await.token();
    ensure!(next > token, "the next term has token {next}, which is not above {token}");
    // A candidate that did not see it lead relies on the roster alone, and leaves it the seat until the roster shows
    // that it is unhealthy.
    let know = || {
        let knows = |one: &&TestCandidate| one.election.leader().is_some_and(|leader| leader.token == next);
        others.iter().chain([&first]).filter(knows).count() == 5
    };
    bench.until("all know who leads", || async { Ok(know()) }).await?;
    high.election.report_healthy(false, ())?;
    let middle = &others[3];
    middle.term().await;
    ensure!(!high.election.is_leader(), "an unhealthy candidate leads because it has the highest priority");
    detector.shifts_do_not_overlap()
}
