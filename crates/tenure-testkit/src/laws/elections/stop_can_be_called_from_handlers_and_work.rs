//! `stop()` and `step_down()` can be called inside handlers and inside work, and the election ends in an orderly
//! way.
//!
//! Protects from: a stop that waits for the handler that called it.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tenure_core::{Election, Ended};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    from_a_handler(&bench).await?;
    from_work(&bench).await
}

async fn from_a_handler(bench: &Bench) -> Verdict {
    let seat = bench.seat("from-a-handler");
    let handle: Arc<OnceLock<Election>> = Arc::default();
    let (started, stopped) = (handle.clone(), handle.clone());
    let stops = Arc::new(OnceLock::new());
    let stops_now = stops.clone();
    let one = bench.stand_with(&seat, "one", |election| {
        election
            .on_started_leading(async move |_| {
                let election = started.wait();
                election.step_down();
                stops_now.get_or_init(Instant::now);
                election.stop();
            })
            .on_stopped_leading(move |_, _| stopped.wait().stop())
    })?;
    let _ = handle.set(one.election.clone());
    let ended = one.stopped().await;
    ensure!(ended == Ended::Stopped, "stop() from a handler must end as stopped, not as: {ended}");
    let stops = *stops.get_or_init(Instant::now);
    ensure!(bench.has_released(&seat, stops).await?, "stop() from a handler did not release the seat");
    Ok(())
}

async fn from_work(bench: &Bench) -> Verdict {
    let seat = bench.seat("from-work");
    let one = bench.stand(&seat, "one")?;
    let election = one.election.clone();
    let work = tokio::spawn(async move {
        election
            .run_while_leader(async |term| {
                election.stop();
                term.ending().await;
                term.token()
            })
            .await
    });
    let stops = Instant::now();
    let done = bench.within("work which stops its own election returns", work).await?;
    ensure!(matches!(done, Ok(Ok(_))), "work that stops its own election and wraps up was cancelled: {done:?}");
    let ended = one.stopped().await;
    ensure!(ended == Ended::Stopped, "stop() from work must end as stopped, not as: {ended}");
    ensure!(bench.has_released(&seat, stops).await?, "stop() from work did not release the seat");
    Ok(())
}
