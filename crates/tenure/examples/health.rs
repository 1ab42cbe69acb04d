//! Candidates with health and metadata: an unhealthy leader hands over, and stands again once it is healthy.
//!
//! Replaces `UpdateHealthAsync`, `GetCandidateHealthAsync`, `MinimumHealthScore` and `CandidateMetadata`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{Builder, Election, Elections, Error, MemoryStore};
use tokio::time::sleep;

/// Stands with a health check: the longer the queue, the lower the score.
pub fn stand(candidate: Builder, region: &str, queue: Arc<AtomicU32>) -> Result<Election, Error> {
    candidate
        .metadata("region", region)
        .min_health(0.8)
        .health(async move || {
            let length = queue.load(Ordering::Relaxed);
            (1.0 - f64::from(length.min(100)) / 100.0, [("queue", length.to_string())])
        })
        .start()
}

/// Prints the candidates, the leader first.
pub async fn print_candidates(election: &Election) -> Result<(), Error> {
    for candidate in election.candidates().await? {
        let (id, score) = (&candidate.candidate.id, candidate.score);
        println!("{id}: score {score}, leads: {}, {:?}", candidate.is_leader, candidate.metadata);
    }
    println!("this instance is {}", election.health());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (one, other) = (Elections::new(store.clone()), Elections::new(store));
    let lease = Duration::from_millis(500);
    let (queue, idle) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));

    let one = stand(one.election("critical").candidate("one").lease(lease), "east", queue.clone())?;
    one.elected().await?;
    let other = stand(other.election("critical").candidate("other").lease(lease), "west", idle)?;

    queue.store(70, Ordering::Relaxed);
    other.elected().await?;
    sleep(lease).await; // the list of candidates is updated within a lease
    print_candidates(&other).await?;

    // It has been healthy for a lease, so it can lead again.
    queue.store(0, Ordering::Relaxed);
    other.stop();
    one.elected().await?;
    print_candidates(&one).await
}
