//! Two candidates for one seat: the first leads, hands over, and the second takes over at once.

use std::time::{Duration, Instant};

use tenure::memory::Memory;
use tenure::{Election, Elections};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One memory, two connections: as two processes would have them to a server.
    let memory = Memory::new();
    let (one, other) = (Elections::new(memory.store()), Elections::new(memory.store()));
    let lease = Duration::from_secs(3);
    let a = one.election("nightly-jobs").candidate("a").lease(lease).start()?;
    a.elected().await?;
    let b = other.election("nightly-jobs").candidate("b").lease(lease).start()?;
    println!("a leads with token {}; b waits", a.term().ok_or("a has just been elected")?.token());

    let work = tokio::spawn(work(a.clone()));
    let second = tokio::spawn(work_once(b.clone()));

    let asked = Instant::now();
    a.step_down();
    let token = second.await??;
    println!("b leads with token {token}, {:?} after a was asked to step down", asked.elapsed());
    println!("a's work {}", if work.await?.is_err() { "was cut short" } else { "has wrapped up" });

    one.stop();
    other.stop();
    one.stopped().await;
    other.stopped().await;
    Ok(())
}

/// Works until it is told to wrap up, and takes a moment for that.
async fn work(election: Election) -> Result<(), tenure::Ended> {
    election
        .run_while_leader(async |term| {
            term.ending().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            println!("a has wrapped up");
        })
        .await
}

async fn work_once(election: Election) -> Result<tenure::Token, tenure::Ended> {
    election.run_while_leader(async |term| term.token()).await
}
