//! When the leader crashes, another candidate leads once the seat has expired, with a higher token.
//!
//! Protects from: a seat that a dead leader keeps.

use tenure_core::Token;

use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("crashes");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    let working = one.reports_to(&detector);
    let first = bench.within("one works", detector.acted_above(Token::ZERO)).await?;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);

    // The work ends with its process.
    working.abort();
    bench.within("the work of one is gone", working).await?.ok();
    one.wire.crash();
    bench.within("the other works after one has crashed", detector.acted_above(first)).await?;
    detector.acts_do_not_overlap()
}
