//! Handlers: work that starts and stops with leadership, and notifications of new leaders.
//!
//! Replaces `OnStartedLeading`, `OnStoppedLeading`, `OnNewLeader` and `ReleaseOnCancel`.

use std::time::Duration;

use tenure::{Builder, CancellationToken, Election, Elections, Error, MemoryStore, Term};
use tokio::time::sleep;

/// Stands until the token is cancelled. The seat is released then, after the work has returned.
pub fn stand(
    candidate: Builder,
    stopping: &CancellationToken,
    work: impl AsyncFnMut(Term) + Send + 'static,
) -> Result<Election, Error> {
    candidate
        .stop_on(stopping.clone())
        // Work, not a notification: it can last as long as the term, and is dropped when the seat is lost.
        .on_started_leading(work)
        .on_stopped_leading(|token, why| println!("term {token} ends: {}", why.as_str()))
        .on_new_leader(|leader| match leader {
            Some(leader) => println!("new leader: {}", leader.candidate.id),
            None => println!("no leader"),
        })
        .start()
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = MemoryStore::new();
    let (one, other) = (Elections::new(store.clone()), Elections::new(store));
    let (stop_one, stop_other) = (CancellationToken::new(), CancellationToken::new());

    let work = async |term: Term| {
        println!("{} started leading", term.candidate().id);
        term.ending().await;
        println!("{} stopped leading", term.candidate().id);
    };
    let one = stand(one.election("controller").candidate("one"), &stop_one, work)?;
    one.elected().await?;
    let other = stand(other.election("controller").candidate("other"), &stop_other, work)?;

    sleep(Duration::from_millis(300)).await;
    stop_one.cancel();
    other.elected().await?;
    one.stopped().await;
    stop_other.cancel();
    other.stopped().await;
    Ok(())
}
