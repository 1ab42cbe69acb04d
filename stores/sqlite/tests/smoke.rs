//! Two candidates over one file.

use std::time::{Duration, Instant};

use tenure_core::Elections;
use tenure_sqlite::SqliteStore;

#[tokio::test(flavor = "multi_thread")]
async fn hand_over_and_crash() {
    let folder = std::env::temp_dir().join(format!("tenure-smoke-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("t.db");
    let one = Elections::new(SqliteStore::at(&path));
    let other = Elections::new(SqliteStore::at(&path));
    let a = one.election("jobs").candidate("a").start().unwrap();
    a.elected().await.unwrap();
    let b = other.election("jobs").candidate("b").start().unwrap();
    let mut events = b.events();
    println!("{:?}", events.next().await);
    let t = Instant::now();
    a.step_down();
    let term = b.elected().await.unwrap();
    println!("step-down took {:?}, token {}", t.elapsed(), term.token());
    let c = Elections::new(SqliteStore::at(&path));
    let c1 = c.election("jobs").candidate("c").release_on_stop(false).start().unwrap();
    let mut ev = c1.events();
    println!("{:?}", ev.next().await);
    one.stop();
    one.stopped().await;
    let t = Instant::now();
    // Not released: the lock is freed with the store.
    b.stop();
    c1.elected().await.unwrap();
    println!("stop took {:?}", t.elapsed());
    let d = Elections::new(SqliteStore::at(&path));
    let d1 = d.election("jobs").candidate("d").start().unwrap();
    let mut ev = d1.events();
    println!("{:?}", ev.next().await);
    let t = Instant::now();
    c1.stop();
    c1.stopped().await;
    drop((c1, c));
    let term = d1.elected().await.unwrap();
    println!("lock freed took {:?} token {}", t.elapsed(), term.token());
    assert!(t.elapsed() < Duration::from_secs(5));
    std::fs::remove_dir_all(&folder).unwrap();
}
