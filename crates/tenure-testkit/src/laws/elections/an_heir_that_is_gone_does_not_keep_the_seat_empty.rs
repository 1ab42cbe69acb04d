//! If the named heir dies before it could take the seat, another one does after a while.
//!
//! Protects from: an election without a leader because of a hand-over that never came about.

use tenure_core::Event;

use crate::law::Need;
use crate::{Bench, Desk, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("dead-heir");
    let desk = Desk::new();
    let one = bench.stand(&seat, "one")?;
    one.works_at(&desk);
    bench.elected(&one).await?;
    let (heir, third) = (bench.stand(&seat, "heir")?, bench.stand(&seat, "third")?);
    third.works_at(&desk);
    bench.knows_a_leader(&third).await?;
    bench.until("that three are listed", || async { Ok(one.election.candidates().await?.len() == 3) }).await?;
    heir.wire.crash();
    let mut events = one.election.events();
    // It may be found out in time that the heir is gone; then there is nothing to hand over.
    if one.election.transfer_to("heir").await.is_err() {
        one.election.step_down();
    }
    bench.event("that the leader hands over", &mut events, |e| matches!(e, Event::LostLeadership { .. })).await?;
    bench.elected(&third).await?;
    desk.shifts_do_not_overlap()
}
