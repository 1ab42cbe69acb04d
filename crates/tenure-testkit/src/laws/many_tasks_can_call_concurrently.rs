//! One connection serves many tasks at the same time: every caller gets its own answer, no update is lost, and
//! every call returns.
//!
//! Protects from: answers that reach the wrong caller, pools that starve, and locks that wait for each other.

use futures_util::future::join_all;
use tenure_core::Swap;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

const TASKS: u64 = 12;
const ROUNDS: u64 = 4;

pub(super) async fn check(bench: Bench) -> Verdict {
    let store = bench.connect();
    let shared = bench.seat("shared");
    let first = candidate("first");
    bench.write(&store, &shared, None, &bench.held(&first, 1)).await?;
    let tasks = (0..TASKS).map(|number| {
        let (bench, store, shared, first) = (bench.clone(), store.clone(), shared.clone(), first.clone());
        tokio::spawn(async move {
            let own = bench.seat(&format!("own-{number}"));
            let me = candidate(&format!("task-{number}"));
            let mut version = None;
            for round in 1..=ROUNDS {
                version = Some(bench.write(&store, &own, version.as_ref(), &bench.held(&me, round)).await?.version);
                let seen = bench.read(&store, &own).await?;
                ensure!(
                    seen.record.is_held_by(me.incarnation) && seen.record.token.get() == round,
                    "a read of the seat {:?} returned {seen:?}",
                    own.as_str()
                );
                // Increments the token of the shared seat.
                loop {
                    let seen = bench.read(&store, &shared).await?;
                    let next = bench.held(&first, seen.record.token.get() + 1);
                    if store.swap(&shared, Some(&seen.version), &next).await? != Swap::Lost {
                        break;
                    }
                }
            }
            Ok(())
        })
    });
    for task in bench.within("all tasks end", join_all(tasks)).await? {
        task.map_err(|panic| Failure::new(format!("a task panicked: {panic}")))??;
    }
    let counted = bench.read(&store, &shared).await?.record.token.get() - 1;
    ensure!(counted == TASKS * ROUNDS, "{} swaps succeeded, but the seat counts only {counted}", TASKS * ROUNDS);
    Ok(())
}
