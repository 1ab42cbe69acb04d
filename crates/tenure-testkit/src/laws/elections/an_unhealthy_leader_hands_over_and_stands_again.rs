//! A leader that reports that it is unhealthy hands over, does not take the seat again while it is unhealthy, and
//! stands again once it has been healthy for a while.
//!
//! Protects from: a health score that is never used, an unhealthy leader that wins again at once, and a leader that
//! never stands again.

use tenure_core::{EndReason, EventKind, Health};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("unhealthy");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    let mut events = one.election.events();
    one.term().await;
    one.election.report_health(0.79, ())?;
    let ended = bench
        .event("an unhealthy leader ends its term", &mut events, |event| {
            matches!(event, EventKind::LostLeadership { .. })
        })
        .await?;
    let EventKind::LostLeadership { token, why } = ended else { return Ok(()) };
    ensure!(why == EndReason::Unhealthy || !why.is_voluntary(), "the term ended for another reason: {}", why.as_str());

    // While no candidate is healthy, none leads, and the health of the election shows it.
    bench
        .until("the election is degraded, because there is no leader", || async {
            Ok(matches!(one.election.health(), Health::Degraded { .. }))
        })
        .await?;
    one.must_not_lead()?;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    let next = other.term().await.token();
    ensure!(next > token, "the next term has token {next}, which is not above {token}");
    one.knows_a_leader().await;
    ensure!(
        one.election.health().is_healthy(),
        "the health of a follower that sees a leader is: {}",
        one.election.health()
    );

    // After it has been healthy for long enough, it stands again. Meanwhile the other one becomes unhealthy.
    one.election.report_healthy(true, ())?;
    bench
        .event("an event that the candidate is healthy again", &mut events, |event| {
            matches!(event, EventKind::HealthChanged { healthy: true })
        })
        .await?;
    other.election.report_healthy(false, ())?;
    let last = one.term().await.token();
    ensure!(last > next, "the last term has token {last}, which is not above {next}");
    detector.shifts_do_not_overlap()
}
