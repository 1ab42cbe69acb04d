//! A leader that steps down is replaced by another candidate, and does not take the seat back first. When that
//! candidate steps down in turn, the first one can lead again.
//!
//! Protects from: an unfit leader that wins again at once, and one that never stands again.

use tenure_core::{EndReason, EventKind};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("steps-down");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    one.term().await;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    other.knows_a_leader().await;
    hand_over(&bench, &one, &other).await?;
    hand_over(&bench, &other, &one).await?;
    detector.shifts_do_not_overlap()
}

async fn hand_over(bench: &Bench, from: &TestCandidate, to: &TestCandidate) -> Verdict {
    loop {
        let token = from.term().await.token();
        let mut events = from.election.events();
        from.election.step_down();
        let ended = bench
            .event(
                "the end of the term that steps down",
                &mut events,
                |event| matches!(event, EventKind::LostLeadership { token: ended, .. } if *ended == token),
            )
            .await?;
        let EventKind::LostLeadership { why, .. } = ended else { continue };
        ensure!(
            why == EndReason::SteppedDown || !why.is_voluntary(),
            "the term ended for another reason than the request to step down: {}",
            why.as_str()
        );
        let next = to.term().await.token();
        ensure!(next > token, "the next term has token {next}, which is not above {token}");
        // If the machine is so busy that the term was lost before the hand-over, repeat.
        if why == EndReason::SteppedDown {
            let seen = bench.read(&bench.connect(), &bench.seat("steps-down")).await?;
            let holder = seen.record.holder.map(|holder| holder.incarnation);
            ensure!(
                seen.record.token != next || holder == Some(to.election.candidate().incarnation),
                "the seat of the next term names another candidate: {holder:?}"
            );
            from.must_not_lead()?;
            return Ok(());
        }
        to.election.step_down();
    }
}
