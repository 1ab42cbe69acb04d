//! A background service that a host starts and stops: its worker runs while this instance leads.
//!
//! Replaces a hosted service around `RunTaskWhenElectedLeaderAsync`, or one that stops its election on shutdown.

use std::time::Duration;

use tenure::{Builder, Election, Elections, Error, MemoryStore, Term};
use tokio::time::sleep;

/// Starts the candidate. The worker runs in every term, on a separate thread.
pub fn start(candidate: Builder, worker: impl AsyncFnMut(Term) + Send + 'static) -> Result<Election, Error> {
    candidate.on_started_leading(worker).start()
}

/// Stops the candidate: the worker wraps up, and then the seat is released. Waits for both.
pub async fn stop(service: &Election) -> Result<(), Error> {
    service.shutdown(Duration::from_secs(10)).await?;
    Ok(())
}

async fn worker(term: Term) {
    while !term.is_ending() {
        println!("{} is working", term.candidate().id);
        sleep(Duration::from_millis(100)).await;
    }
    println!("{} has wrapped up", term.candidate().id);
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (here, elsewhere) = (Elections::new(store.clone()), Elections::new(store));
    let service = start(here.election("worker").candidate("here"), worker)?;
    service.elected().await?;
    start(elsewhere.election("worker").candidate("elsewhere"), worker)?;

    sleep(Duration::from_millis(400)).await;
    stop(&service).await?;

    // A real program waits for SIGTERM here.
    tokio::select! {
        signalled = elsewhere.run_until_signal() => signalled,
        () = sleep(Duration::from_millis(400)) => elsewhere.shutdown(Duration::from_secs(10)).await,
    }
}
