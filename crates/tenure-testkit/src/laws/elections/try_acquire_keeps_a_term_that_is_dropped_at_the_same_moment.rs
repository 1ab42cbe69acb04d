//! In a manual election, a caller that gets a term from `try_acquire()` keeps it until it drops the term, also if
//! another holder of the same term drops its clone at the same moment.
//!
//! Protects from: a term that is handed out and released at once.

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
        // While the engine is blocked, a second caller asks, and then the first one drops its term.
        one.brake.pull();
        bench.within("the engine of one calls the store", one.brake.blocked()).await?;
        let mut asking = Box::pin(one.election.try_acquire());
        ensure!((&mut asking).now_or_never().is_none(), "a blocked engine has answered");
        drop(first);
        one.brake.release();
        let second = match bench.within("an answer", asking).await? {
            Err(Error::Store(_)) => None,
            answer => answer?,
        };
        // If the term was lost on a busy machine, or dropped before the engine got the second call, repeat.
        let Some(second) = second.filter(|second| second.token() == token) else { continue };
        let before = one.counter.counts();
        bench
            .within("the term that the second caller holds is renewed", async {
                one.counter.wait_for(|counts| counts.renewals >= before.renewals + 2).await;
            })
            .await?;
        drop(second);
        return Ok(());
    }
}
