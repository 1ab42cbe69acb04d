//! The roster after restarts of candidates and of servers.

mod support;

use std::time::Duration;

use tenure_core::{Board, DynNotes, NoteState, SeatName};
use tenure_redis::RedisStore;
use tenure_testkit::servers::{Redis, RedisCluster, Reply};

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_board_does_not_grow_with_each_restart_of_a_candidate() {
    let redis = Redis::start();
    let store = store(&redis.url());
    let (notes, board): (&dyn DynNotes, _) = (&store, Board::Candidates(seat("jobs")));
    notes.put_one(&board, "alive", "{}", LONG).await.unwrap();
    for number in 0..40 {
        // As if each candidate was killed right after it announced itself.
        notes.put_one(&board, &format!("dead {number}"), "{}", Duration::from_millis(1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let Reply::Number(kept) = redis.ask(&["HLEN", "tenure:{jobs}:candidates"]) else { panic!("no board") };
    assert!(kept <= 4, "the board keeps {kept} of 41 candidates, but only one is alive");
    let listed = notes.list_one(&board).await.unwrap();
    assert_eq!(listed.iter().map(|note| note.key.as_str()).collect::<Vec<_>>(), ["alive"]);
}

#[tokio::test]
async fn an_unused_board_expires() {
    let redis = Redis::start();
    let store = store(&redis.url());
    let (notes, board): (&dyn DynNotes, _) = (&store, Board::Candidates(seat("jobs")));
    notes.put_one(&board, "long", "{}", Duration::from_millis(300)).await.unwrap();
    notes.put_one(&board, "short", "{}", Duration::from_millis(1)).await.unwrap();
    support::within("the board is removed", async {
        while redis.ask(&["EXISTS", "tenure:{jobs}:candidates"]) != Reply::Number(0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_restart_of_the_server_is_reported_as_lost_notes() {
    let mut redis = Redis::start();
    let store = store(&redis.url());
    assert_eq!(announce(&store).await, Ok(NoteState::Absent));
    assert_eq!(announce(&store).await, Ok(NoteState::Present));
    redis.kill();
    redis.restart();
    // The first call on the lost connection may fail.
    let _ = (&store as &dyn DynNotes).list_one(&Board::Processes).await;
    assert_eq!(announce(&store).await, Ok(NoteState::Absent));
    assert_eq!(announce(&store).await, Ok(NoteState::Present));
}

#[tokio::test]
async fn a_restart_of_any_node_is_reported_as_lost_notes() {
    let mut cluster = RedisCluster::start();
    let store = store(&cluster.url());
    let notes: &dyn DynNotes = &store;
    let boards: Vec<_> = (0..30).map(|number| Board::Candidates(seat(&format!("seat-{number}")))).collect();
    for board in &boards {
        notes.put_one(board, "one", "{}", LONG).await.unwrap();
    }
    announce(&store).await.unwrap();
    assert_eq!(announce(&store).await, Ok(NoteState::Present));
    let has = |node: &Redis| node.ask(&["EXISTS", "tenure:{processes}:processes"]) == Reply::Number(1);
    let other = cluster.nodes.iter().position(|node| !has(node)).unwrap();
    cluster.nodes[other].kill();
    cluster.nodes[other].restart();
    support::within("the loss is reported", async {
        loop {
            for board in &boards {
                let _ = notes.list_one(board).await;
            }
            if announce(&store).await == Ok(NoteState::Absent) {
                return;
            }
        }
    })
    .await;
}

/// Announces a process, and returns whether the server still had its note.
async fn announce(store: &RedisStore) -> Result<NoteState, String> {
    let notes: &dyn DynNotes = store;
    notes.put_one(&Board::Processes, "one", "{}", LONG).await.map_err(|error| error.to_string())
}

fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap()
}

fn store(url: &str) -> RedisStore {
    RedisStore::from_url(url).unwrap()
}
