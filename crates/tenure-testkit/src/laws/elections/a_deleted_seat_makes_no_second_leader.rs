//! When the seat of a leader is deleted, nobody takes the empty place before that leader has
//! stopped: whoever has seen the seat waits its lease out. Then one leads again, with a higher token.
//!
//! Protects from: an operator's mistake that makes two leaders.

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
    let first = bench.within("that one works", detector.acted_above(Token::ZERO)).await?;
    let term = one.term().await;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    other.knows_a_leader().await;
    // It cannot see that its seat is gone, and counts on its lease.
    one.wire.set(Traffic::Hang);
    if let Some(delete) = bench.subject.delete(&seat) {
        delete.await;
    }
    bench.within("that somebody works after the seat was deleted", detector.acted_above(first)).await?;
    // Judged only once it is over, so that nothing it still does is overlooked.
    bench.within("that the term of one ends", term.ended()).await?;
    detector.acts_do_not_overlap()
}
