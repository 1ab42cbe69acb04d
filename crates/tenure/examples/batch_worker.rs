//! Batches that end: after each batch the instance releases the seat, and lets the others go first.
//!
//! Replaces a task that returns to `RunTaskWhenElectedLeaderAsync`, which releases its lock and competes again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{Builder, CancellationToken, Elections, Ended, Error, MemoryStore, Term};
use tokio::time::sleep;

/// Runs batches on one instance, in turns with the others, until the token is cancelled.
pub async fn worker(
    candidate: Builder,
    stopping: CancellationToken,
    batch: impl AsyncFnOnce(Term) + Clone,
) -> Result<Ended, Error> {
    let election = candidate.stop_on(stopping).start()?;
    Ok(election.run_then_release(batch).await)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (one, other) = (Elections::new(store.clone()), Elections::new(store));
    let (stopping, batches) = (CancellationToken::new(), AtomicU32::new(0));

    let batch = async |term: Term| {
        let number = batches.fetch_add(1, Ordering::Relaxed) + 1;
        println!("{} runs batch {number}", term.candidate().id);
        sleep(Duration::from_millis(50)).await;
        if number == 6 {
            stopping.cancel();
        }
    };
    let (one, other) = tokio::join!(
        worker(one.election("batches").candidate("one"), stopping.clone(), batch),
        worker(other.election("batches").candidate("other"), stopping.clone(), batch),
    );
    println!("{}", one.and(other)?);
    Ok(())
}
