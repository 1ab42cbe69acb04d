//! The heartbeat of other elections in its process does not keep the seat of an election that has stopped.

use std::time::Duration;

use tenure_core::{ElectionOptions, Elections};
use tenure_sqlite::SqliteStore;

#[test]
fn a_seat_that_was_left_to_lapse_becomes_free_while_its_process_leads_another_election() {
    let folder = std::env::temp_dir().join(format!("tenure-stopped-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.db");
    let lease = Duration::from_secs(1);
    let process = Elections::new(SqliteStore::at(&path));
    let options = ElectionOptions { release_on_stop: Some(false), ..ElectionOptions::default() };
    let left = process.election("left").options(options).lease(lease).start().unwrap();
    let led = process.election("led").lease(lease).start().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        left.elected().await.unwrap();
        led.elected().await.unwrap();
        left.stop();
        left.stopped().await;
        let other = Elections::new(SqliteStore::at(&path));
        let next = other.election("left").lease(lease).start().unwrap();
        let elected = tokio::time::timeout(Duration::from_secs(60), next.elected()).await;
        assert!(elected.is_ok_and(|term| term.is_ok()), "the seat of a stopped election never becomes free");
        assert!(led.is_leader());
    });
    let _ = std::fs::remove_dir_all(folder);
}
