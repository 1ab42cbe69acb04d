//! A candidate of higher priority that is told to preempt takes over from a leader of lower priority
//! once it has been there for a while; one that is not told to waits for its turn.
//!
//! Protects from: work that stays on the second choice for ever, and from seats that move for nothing.

use tenure_core::{Event, Why};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Desk, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("preempt");
    let desk = Desk::new();
    let one = bench.stand(&seat, "one")?;
    one.works_at(&desk);
    let mut events = one.election.events();
    bench.elected(&one).await?;
    let patient = bench.stand_with(&seat, "patient", |election| election.priority(9))?;
    patient.works_at(&desk);
    let eager = bench.stand_with(&seat, "eager", |election| election.priority(5).preempt(true))?;
    eager.works_at(&desk);
    bench.elected(&eager).await?;
    let ended =
        bench.event("that the leader hands over", &mut events, |e| matches!(e, Event::LostLeadership { .. })).await?;
    let Event::LostLeadership { why, .. } = ended else { return Ok(()) };
    ensure!(why == Why::SteppedDown || !why.is_voluntary(), "it ended for another reason: {}", why.as_str());
    desk.shifts_do_not_overlap()
}
