//! A leader that steps down is followed by another, and does not take the seat back first. When
//! that one steps down in turn, the first may lead again.
//!
//! Protects from: an unfit leader that wins again at once, and one that never stands again.

use tenure_core::{Event, Why};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Desk, Standing, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("steps-down");
    let desk = Desk::new();
    let one = bench.stand(&seat, "one")?;
    one.works_at(&desk);
    bench.elected(&one).await?;
    let other = bench.stand(&seat, "other")?;
    other.works_at(&desk);
    bench.knows_a_leader(&other).await?;
    hand_over(&bench, &one, &other).await?;
    hand_over(&bench, &other, &one).await?;
    desk.shifts_do_not_overlap()
}

async fn hand_over(bench: &Bench, from: &Standing, to: &Standing) -> Verdict {
    loop {
        let token = bench.elected(from).await?.token();
        let mut events = from.election.events();
        from.election.step_down();
        let ended = bench
            .event("the end of the term that steps down", &mut events, |event| {
                matches!(event, Event::LostLeadership { token: ended, .. } if *ended == token)
            })
            .await?;
        let Event::LostLeadership { why, .. } = ended else { continue };
        ensure!(
            why == Why::SteppedDown || !why.is_voluntary(),
            "a term that was to be handed over ended for another reason: {}",
            why.as_str()
        );
        let next = bench.elected(to).await?.token();
        ensure!(next > token, "the next term has token {next}, which is not above {token}");
        // On a machine so busy that the term was lost before it could be handed over: once more.
        if why == Why::SteppedDown {
            let seen = bench.read(&bench.connect(), &bench.seat("steps-down")).await?;
            let holder = seen.record.holder.map(|holder| holder.incarnation);
            ensure!(
                seen.record.token != next || holder == Some(to.election.candidate().incarnation),
                "the seat of the next term names somebody else: {holder:?}"
            );
            from.must_not_lead()?;
            return Ok(());
        }
        to.election.step_down();
    }
}
