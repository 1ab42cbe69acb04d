//! An outbox: one instance publishes the messages in order, and the next one goes on where it stopped.
//!
//! Replaces an outbox publisher or projection that checks `IsLeader` before each item.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Election, Elections, Ended, Error, MemoryStore, Term, Token};
use tokio::time::sleep;

/// A table of messages, as a database would have it.
#[derive(Default)]
pub struct Outbox {
    /// Messages to publish, the oldest first.
    pub pending: Mutex<VecDeque<u32>>,
    /// Messages that were published, with the token of the leader that did it.
    pub published: Mutex<Vec<(u32, Token)>>,
}

impl Outbox {
    fn next(&self) -> Option<u32> {
        self.pending.lock().unwrap().front().copied()
    }

    /// Marks a message as published. The table rejects a token that is lower than one that it has seen: another leader
    /// has replaced that leader, which has not noticed yet.
    pub fn mark_published(&self, message: u32, token: Token) -> Result<(), String> {
        let mut published = self.published.lock().unwrap();
        if published.last().is_some_and(|(_, last)| token < *last) {
            return Err(format!("token {token} is outdated"));
        }
        self.pending.lock().unwrap().retain(|pending| *pending != message);
        published.push((message, token));
        Ok(())
    }
}

/// Publishes on one instance while it leads. After an error the work runs again after a pause.
pub async fn publisher(election: Election, outbox: Arc<Outbox>, publish: impl AsyncFn(&Term, u32) + Clone) -> Ended {
    election
        .run_once_per_term(async |term| {
            while !term.is_ending() {
                match outbox.next() {
                    Some(message) => {
                        publish(&term, message).await;
                        outbox.mark_published(message, term.token())?;
                    }
                    None => sleep(Duration::from_millis(10)).await,
                }
            }
            Ok::<_, String>(())
        })
        .await
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (one, other) = (Elections::new(store.clone()), Elections::new(store));
    let outbox = Arc::new(Outbox { pending: Mutex::new((1..=8).collect()), ..Outbox::default() });

    let publish = async |term: &Term, message: u32| {
        println!("{} publishes message {message}", term.candidate().id);
        sleep(Duration::from_millis(50)).await;
    };
    let one = one.election("outbox").candidate("one").start()?;
    let other = other.election("outbox").candidate("other").start()?;
    let stops = async {
        sleep(Duration::from_millis(200)).await;
        one.step_down();
        sleep(Duration::from_millis(500)).await;
        one.stop();
        other.stop();
    };
    tokio::join!(
        publisher(one.clone(), outbox.clone(), publish),
        publisher(other.clone(), outbox.clone(), publish),
        stops
    );
    println!("published: {:?}", outbox.published.lock().unwrap());
    Ok(())
}
