//! The tokens of a seat only ever rise: after a release, after its holder crashed and the lease expired, and after
//! every connection was closed and opened again.
//!
//! Protects from: a token that restarts, so that a resource accepts writes of a leader that was replaced.

use tenure_core::Token;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("tokens");
    let mut highest = Token::ZERO;
    for how in ["at the start", "after a release", "after a crash", "after another release"] {
        // Every round opens new connections.
        let one = bench.stand(&seat, "one")?;
        let token = one.term().await.token();
        ensure!(token > highest, "{how}, a term has token {token}, which is not above {highest}");
        let store = bench.connect();
        let reading = bench.within("a reading", store.read(&seat)).await??;
        let seen = reading.seat.as_ref().map(|seat| seat.record.token);
        ensure!(seen == Some(token), "the seat has token {seen:?}, but its leader has {token}");
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
