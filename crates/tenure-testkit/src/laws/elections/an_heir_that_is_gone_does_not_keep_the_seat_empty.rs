//! If the named heir dies before it takes the seat, another candidate takes it after a while.
//!
//! Protects from: an election without a leader because of a hand-over that failed.

use tenure_core::EventKind;

use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("dead-heir");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    one.term().await;
    let (heir, third) = (bench.stand(&seat, "heir")?, bench.stand(&seat, "third")?);
    third.reports_to(&detector);
    third.knows_a_leader().await;
    bench.until("three are listed", || async { Ok(one.election.candidates().await?.len() == 3) }).await?;
    heir.wire.crash();
    let mut events = one.election.events();
    // The leader may notice in time that the heir is gone. Then it does not hand over.
    if one.election.transfer_to("heir").await.is_err() {
        one.election.step_down();
    }
    bench.event("the leader hands over", &mut events, |e| matches!(e, EventKind::LostLeadership { .. })).await?;
    third.term().await;
    detector.shifts_do_not_overlap()
}
