//! On a manual election, whoever is handed a term by `try_acquire()` keeps it until it lets go of
//! it, also if somebody else drops theirs at that very moment.
//!
//! Protects from: a term that is given away and given up at once.

use futures_util::FutureExt;
use tenure_core::Error;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("dropped-and-asked-for");
    let one = bench.stand_with(&seat, "one", |election| election.manual())?;
    loop {
        let Some(first) = one.bid().await else {
            tokio::time::sleep(bench.lease() / 50).await;
            continue;
        };
        let token = first.token();
        // While the engine is busy, somebody asks, and then the first one lets go.
        one.brake.pull();
        bench.within("that the engine of one calls the store", one.brake.blocked()).await?;
        let mut asking = Box::pin(one.election.try_acquire());
        ensure!((&mut asking).now_or_never().is_none(), "an answer came from an engine that is stuck");
        drop(first);
        one.brake.release();
        let second = match bench.within("an answer", asking).await? {
            Err(Error::Store(_)) => None,
            answer => answer?,
        };
        // Lost on a busy machine, or let go of before the other was heard: once more.
        let Some(second) = second.filter(|second| second.token() == token) else { continue };
        let before = one.counter.counts();
        bench
            .within("that a term which somebody holds is renewed", async {
                one.counter.wait_for(|counts| counts.renewals >= before.renewals + 2).await;
            })
            .await?;
        drop(second);
        return Ok(());
    }
}
