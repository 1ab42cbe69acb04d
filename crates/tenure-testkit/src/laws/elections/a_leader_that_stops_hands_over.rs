//! When the leader stops, another leads, with a higher token, and only after the work of the first
//! has returned.
//!
//! Protects from: a seat released while the work still runs, and from waiting out a whole lease for
//! a seat that was given up in good order.

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Desk, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("stops");
    let desk = Desk::new();
    let one = bench.stand(&seat, "one")?;
    let working = one.works_at(&desk);
    let first = bench.within("that one works", desk.acted_above(tenure_core::Token::ZERO)).await?;

    let other = bench.stand(&seat, "other")?;
    other.works_at(&desk);
    one.election.stop();
    let ended = bench.stopped(&one).await?;
    ensure!(ended == tenure_core::Ended::Stopped, "stop() must end as stopped, not as: {ended}");
    let seen = bench.read(&bench.connect(), &seat).await?.record;
    ensure!(!seen.is_held_by(one.election.candidate().incarnation), "the seat still names a candidate that has stopped");
    let second = bench.within("that the other works after one has stopped", desk.acted_above(first)).await?;

    ensure!(second > first, "the second term has token {second}, which is not above {first}");
    one.must_not_lead()?;
    bench.within("that the work of one returns", working).await?.ok();
    desk.shifts_do_not_overlap()
}
