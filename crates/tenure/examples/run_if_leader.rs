//! A service that runs on every instance: only the leader runs the task, every instance does the rest.
//!
//! Replaces a loop around `RunTaskIfLeaderAsync`, or around `if (election.IsLeader)`.

use std::time::Duration;

use tenure::{Builder, CancellationToken, Elections, Ended, Error, MemoryStore, Term};
use tokio::time::sleep;

/// Runs one instance until the token is cancelled.
pub async fn service(
    candidate: Builder,
    stopping: CancellationToken,
    mut task: impl AsyncFnMut(Term),
) -> Result<(), Error> {
    let election = candidate
        .stop_on(stopping.clone())
        .on_leadership_changed(|leads| println!("leadership changed: {leads}"))
        .on_error(|error| eprintln!("election error: {error}"))
        .start()?;

    while !stopping.is_cancelled() {
        // The seat is not released while the task runs. If the seat is lost, the task is dropped.
        match election.run_if_leader(&mut task).await {
            Ok(()) | Err(Ended::NotLeading) => {}
            Err(ended) => println!("the task was cut short: {ended}"),
        }
        // The same for a task without `await`.
        let _ = election.run_if_leader_blocking(|term| println!("token {} is mine", term.token()));

        sleep(Duration::from_millis(50)).await; // doing something else
    }
    election.stopped().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (one, other) = (Elections::new(store.clone()), Elections::new(store));
    let (stop_one, stop_other) = (CancellationToken::new(), CancellationToken::new());

    let task = async |term: Term| {
        println!("{} runs the leader's task", term.candidate().id);
        sleep(Duration::from_millis(50)).await;
    };
    let stops = async {
        sleep(Duration::from_millis(400)).await;
        stop_one.cancel(); // the other instance takes over
        sleep(Duration::from_millis(400)).await;
        stop_other.cancel();
    };
    let (one, other, ()) = tokio::join!(
        service(one.election("reports").candidate("one"), stop_one.clone(), task),
        service(other.election("reports").candidate("other"), stop_other.clone(), task),
        stops,
    );
    one.and(other)
}
