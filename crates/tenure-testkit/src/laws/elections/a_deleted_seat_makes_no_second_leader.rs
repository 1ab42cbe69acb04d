//! When the seat of a leader is deleted, no candidate takes the seat before that leader has stopped: a candidate
//! that has seen the seat waits a lease. Then a candidate leads again, with a higher token.
//!
//! Protects from: two leaders after an operator's mistake.

use tenure_core::Token;

use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Delete];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("deleted-while-held");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    let first = bench.within("one works", detector.acted_above(Token::ZERO)).await?;
    let term = one.term().await;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    other.knows_a_leader().await;
    // The leader cannot see that its seat is gone, and counts on its lease.
    one.wire.set(Traffic::Hang);
    if let Some(delete) = bench.subject.delete(&seat) {
        delete.await;
    }
    bench.within("a candidate works after the seat was deleted", detector.acted_above(first)).await?;
    // The check waits for the end of the term, so that it includes all of its acts.
    bench.within("the term of one ends", term.ended()).await?;
    detector.acts_do_not_overlap()
}
