//! If the named heir dies before it could take the seat, another one does after a while.
//!
//! Protects from: an election without a leader because of a hand-over that never came about.

use tenure_core::Event;

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
    bench.until("that three are listed", || async { Ok(one.election.candidates().await?.len() == 3) }).await?;
    heir.wire.crash();
    let mut events = one.election.events();
    // It may be found out in time that the heir is gone; then there is nothing to hand over.
    if one.election.transfer_to("heir").await.is_err() {
        one.election.step_down();
    }
    bench.event("that the leader hands over", &mut events, |e| matches!(e, Event::LostLeadership { .. })).await?;
    third.term().await;
    detector.shifts_do_not_overlap()
}
