//! Several elections in one process, by name: each has a separate leader.
//!
//! Replaces `ILeaderElectionFactory.CreateElection(name)` and keyed registrations.

use std::time::Duration;

use tenure::{Elections, Error, MemoryStore, Term};

/// The jobs of this program, each with a separate election.
pub const JOBS: [&str; 3] = ["outbox", "projections", "cleanup"];

/// Stands for every job. All elections share one connection to the store.
pub fn start(instance: &Elections, id: &str, job: impl AsyncFnMut(Term) + Clone + Send + 'static) -> Result<(), Error> {
    for name in JOBS {
        instance.election(name).candidate(id).on_started_leading(job.clone()).start()?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (one, other) = (Elections::new(store.clone()), Elections::new(store));

    let job = async |term: Term| {
        println!("{} runs {}", term.candidate().id, term.election());
        term.ending().await;
    };
    start(&one, "one", job)?;
    for election in one.running() {
        election.elected().await?;
    }
    start(&other, "other", job)?;

    // One job moves to the other instance, and the other jobs stay.
    if let (Some(here), Some(there)) = (one.find("cleanup"), other.find("cleanup")) {
        here.step_down();
        there.elected().await?;
    }
    println!("{}; {}", one.health(), other.health());

    one.shutdown(Duration::from_secs(10)).await?;
    other.shutdown(Duration::from_secs(10)).await
}
