//! Tokens only ever rise for a seat: after it was released, after its holder was gone without a
//! word and its lease lapsed, and after every connection was closed and opened again.
//!
//! Protects from: a token that restarts, with which a leader that was replaced would be let in
//! again by whatever it writes to.

use tenure_core::Token;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("tokens");
    let mut highest = Token::ZERO;
    for how in ["at the start", "after a release", "after a crash", "after another release"] {
        // Every round opens all connections anew.
        let one = bench.stand(&seat, "one")?;
        let token = one.term().await.token();
        ensure!(token > highest, "{how} a term has token {token}, though there was {highest} before");
        let store = bench.connect();
        let reading = bench.within("a reading", store.read(&seat)).await??;
        let seen = reading.seat.as_ref().map(|seat| seat.record.token);
        ensure!(seen == Some(token), "the seat has token {seen:?}, but its leader {token}");
        highest = token;
        if how == "after a release" {
            one.wire.crash();
        } else {
            one.election.stop();
            one.stopped().await;
        }
    }
    Ok(())
}
