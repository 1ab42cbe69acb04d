//! `mode=session`: the lock holds the seat, followers wait for its session without polling, and lifelines keep it
//! open.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{LEASE, MODES, PATIENCE, acted_above, held, runtime, seats_at, stand_for, within};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure_core::{Elections, EndReason, Lifeline, Record, SeatName, SeatStore, SingleSeat, Swap, Token};
use tenure_postgres::{PostgresStore, lock_id_of};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::until;
use tenure_testkit::servers::{Postgres, PostgresSetup, connections};

/// A trigger that releases the lock of each seat that is written, in the session of the writer.
const RELEASES_LOCKS: &str = "CREATE FUNCTION tenure.give_back() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN IF NEW.lock_id IS NOT NULL THEN PERFORM pg_advisory_unlock(NEW.lock_id); END IF; RETURN NEW; END $$;
    CREATE TRIGGER give_back AFTER INSERT OR UPDATE ON tenure.seats FOR EACH ROW EXECUTE FUNCTION tenure.give_back()";

#[test]
fn a_live_session_without_the_lock_does_not_keep_its_seat() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = seats_at(&session(&server));
        let seat = SeatName::new("jobs").unwrap();
        assert!(store.read(&seat).await.unwrap().seat.is_none());
        server.sql(RELEASES_LOCKS);
        let Swap::Done { version, .. } = store.swap(&seat, None, &held(1, 1)).await.unwrap() else { panic!("lost") };
        assert_eq!(holders(&server, "jobs"), "0", "the lock was not released");
        assert_eq!(store.renew(&seat, &version, &held(1, 1)).await.unwrap(), Swap::Lost);
        // The next bid takes the lock again, and does not only write the row.
        server.sql("DROP TRIGGER give_back ON tenure.seats");
        let Swap::Done { version, .. } = store.swap(&seat, Some(&version), &held(2, 1)).await.unwrap() else {
            panic!("lost")
        };
        assert_eq!(holders(&server, "jobs"), "1");
        assert!(matches!(store.renew(&seat, &version, &held(2, 1)).await.unwrap(), Swap::Done { .. }));
    });
}

/// PostgreSQL can store the JSON form of a NUL, but cannot take such JSON apart.
#[test]
fn a_candidate_can_have_any_text_in_its_metadata() {
    let server = Postgres::start();
    runtime().block_on(async {
        for (mode, seat) in MODES.into_iter().zip(["jobs", "mail"]) {
            let (store, seat) = (seats_at(&format!("{}{mode}", server.url())), SeatName::new(seat).unwrap());
            let metadata = std::sync::Arc::new([("zone".to_owned(), "a\0b".to_owned())].into());
            let record = Record { metadata, ..held(1, 1) };
            let Swap::Done { version, .. } = store.swap(&seat, None, &record).await.unwrap() else { panic!("lost") };
            assert!(matches!(store.renew(&seat, &version, &record).await.unwrap(), Swap::Done { .. }));
            let read = store.read(&seat).await.unwrap().seat.unwrap();
            assert_eq!(read.record, record);
            let vacant = Record { holder: None, nonce: 2, ..record };
            assert!(matches!(store.swap(&seat, Some(&read.version), &vacant).await.unwrap(), Swap::Done { .. }));
        }
    });
}

#[test]
fn a_leader_whose_lock_is_released_stops_though_its_session_lives() {
    let server = Postgres::start();
    runtime().block_on(async {
        seats_at(&session(&server)).read(&SeatName::new("jobs").unwrap()).await.unwrap();
        server.sql(RELEASES_LOCKS);
        let detector = OverlapDetector::new();
        let mut leader = stand_for(LEASE, &session(&server), "jobs", &detector);
        leader.elected().await;
        let (_, why) = leader.loses().await;
        assert!([EndReason::SeatLost, EndReason::NotRenewed].contains(&why), "{why:?}");
        detector.acts_do_not_overlap().unwrap();
    });
}

#[test]
fn a_follower_waits_on_one_connection_for_each_leading_process() {
    let server = Postgres::start();
    runtime().block_on(async {
        let lease = LEASE * 4;
        let processes = [(); 3].map(|()| Elections::new(PostgresStore::from_url(&session(&server)).unwrap()));
        let names = [0, 1].map(|process| [0, 1, 2, 3, 4].map(|number| format!("seat-{process}-{number}")));
        let start = |process: usize, name: &String| processes[process].election(name).lease(lease).start().unwrap();
        let mut leaders = Vec::new();
        for (process, names) in names.iter().enumerate() {
            for name in names {
                let leader = start(process, name);
                within("the candidate leads", leader.elected()).await.unwrap();
                leaders.push(leader);
            }
        }
        let followers: Vec<_> = names.as_flattened().iter().map(|name| start(2, name)).collect();
        until("the follower waits for both leaders", || waiting(&server) == "2").await;
        // A lease later, the same two connections still wait, except for short moments between two slices.
        let before = connections(server.port());
        tokio::time::sleep(lease).await;
        until("the follower still waits for both leaders", || waiting(&server) == "2").await;
        assert_eq!(connections(server.port()), before);
        assert!(leaders.iter().all(|leader| leader.is_leader()));
        // One of the two leading processes ends, with all of its seats.
        let [gone, _stays, _follows] = processes;
        leaders.drain(..names[0].len());
        drop(gone);
        for follower in &followers[..names[0].len()] {
            within("the follower takes over", follower.elected()).await.unwrap();
        }
        assert!(leaders.iter().all(|leader| leader.is_leader()));
    });
}

#[test]
fn a_waiting_follower_does_not_keep_vacuum_from_removing_dead_rows() {
    let server = Postgres::start();
    runtime().block_on(async {
        let lease = LEASE * 10;
        let processes = [(); 2].map(|()| Elections::new(PostgresStore::from_url(&session(&server)).unwrap()));
        let leader = processes[0].election("jobs").lease(lease).start().unwrap();
        within("the candidate leads", leader.elected()).await.unwrap();
        let _follower = processes[1].election("jobs").lease(lease).start().unwrap();
        until("the follower waits", || waiting(&server) == "1").await;
        server.sql("CREATE TABLE busy AS SELECT generate_series(1, 40000); DELETE FROM busy");
        let size = || {
            server.sql("VACUUM busy");
            server.sql("SELECT pg_relation_size('busy')")
        };
        until("dead rows are removed while the leader leads", || size() == "0").await;
        until("the follower still waits", || waiting(&server) == "1").await;
        assert!(leader.is_leader());
        let log = server.process.output();
        assert!(!log.contains("lock timeout"), "the server logs the end of a slice as an error: {log}");
    });
}

#[test]
fn a_follower_that_stops_watching_stops_waiting_on_the_server() {
    let server = Postgres::start();
    runtime().block_on(async {
        let lease = LEASE * 10;
        let processes = [(); 2].map(|()| Elections::new(PostgresStore::from_url(&session(&server)).unwrap()));
        let leader = processes[0].election("jobs").lease(lease).start().unwrap();
        within("the candidate leads", leader.elected()).await.unwrap();
        let follower = processes[1].election("jobs").lease(lease).start().unwrap();
        until("the follower waits", || waiting(&server) == "1").await;
        let before = connections(server.port());
        follower.stop();
        within("the follower stops", follower.stopped()).await;
        until("no session waits on the server", || waiting(&server) == "0").await;
        until("the waiting connection is closed", || connections(server.port()) < before).await;
        assert!(leader.is_leader());
    });
}

#[test]
fn a_candidate_waits_while_another_program_holds_its_lock() {
    let server = Postgres::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let url = format!("{}&lock_id=1337", session(&server));
        let (theirs, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        theirs.batch_execute("SELECT pg_advisory_lock(1337)").await.unwrap();
        let ours = stand_for(LEASE, &url, "jobs", &detector);
        within("three bids are lost", ours.counter.wait_for(|counts| counts.swaps >= 3)).await;
        assert_eq!(detector.work_spans(), 0, "the candidate leads although another program holds the lock");
        theirs.batch_execute("SELECT pg_advisory_unlock(1337)").await.unwrap();
        acted_above(&detector, Token::ZERO).await;
        assert_eq!(server.sql("SELECT pg_try_advisory_lock(1337)"), "f");
    });
}

#[test]
fn a_lifeline_keeps_the_seat_held_after_its_holder_dies() {
    for (server, url) in servers() {
        let mut holder = Command::new(std::env::current_exe().unwrap());
        let holder = holder.args(["--exact", "a_holder_that_dies"]).env(DIES, &url).stdout(Stdio::null());
        let mut holder = holder.stdin(Stdio::piped()).spawn().unwrap();
        let keeps_lifeline_open = holder.stdin.take();
        assert!(holder.wait().unwrap().success());
        // Much longer than the server takes to notice a closed connection.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(holders(&server, "jobs"), "1", "{url}");
        drop(keeps_lifeline_open);
        assert_released(&server, &url);
    }
}

/// The process that the test above starts: takes a seat, passes its lifeline to a child that lives until its standard
/// input is closed, and exits without releasing the seat.
#[test]
fn a_holder_that_dies() {
    let Ok(url) = std::env::var(DIES) else { return };
    runtime().block_on(async {
        let store = seats_at(&url);
        let lifeline = take_seat(&store).await;
        Command::new("cat").stdin(Stdio::inherit()).stdout(lifeline).spawn().unwrap();
        std::process::exit(0);
    });
}

#[test]
fn a_session_ends_when_its_process_closes_it_despite_a_lifeline_elsewhere() {
    for (server, url) in servers() {
        let runtime = runtime();
        let store = seats_at(&url);
        let lifeline = runtime.block_on(take_seat(&store));
        assert_eq!(holders(&server, "jobs"), "1", "{url}");
        // Drops the tasks that drive the connections.
        drop(runtime);
        assert_released(&server, &url);
        drop(lifeline);
    }
}

#[test]
fn only_a_held_seat_has_a_lifeline() {
    let server = Postgres::start();
    let url = session(&server);
    runtime().block_on(async {
        let store = seats_at(&url);
        let (seat, other) = (SeatName::new("jobs").unwrap(), SeatName::new("other").unwrap());
        assert!(store.lifeline(&seat).unwrap().is_none());
        let Swap::Done { version, .. } = store.swap(&seat, None, &held(1, 1)).await.unwrap() else { panic!("lost") };
        assert!(store.lifeline(&seat).unwrap().is_some() && store.lifeline(&other).unwrap().is_none());
        let vacant = Record { nonce: rand::random(), ..Record::new(None, Token::new(1), LEASE) };
        assert!(matches!(store.swap(&seat, Some(&version), &vacant).await.unwrap(), Swap::Done { .. }));
        assert!(store.lifeline(&seat).unwrap().is_none());
        let leases = seats_at(&format!("{}?schema=leases", server.url()));
        assert!(matches!(leases.swap(&seat, None, &held(1, 1)).await.unwrap(), Swap::Done { .. }));
        assert!(leases.lifeline(&seat).unwrap().is_none(), "a seat in mode=lease has no session");
    });
}

#[test]
fn a_lifeline_that_cannot_be_duplicated_is_an_error() {
    let server = Postgres::start();
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["--exact", "a_holder_that_can_open_no_more_files", "--nocapture"]).env(FULL, session(&server));
    let output = holder.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("open files"), "{printed}");
}

/// The process that the test above starts: takes a seat, and requests its lifeline while it cannot open any more
/// files.
#[test]
fn a_holder_that_can_open_no_more_files() {
    let Ok(url) = std::env::var(FULL) else { return };
    runtime().block_on(async {
        let store = seats_at(&url);
        let (seat, other) = (SeatName::new("jobs").unwrap(), SeatName::new("other").unwrap());
        drop(take_seat(&store).await);
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(4), ..before }).unwrap();
        let (others, ours) = (store.lifeline(&other), store.lifeline(&seat));
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(others.unwrap().is_none());
        println!("{}", ours.unwrap_err());
    });
}

// -------------------------------------------------------------------------------------------------

const FULL: &str = "TENURE_TEST_FULL";

const DIES: &str = "TENURE_TEST_DIES";

/// Starts three servers, with URLs that reach them without encryption, with TLS, and over a unix socket.
fn servers() -> [(Postgres, String); 3] {
    let [plain, encrypted, local] = [PostgresSetup::new(), PostgresSetup::new().encrypts(), PostgresSetup::new()];
    let [plain, encrypted, local] = [plain, encrypted, local].map(|setup| setup.start());
    let socket =
        format!("postgres://postgres@/postgres?host={}&port={}&mode=session", local.folder().display(), local.port());
    let urls = [session(&plain), format!("{}&sslmode=require", session(&encrypted)), socket];
    let [one, two, three] = urls;
    [(plain, one), (encrypted, two), (local, three)]
}

/// Takes the seat with a lease so long that no time-out of the server matters, and returns its lifeline.
async fn take_seat(store: &SingleSeat) -> Lifeline {
    let seat = SeatName::new("jobs").unwrap();
    let record = Record { lease: Duration::from_secs(3600), ..held(1, 1) };
    assert!(matches!(store.swap(&seat, None, &record).await.unwrap(), Swap::Done { .. }));
    store.lifeline(&seat).unwrap().unwrap()
}

/// Waits until no session holds the seat.
fn assert_released(server: &Postgres, url: &str) {
    let began = Instant::now();
    while holders(server, "jobs") != "0" {
        assert!(began.elapsed() < PATIENCE, "{url}: the session still exists");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn session(server: &Postgres) -> String {
    format!("{}?mode=session", server.url())
}

/// Returns how many sessions wait for another session to end.
fn waiting(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
}

/// Returns how many sessions hold the lock of a seat.
fn holders(server: &Postgres, seat: &str) -> String {
    server.sql(&format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
         AND classid::int8 << 32 | objid::int8 = {}",
        lock_id_of(seat)
    ))
}
