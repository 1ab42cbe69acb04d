//! Two processes stand for one seat over a server with sessions, and the leader stops:
//!
//! ```sh
//! cargo run -p tenure-kit --example session_store
//! ```

mod server;
mod store;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Elections, Event};

use crate::server::Server;
use crate::store::SessionStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start();
    let stand = |name: &'static str| {
        let elections = Elections::new(SessionStore::new(Arc::downgrade(&server)));
        let print = move |event: Event| println!("{name}: {:?}", event.kind);
        let election = elections.election("demo").lease(Duration::from_secs(3)).on_event(print).start();
        election.map(|election| (elections, election))
    };
    let (first, leads) = stand("first")?;
    let _term = leads.elected().await?;
    let (second, follows) = stand("second")?;
    first.shutdown(Duration::from_secs(3)).await?;
    let _term = follows.elected().await?;
    second.shutdown(Duration::from_secs(3)).await?;
    Ok(())
}
