//! What wakes candidates, and what does not.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tenure_core::{Candidate, Election, Elections, Incarnation, Record, SeatName, SeatStore, SingleSeat, Swap, Token};
use tenure_sqlite::SqliteStore;
use tenure_testkit::servers::Folder;
use tenure_testkit::wrap::Counting;

/// So long that no candidate makes a regular look during a test.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_bid_wakes_an_observer_in_its_process_but_not_the_leader_that_made_it() {
    let folder = Folder::new("own");
    let (store, counter) = Counting::new(SqliteStore::at(database(&folder)));
    let elections = Elections::new(store);
    runtime().block_on(async {
        // From here on, the store listens.
        let first = elections.election("first").lease(LONG).start().unwrap();
        first.elected().await.unwrap();
        let observer = elections.observe("second").unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let before = counter.counts().reads;
        let second = elections.election("second").lease(LONG).start().unwrap();
        second.elected().await.unwrap();
        let mut events = observer.events();
        in_time(async {
            while observer.leader().is_none() {
                events.next().await;
            }
        })
        .await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(counter.counts().reads - before, 2, "one look before the bid, and one by the observer");
    });
}

#[test]
fn a_release_and_a_request_reach_another_process() {
    let folder = Folder::new("others");
    let [one, other] = [(); 2].map(|()| Elections::new(SqliteStore::at(database(&folder))));
    runtime().block_on(async {
        let leads = one.election("jobs").lease(LONG).start().unwrap();
        leads.elected().await.unwrap();
        let follows = other.election("jobs").lease(LONG).start().unwrap();
        follows_a_leader(&follows).await;
        // The leader receives the request, and the follower the release.
        in_time(async { follows.request_step_down().await.unwrap() }).await;
        in_time(async { follows.elected().await.unwrap() }).await;
    });
}

/// The heartbeats of the leader since the follower's last read do not matter: its process is gone.
#[test]
fn a_follower_bids_for_the_seat_of_a_dead_leader_without_reading_it_again() {
    let folder = Folder::new("dead");
    let seat = SeatName::new("jobs").unwrap();
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) };
    let record = Record::new(Some(holder), Token::new(1), LONG);
    runtime().block_on(async {
        let leader = SingleSeat::new(SqliteStore::at(database(&folder)));
        let Swap::Done { version, .. } = leader.swap(&seat, None, &record).await.unwrap() else { panic!() };
        let (store, counter) = Counting::new(SqliteStore::at(database(&folder)));
        let elections = Elections::new(store);
        let follows = elections.election("jobs").lease(LONG).start().unwrap();
        follows_a_leader(&follows).await;
        // From here on, the store listens.
        tokio::time::sleep(Duration::from_millis(300)).await;
        // A renewal makes a new heartbeat only if the last one is getting old.
        let shorter = Record { lease: Duration::ZERO, ..record };
        assert!(matches!(leader.renew(&seat, &version, &shorter).await.unwrap(), Swap::Done { .. }));
        assert_ne!(leader.read(&seat).await.unwrap().seat.unwrap().version, version, "a heartbeat");
        let is_lock = |file: &std::fs::DirEntry| file.path().extension().is_some_and(|end| end == "lock");
        let locks = std::fs::read_dir(folder.path().join("tenure.db.d")).unwrap().flatten().filter(is_lock).count();
        assert_eq!(locks, 2, "the lock of a candidate is there before its first bid");
        let before = counter.counts();
        drop(leader);
        assert_eq!(in_time(follows.elected()).await.unwrap().token(), Token::new(2));
        let since = counter.counts();
        assert_eq!((since.reads, since.swaps), (before.reads, before.swaps + 1), "one bid and nothing else");
    });
}

#[test]
fn a_bid_on_an_earlier_heartbeat_is_lost_while_the_leader_lives() {
    let folder = Folder::new("living");
    let (seat, lease) = (SeatName::new("jobs").unwrap(), Duration::from_millis(20));
    let candidate = |id: &str, number| Candidate { id: id.into(), incarnation: Incarnation::from_bits(number) };
    runtime().block_on(async {
        let [leader, next] = [(); 2].map(|()| SingleSeat::new(SqliteStore::at(database(&folder))));
        let record = Record::new(Some(candidate("a", 1)), Token::new(1), lease);
        let Swap::Done { version, .. } = leader.swap(&seat, None, &record).await.unwrap() else { panic!() };
        let seen = next.read(&seat).await.unwrap().seat.unwrap().version;
        let renewed = Record { lease: Duration::ZERO, ..record.clone() };
        assert!(matches!(leader.renew(&seat, &version, &renewed).await.unwrap(), Swap::Done { .. }));
        let bid = Record::new(Some(candidate("b", 2)), Token::new(2), lease);
        assert_eq!(next.swap(&seat, Some(&seen), &bid).await.unwrap(), Swap::Lost);
    });
}

/// After a restart of the machine, the lock of the last leader is free, but it belonged to another kernel.
#[test]
fn a_holder_under_another_kernel_is_waited_out_and_not_looked_at_repeatedly() {
    let folder = Folder::new("kernel");
    let (seat, lease) = (SeatName::new("jobs").unwrap(), Duration::from_secs(2));
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) };
    let open = || SqliteStore::at(database(&folder));
    runtime().block_on(async {
        let gone = SingleSeat::new(open());
        let record = Record::new(Some(holder), Token::new(1), lease);
        let Swap::Done { version, .. } = gone.swap(&seat, None, &record).await.unwrap() else { panic!() };
        assert!(tenure_core::Store::session_of(&open(), &version).is_some());
        drop(gone);
        let file = Connection::open(database(&folder)).unwrap();
        file.busy_timeout(Duration::from_secs(10)).unwrap();
        file.execute("UPDATE sessions SET kernel = 'another', clock = 'another'", []).unwrap();
        let version = SingleSeat::new(open()).read(&seat).await.unwrap().seat.unwrap().version;
        assert_eq!(tenure_core::Store::session_of(&open(), &version), None, "its end cannot be noticed");
        let (store, counter) = Counting::new(open());
        let (elections, began) = (Elections::new(store), Instant::now());
        let election = elections.election("jobs").lease(lease).start().unwrap();
        in_time(async { election.elected().await.unwrap() }).await;
        assert!(began.elapsed() >= lease, "a lock of another kernel proves nothing");
        assert!(counter.counts().reads < 20, "{:?}", counter.counts());
    });
}

#[test]
fn without_inotify_candidates_look_for_changes_until_inotify_is_available() {
    let folder = Folder::new("no-inotify");
    let none = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", none, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env("TENURE_TEST_CHILD", database(&folder))
        .output()
        .expect("cannot run unshare; run: apt-get install util-linux");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
}

/// Two candidates without a watch, if this process was started for that; later with one.
#[test]
fn child() {
    let Some(path) = std::env::var_os("TENURE_TEST_CHILD") else { return };
    let both = [(); 2].map(|()| Elections::new(SqliteStore::at(&path)));
    runtime().block_on(async {
        hands_over(&both, "without-watch", Duration::from_secs(3)).await;
        std::fs::write("/proc/sys/user/max_inotify_instances", "100").unwrap();
        // Longer than the engine waits before it tries the watch again.
        tokio::time::sleep(Duration::from_secs(6)).await;
        hands_over(&both, "with-watch", LONG).await;
    });
}

async fn hands_over(both: &[Elections; 2], name: &str, lease: Duration) {
    let [leads, follows] = both.each_ref().map(|elections| elections.election(name).lease(lease));
    let leads = leads.start().unwrap();
    let first = leads.elected().await.unwrap();
    let follows = follows.start().unwrap();
    follows_a_leader(&follows).await;
    leads.stop();
    let second = in_time(async { follows.elected().await.unwrap() }).await;
    assert!(second.token() > first.token());
}

async fn follows_a_leader(follower: &Election) {
    let mut events = follower.events();
    in_time(async {
        while follower.leader().is_none() {
            events.next().await;
        }
    })
    .await;
}

fn database(folder: &Folder) -> PathBuf {
    folder.path().join("tenure.db")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Well before any regular look.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG / 6, future).await.expect("no notification arrived in time")
}
