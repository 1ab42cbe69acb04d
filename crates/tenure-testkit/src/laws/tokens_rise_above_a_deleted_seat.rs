//! A seat that was deleted, by mistake or with a purge, is taken with a higher token than it ever had: the store
//! keeps a floor for tokens that outlives the record.
//!
//! Protects from: tokens that restart at one, although the resource that the leader writes to has seen higher ones.

use tenure_core::Token;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Delete];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("deleted");
    let mut highest = Token::ZERO;
    for _ in 0..3 {
        let one = bench.stand(&seat, "one")?;
        let token = one.term().await.token();
        ensure!(token > highest, "after its seat was deleted, a term has token {token}, which is not above {highest}");
        highest = token;
        one.election.stop();
        one.stopped().await;
        if let Some(delete) = bench.subject.delete(&seat) {
            delete.await;
        }
        let store = bench.connect();
        let reading = bench.within("a reading", store.read(&seat)).await??;
        ensure!(reading.seat.is_none(), "the seat was deleted, but reads as {:?}", reading.seat);
        ensure!(reading.floor >= highest, "the floor for tokens is {}, which is below {highest}", reading.floor);
    }
    Ok(())
}
