//! Who stands, over restarts of candidates and of servers.

mod support;

use std::time::Duration;

use tenure_core::{Attended, Board, Incarnation, Note, NoteKind, SeatName};
use tenure_redis::RedisStore;
use tenure_testkit::servers::{Redis, RedisCluster, Reply};

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_board_does_not_grow_with_every_restart() {
    let redis = Redis::start();
    let lives = store(&redis.url());
    let one = announce(&lives, LONG).await;
    for _ in 0..40 {
        // Each was killed right after it had announced itself.
        announce(&store(&redis.url()), Duration::from_millis(1)).await;
    }
    let Reply::Number(kept) = redis.ask(&["HLEN", "tenure:{jobs}:announcements"]) else { panic!("no board") };
    assert!(kept <= 16, "{kept} announcements of 41 are kept, and one is alive");
    let listed = support::within("only who lives is listed", async {
        loop {
            let listed = Board::list(&lives, &seat(), NoteKind::Announcement).await.unwrap();
            if listed.len() <= 1 {
                return listed;
            }
        }
    })
    .await;
    assert_eq!(listed[0].key, one.to_string());
    assert_eq!(redis.ask(&["HLEN", "tenure:{jobs}:announcements"]), Reply::Number(1), "the others are swept away");
}

#[tokio::test]
async fn presence_is_asked_for_once_for_the_boards_of_many_seats() {
    let redis = Redis::start();
    let store = store(&redis.url());
    let process = Incarnation::from_bits(rand::random());
    Board::attend(&store, process, LONG).await.unwrap();
    let seats: Vec<_> = (0..100).map(|n| SeatName::new(format!("seat-{n}")).unwrap()).collect();
    for seat in &seats {
        Board::put(&store, seat, &note(process)).await.unwrap();
    }
    for seat in &seats {
        assert_eq!(Board::list(&store, seat, NoteKind::Announcement).await.unwrap().len(), 1);
    }
    let asked = redis.calls("pttl");
    assert!(asked < 50, "asked {asked} times for one process");
}

#[tokio::test]
async fn a_server_that_has_lost_its_boards_has_them_put_again() {
    let mut redis = Redis::start();
    let store = store(&redis.url());
    let process = announce(&store, LONG).await;
    assert_eq!(Board::attend(&store, process, LONG).await.unwrap(), Attended::Still);
    redis.kill();
    redis.restart();
    // The call that finds the old connection gone may fail.
    let _ = Board::list(&store, &seat(), NoteKind::Announcement).await;
    assert_eq!(Board::attend(&store, process, LONG).await.unwrap(), Attended::Anew);
    assert_eq!(Board::attend(&store, process, LONG).await.unwrap(), Attended::Still);
}

#[tokio::test]
async fn a_node_that_has_lost_a_board_has_it_put_again_though_another_has_the_presence() {
    let mut cluster = RedisCluster::start();
    let store = store(&cluster.url());
    let process = announce(&store, LONG).await;
    for n in 0..30 {
        Board::put(&store, &SeatName::new(format!("seat-{n}")).unwrap(), &note(process)).await.unwrap();
    }
    Board::attend(&store, process, LONG).await.unwrap();
    assert_eq!(Board::attend(&store, process, LONG).await.unwrap(), Attended::Still);
    let presence = format!("tenure:{{{process}}}:present");
    let has = |node: &Redis| node.ask(&["EXISTS", &presence]) == Reply::Number(1);
    let other = cluster.nodes.iter().position(|node| !has(node)).unwrap();
    cluster.nodes[other].kill();
    cluster.nodes[other].restart();
    support::within("it is noticed", async {
        loop {
            for n in 0..30 {
                let seat = SeatName::new(format!("seat-{n}")).unwrap();
                let _ = Board::list(&store, &seat, NoteKind::Announcement).await;
            }
            if matches!(Board::attend(&store, process, LONG).await, Ok(Attended::Anew)) {
                return;
            }
        }
    })
    .await;
}

/// A new process that is there for so long, and stands.
async fn announce(store: &RedisStore, lifetime: Duration) -> Incarnation {
    let process = Incarnation::from_bits(rand::random());
    Board::attend(store, process, lifetime).await.unwrap();
    Board::put(store, &seat(), &note(process)).await.unwrap();
    process
}

fn note(process: Incarnation) -> Note {
    Note { kind: NoteKind::Announcement, key: process.to_string(), value: "{}".into(), lifetime: LONG }
}

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

fn store(url: &str) -> RedisStore {
    RedisStore::from_url(url).unwrap()
}
