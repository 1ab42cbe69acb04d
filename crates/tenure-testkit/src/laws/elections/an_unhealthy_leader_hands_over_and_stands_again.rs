//! A leader that reports that it is not well hands over, does not take the seat again while it is not,
//! and stands again by itself once it has been well for a while.
//!
//! Protects from: a health score that nobody reads, an unhealthy leader that wins again at once, and
//! one that never stands again.

use tenure_core::{Event, Health, EndReason};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("unwell");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    let mut events = one.election.events();
    one.term().await;
    one.election.report_health(0.79, ())?;
    let ended = bench
        .event("that an unhealthy leader ends its term", &mut events, |event| {
            matches!(event, Event::LostLeadership { .. })
        })
        .await?;
    let Event::LostLeadership { token, why } = ended else { return Ok(()) };
    ensure!(why == EndReason::Unhealthy || !why.is_voluntary(), "it ended for another reason: {}", why.as_str());

    // With nobody well nobody leads, and it shows.
    bench
        .until("that nobody leads, visibly", || async { Ok(matches!(one.election.health(), Health::Degraded { .. })) })
        .await?;
    one.must_not_lead()?;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    let next = other.term().await.token();
    ensure!(next > token, "the next term has token {next}, which is not above {token}");
    one.knows_a_leader().await;
    ensure!(one.election.health().is_healthy(), "a follower that sees a leader says: {}", one.election.health());

    // Well again for long enough, it stands again; and meanwhile the other one falls ill.
    one.election.report_healthy(true, ())?;
    bench
        .event("that it is well again", &mut events, |event| matches!(event, Event::HealthChanged { healthy: true }))
        .await?;
    other.election.report_healthy(false, ())?;
    let last = one.term().await.token();
    ensure!(last > next, "the last term has token {last}, which is not above {next}");
    detector.shifts_do_not_overlap()
}
