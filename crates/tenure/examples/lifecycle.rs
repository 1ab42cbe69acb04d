//! The life of one candidate: events, status, work in batches, and a clean stop.
//!
//! Replaces `BecameLeader`, `LostLeadership`, `LeaderChanged`, `IsLeader`, `CurrentLeaderId` and `StopAsync`.

use std::time::Duration;

use tenure::{Election, Elections, EventKind, Events, MemoryStore, Term};
use tokio::time::sleep;

/// Prints all events until the election has ended in this process.
pub async fn watch(mut events: Events) {
    while let Some(event) = events.next().await {
        let (election, me) = (event.election, event.candidate.id);
        match event.kind {
            EventKind::BecameLeader { term } => println!("{election}: {me} became leader, token {}", term.token()),
            EventKind::LostLeadership { why, .. } => println!("{election}: {me} lost leadership: {}", why.as_str()),
            EventKind::LeaderChanged { leader, previous } => {
                let id = |leader: Option<tenure::Leader>| leader.map(|leader| leader.candidate.id);
                println!("{election}: leader changed from {:?} to {:?}", id(previous), id(leader));
            }
            _ => {}
        }
    }
}

/// Prints the current state of the candidate.
pub fn print_status(election: &Election) {
    println!("leads: {}, renewed: {:?}, {}", election.is_leader(), election.last_renewal(), election.health());
}

/// Works in batches, and stops between two batches when the term begins to end.
pub async fn work(term: Term) -> u32 {
    let mut done = 0;
    while done < 3 && !term.is_ending() {
        sleep(Duration::from_millis(100)).await;
        done += 1;
    }
    done
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let elections = Elections::new(MemoryStore::new());
    let election = elections.election("reports").candidate("me").start()?;
    let watching = tokio::spawn(watch(election.events()));

    let done = election.run_while_leader(work).await?;
    println!("{done} batches done");
    print_status(&election);

    election.shutdown(Duration::from_secs(10)).await?;
    print_status(&election);
    Ok(watching.await?)
}
