//! When the leader is gone without a word, another leads once the seat has lapsed, with a higher
//! token.
//!
//! Protects from: a seat that stays with the dead.

use tenure_core::Token;

use crate::law::Need;
use crate::{Bench, Desk, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("crashes");
    let desk = Desk::new();
    let one = bench.stand(&seat, "one")?;
    let working = one.works_at(&desk);
    let first = bench.within("that one works", desk.acted_above(Token::ZERO)).await?;
    let other = bench.stand(&seat, "other")?;
    other.works_at(&desk);

    // The work ends with its process.
    working.abort();
    bench.within("that the work of one is gone", working).await?.ok();
    one.wire.crash();
    bench.within("that the other works after one has crashed", desk.acted_above(first)).await?;
    desk.acts_do_not_overlap()
}
