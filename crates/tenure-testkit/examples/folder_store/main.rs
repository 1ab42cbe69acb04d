//! Stands in an election over a folder, and prints its events. Start it twice, and stop the leader:
//!
//! ```sh
//! cargo run -p tenure-testkit --example folder_store -- some-folder
//! ```

mod store;

use std::time::Duration;

use tenure_core::{Elections, Event};

use crate::store::FolderStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder?")?;
    let elections = Elections::new(FolderStore::new(folder));
    let print = |event: Event| println!("{event:?}");
    let _election = elections.election("demo").lease(Duration::from_secs(5)).on_event(print).start()?;
    elections.run_until_signal().await?;
    Ok(())
}
