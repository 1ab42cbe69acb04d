//! A candidate of higher priority with `preempt` takes over from a leader of lower priority after it has been
//! healthy for a while. Without `preempt` it waits until the seat is free.
//!
//! Protects from: work that stays on the second choice forever, and seats that move for no reason.

use tenure_core::{EndReason, EventKind};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("preempt");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    let mut events = one.election.events();
    one.term().await;
    let patient = bench.stand_with(&seat, "patient", |election| election.priority(9))?;
    patient.reports_to(&detector);
    let eager = bench.stand_with(&seat, "eager", |election| election.priority(5).preempt(true))?;
    eager.reports_to(&detector);
    eager.term().await;
    let ended =
        bench.event("the leader hands over", &mut events, |e| matches!(e, EventKind::LostLeadership { .. })).await?;
    let EventKind::LostLeadership { why, .. } = ended else { return Ok(()) };
    ensure!(
        why == EndReason::SteppedDown || !why.is_voluntary(),
        "the term ended for another reason: {}",
        why.as_str()
    );
    detector.shifts_do_not_overlap()
}
