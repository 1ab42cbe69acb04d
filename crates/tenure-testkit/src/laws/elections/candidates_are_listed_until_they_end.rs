//! Every candidate is listed, with the leader marked, also in another process. A candidate that stops is removed at
//! once, and a candidate that dies a few leases later.
//!
//! Protects from: rosters that miss living candidates and keep dead ones.

use tenure_core::CandidateStatus;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("roster");
    let one = bench.stand_with(&seat, "one", |election| election.priority(3).metadata("zone", "a"))?;
    one.term().await;
    let other = bench.stand(&seat, "other")?;
    let third = bench.stand(&seat, "third")?;
    let listed = until_listed(&bench, &third, &["one", "other", "third"]).await?;
    for status in &listed {
        let is_one = status.candidate == *one.election.candidate();
        ensure!(status.is_leader == is_one, "the wrong candidate is marked as the leader: {listed:?}");
        ensure!(
            status.healthy && status.score == 1.0,
            "a candidate without a health report must be healthy: {status:?}"
        );
        ensure!(status.priority == if is_one { 3 } else { 0 }, "the priority is wrong: {status:?}");
        ensure!(status.metadata.contains_key("zone") == is_one, "the metadata is wrong: {status:?}");
    }
    ensure!(listed[0].is_leader, "the leader is not listed first: {listed:?}");

    third.election.report_health(0.9, [("queue", "17")])?;
    bench
        .until("a report shows on the roster", || async {
            let listed = one.election.candidates().await?;
            let shows = |status: &CandidateStatus| status.score == 0.9 && status.metadata.contains_key("queue");
            Ok(listed.iter().any(shows))
        })
        .await?;

    other.election.stop();
    other.stopped().await;
    until_listed(&bench, &one, &["one", "third"]).await?;
    third.wire.crash();
    until_listed(&bench, &one, &["one"]).await?;
    Ok(())
}

async fn until_listed(bench: &Bench, at: &TestCandidate, ids: &[&str]) -> Result<Vec<CandidateStatus>, Failure> {
    let listed = std::sync::Mutex::new(Vec::new());
    bench
        .until(&format!("{ids:?} are listed"), || async {
            let now = at.election.candidates().await?;
            let mut names: Vec<_> = now.iter().map(|status| status.candidate.id.to_string()).collect();
            names.sort();
            let enough = names == ids;
            *listed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = now;
            Ok(enough)
        })
        .await?;
    Ok(listed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
}
