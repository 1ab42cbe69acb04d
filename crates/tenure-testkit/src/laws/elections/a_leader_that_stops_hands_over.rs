//! When the leader stops, another candidate leads, with a higher token, and only after the work of the first leader
//! has returned.
//!
//! Protects from: a seat released while the work still runs, and a whole lease of waiting for a seat that was
//! released in an orderly way.

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("stops");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    let working = one.reports_to(&detector);
    let first = bench.within("one works", detector.acted_above(tenure_core::Token::ZERO)).await?;

    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    one.election.stop();
    let ended = one.stopped().await;
    ensure!(ended == tenure_core::Ended::Stopped, "stop() must end as stopped, not as: {ended}");
    let seen = bench.read(&bench.connect(), &seat).await?.record;
    ensure!(
        !seen.is_held_by(one.election.candidate().incarnation),
        "the seat still names a candidate that has stopped"
    );
    let second = bench.within("the other works after one has stopped", detector.acted_above(first)).await?;

    ensure!(second > first, "the second term has token {second}, which is not above {first}");
    one.must_not_lead()?;
    bench.within("the work of one returns", working).await?.ok();
    detector.shifts_do_not_overlap()
}
