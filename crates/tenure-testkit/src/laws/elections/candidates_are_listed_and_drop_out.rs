//! Everybody who stands is listed, with the leader marked, also in another process; whoever stops is
//! gone at once, and whoever dies a few leases later.
//!
//! Protects from: rosters that forget the living and keep the dead.

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
        ensure!(status.is_leader == is_one, "the wrong one is marked as the leader: {listed:?}");
        ensure!(status.healthy && status.score == 1.0, "before any report, everybody is well: {status:?}");
        ensure!(status.priority == if is_one { 3 } else { 0 }, "a wrong priority: {status:?}");
        ensure!(status.metadata.contains_key("zone") == is_one, "wrong metadata: {status:?}");
    }
    ensure!(listed[0].is_leader, "the leader does not come first: {listed:?}");

    third.election.report_health(0.9, [("queue", "17")])?;
    bench
        .until("that a report shows on the roster", || async {
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
        .until(&format!("that {ids:?} are listed"), || async {
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
