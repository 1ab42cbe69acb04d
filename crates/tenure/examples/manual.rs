//! Manual bids: this instance bids only when it is asked to, and releases the seat when the term is dropped.
//!
//! Replaces `TryAcquireLeadershipAsync` without a loop around it, in a job that a timer starts on every instance.

use std::time::Duration;

use tenure::{Election, Elections, Error, MemoryStore, Term};
use tokio::time::sleep;

/// Runs the job if no other instance is running it. Returns whether it ran to its end.
pub async fn run_unless_running(election: &Election, job: impl AsyncFnOnce(Term)) -> Result<bool, Error> {
    let Some(term) = election.try_acquire().await? else { return Ok(false) };
    Ok(term.run(job).await.is_ok())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (one, other) = (Elections::new(store.clone()), Elections::new(store));
    let one = one.election("report").candidate("one").manual().start()?;
    let other = other.election("report").candidate("other").manual().start()?;

    let job = async |term: Term| {
        println!("{} writes the report", term.candidate().id);
        sleep(Duration::from_millis(200)).await;
    };
    // A timer fires on both instances.
    let (ran, too) = tokio::join!(run_unless_running(&one, job), run_unless_running(&other, job));
    println!("one: {}, other: {}", ran?, too?);

    one.stop();
    other.stop();
    Ok(())
}
