//! A candidate that is stopped while its bid is in flight makes sure that it does not keep the seat, whether the
//! bid has not arrived yet or its answer was lost.
//!
//! Protects from: a seat that is won by a candidate that no longer exists.

use tenure_core::Ended;

use crate::bench::Connection;
use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let store = bench.connect();
    for traffic in [Traffic::Wait, Traffic::LoseAnswers] {
        stop_during(&bench, &store, traffic).await?;
    }
    Ok(())
}

async fn stop_during(bench: &Bench, store: &Connection, traffic: Traffic) -> Verdict {
    let seat = bench.seat(&format!("during-{traffic:?}"));
    let one = bench.stand_behind(|wire| wire.set_writes(traffic), &seat, "one", |election| election)?;
    bench.within("a bid is made", async { one.counter.wait_for(|counts| counts.swaps >= 1).await }).await?;
    one.election.stop();
    one.wire.set(Traffic::Pass);
    let ended = one.stopped().await;
    ensure!(ended == Ended::Stopped, "stop() must end as stopped, not as: {ended}");
    let reading = bench.within("a reading", store.read(&seat)).await??;
    let holder = reading.seat.and_then(|seat| seat.record.holder);
    ensure!(holder.is_none(), "a candidate that was stopped during its bid has kept the seat");
    // A bid that was in flight must not arrive after that.
    let other = bench.stand(&seat, "other")?;
    other.term().await;
    one.must_not_lead()
}
