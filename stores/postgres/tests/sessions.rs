//! `mode=session`: what keeps a seat is the lock itself, and who waits for it does so without asking.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{LEASE, PATIENCE, acted_above, held, runtime, seats_at, stand_for, within};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure_core::{Elections, EndReason, Lifeline, Record, SeatName, SeatStore, SingleSeat, Swap, Token};
use tenure_postgres::{PostgresStore, lock_id_of};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::until;
use tenure_testkit::servers::{Postgres, PostgresSetup, connections};

/// Has every write of a seat give back the very lock that it was made under, in the same session.
const GIVES_LOCKS_BACK: &str = "CREATE FUNCTION tenure.give_back() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN IF NEW.lock_id IS NOT NULL THEN PERFORM pg_advisory_unlock(NEW.lock_id); END IF; RETURN NEW; END $$;
    CREATE TRIGGER give_back AFTER INSERT OR UPDATE ON tenure.seats FOR EACH ROW EXECUTE FUNCTION tenure.give_back()";

#[test]
fn a_session_that_lives_without_the_lock_keeps_no_seat() {
    let server = Postgres::start();
    runtime().block_on(async {
        let store = seats_at(&session(&server));
        let seat = SeatName::new("jobs").unwrap();
        assert!(store.read(&seat).await.unwrap().seat.is_none());
        server.sql(GIVES_LOCKS_BACK);
        let Swap::Done { version, .. } = store.swap(&seat, None, &held(1, 1)).await.unwrap() else { panic!("lost") };
        assert_eq!(holders(&server, "jobs"), "0", "the lock is gone, and the session that had it is not");
        assert_eq!(store.renew(&seat, &version, &held(1, 1)).await.unwrap(), Swap::Lost);
        // The next bid is for the lock again, and not only for the row.
        server.sql("DROP TRIGGER give_back ON tenure.seats");
        let Swap::Done { version, .. } = store.swap(&seat, Some(&version), &held(2, 1)).await.unwrap() else {
            panic!("lost")
        };
        assert_eq!(holders(&server, "jobs"), "1");
        assert!(matches!(store.renew(&seat, &version, &held(2, 1)).await.unwrap(), Swap::Done { .. }));
    });
}

#[test]
fn a_leader_whose_lock_is_gone_stops_though_its_session_lives() {
    let server = Postgres::start();
    runtime().block_on(async {
        seats_at(&session(&server)).read(&SeatName::new("jobs").unwrap()).await.unwrap();
        server.sql(GIVES_LOCKS_BACK);
        let detector = OverlapDetector::new();
        let mut leader = stand_for(LEASE, &session(&server), "jobs", &detector);
        leader.elected().await;
        let (_, why) = leader.loses().await;
        assert!([EndReason::SeatLost, EndReason::NotRenewed].contains(&why), "{why:?}");
        detector.acts_do_not_overlap().unwrap();
    });
}

#[test]
fn one_connection_waits_for_each_process_that_leads_whatever_the_number_of_its_seats() {
    let server = Postgres::start();
    runtime().block_on(async {
        let lease = LEASE * 4;
        let processes = [(); 3].map(|()| Elections::new(PostgresStore::at(&session(&server)).unwrap()));
        let names = [0, 1].map(|process| [0, 1, 2, 3, 4].map(|number| format!("seat-{process}-{number}")));
        let start = |process: usize, name: &String| processes[process].election(name).lease(lease).start().unwrap();
        let mut leaders = Vec::new();
        for (process, names) in names.iter().enumerate() {
            for name in names {
                let leader = start(process, name);
                within("that it leads", leader.elected()).await.unwrap();
                leaders.push(leader);
            }
        }
        let followers: Vec<_> = names.as_flattened().iter().map(|name| start(2, name)).collect();
        until("that it waits for both", || waiting(&server) == "2").await;
        // The same two connections still wait a lease later; each is between two statements for a moment.
        let before = connections(server.port());
        tokio::time::sleep(lease).await;
        until("that it still waits for both", || waiting(&server) == "2").await;
        assert_eq!(connections(server.port()), before);
        assert!(leaders.iter().all(|leader| leader.is_leader()));
        // One of the two is gone, with all that it had.
        let [gone, _stays, _follows] = processes;
        leaders.drain(..names[0].len());
        drop(gone);
        for follower in &followers[..names[0].len()] {
            within("that another leads", follower.elected()).await.unwrap();
        }
        assert!(leaders.iter().all(|leader| leader.is_leader()));
    });
}

#[test]
fn a_follower_that_waits_does_not_keep_vacuum_from_removing_dead_rows() {
    let server = Postgres::start();
    runtime().block_on(async {
        let lease = LEASE * 10;
        let processes = [(); 2].map(|()| Elections::new(PostgresStore::at(&session(&server)).unwrap()));
        let leader = processes[0].election("jobs").lease(lease).start().unwrap();
        within("that it leads", leader.elected()).await.unwrap();
        let _follower = processes[1].election("jobs").lease(lease).start().unwrap();
        until("that the follower waits", || waiting(&server) == "1").await;
        server.sql("CREATE TABLE busy AS SELECT generate_series(1, 40000); DELETE FROM busy");
        let size = || {
            server.sql("VACUUM busy");
            server.sql("SELECT pg_relation_size('busy')")
        };
        until("that dead rows are removed while the leader leads", || size() == "0").await;
        until("that the follower still waits", || waiting(&server) == "1").await;
        assert!(leader.is_leader());
        let log = server.process.output();
        assert!(!log.contains("lock timeout"), "a wait that goes on is logged as an error: {log}");
    });
}

#[test]
fn a_follower_that_stops_watching_stops_waiting_on_the_server() {
    let server = Postgres::start();
    runtime().block_on(async {
        let lease = LEASE * 10;
        let processes = [(); 2].map(|()| Elections::new(PostgresStore::at(&session(&server)).unwrap()));
        let leader = processes[0].election("jobs").lease(lease).start().unwrap();
        within("that it leads", leader.elected()).await.unwrap();
        let follower = processes[1].election("jobs").lease(lease).start().unwrap();
        until("that the follower waits", || waiting(&server) == "1").await;
        let before = connections(server.port());
        follower.stop();
        within("that it stops", follower.stopped()).await;
        until("that nothing waits on the server", || waiting(&server) == "0").await;
        until("that its connection is closed", || connections(server.port()) < before).await;
        assert!(leader.is_leader());
    });
}

#[test]
fn a_session_that_another_program_holds_the_lock_of_is_waited_for() {
    let server = Postgres::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let url = format!("{}&lock_id=1337", session(&server));
        let (theirs, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        theirs.batch_execute("SELECT pg_advisory_lock(1337)").await.unwrap();
        let ours = stand_for(LEASE, &url, "jobs", &detector);
        within("that it bids in vain", ours.counter.wait_for(|counts| counts.swaps >= 3)).await;
        assert_eq!(detector.work_spans(), 0, "it leads although another program has the lock");
        theirs.batch_execute("SELECT pg_advisory_unlock(1337)").await.unwrap();
        acted_above(&detector, Token::ZERO).await;
        assert_eq!(server.sql("SELECT pg_try_advisory_lock(1337)"), "f");
    });
}

#[test]
fn a_seat_stays_held_while_a_process_has_its_lifeline_though_the_holder_is_dead() {
    for (server, url) in ways() {
        let mut holder = Command::new(std::env::current_exe().unwrap());
        let holder = holder.args(["--exact", "a_holder_that_dies"]).env(DIES, &url).stdout(Stdio::null());
        let mut holder = holder.stdin(Stdio::piped()).spawn().unwrap();
        let heir = holder.stdin.take();
        assert!(holder.wait().unwrap().success());
        // Far longer than a server takes to notice that a connection was closed.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(holders(&server, "jobs"), "1", "{url}");
        drop(heir);
        comes_free(&server, &url);
    }
}

/// Holds a seat, leaves its lifeline to a process that lives until its standard input ends, and dies without
/// a word, if this process was started for that.
#[test]
fn a_holder_that_dies() {
    let Ok(url) = std::env::var(DIES) else { return };
    runtime().block_on(async {
        let store = seats_at(&url);
        let lifeline = holds(&store).await;
        Command::new("cat").stdin(Stdio::inherit()).stdout(lifeline).spawn().unwrap();
        std::process::exit(0);
    });
}

#[test]
fn a_session_that_its_process_gives_up_is_over_though_another_has_its_lifeline() {
    for (server, url) in ways() {
        let runtime = runtime();
        let store = seats_at(&url);
        let lifeline = runtime.block_on(holds(&store));
        assert_eq!(holders(&server, "jobs"), "1", "{url}");
        // All that drives its connections is dropped in mid-air.
        drop(runtime);
        comes_free(&server, &url);
        drop(lifeline);
    }
}

#[test]
fn only_a_seat_that_is_held_has_a_lifeline() {
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
        assert!(leases.lifeline(&seat).unwrap().is_none(), "a row is held by time alone");
    });
}

#[test]
fn a_lifeline_that_cannot_be_duplicated_is_an_error() {
    let server = Postgres::start();
    let mut holder = Command::new(std::env::current_exe().unwrap());
    holder.args(["--exact", "a_holder_that_can_open_no_more_files", "--nocapture"]).env(FULL, session(&server));
    let output = holder.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("open files"), "{told}");
}

/// Holds a seat, and asks for its lifeline while no further file can be opened, if this process was started for that.
#[test]
fn a_holder_that_can_open_no_more_files() {
    let Ok(url) = std::env::var(FULL) else { return };
    runtime().block_on(async {
        let store = seats_at(&url);
        let (seat, other) = (SeatName::new("jobs").unwrap(), SeatName::new("other").unwrap());
        drop(holds(&store).await);
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

/// A server and how to reach it: in plain, encrypted, and over a unix socket.
fn ways() -> [(Postgres, String); 3] {
    let [plain, encrypted, local] = [PostgresSetup::new(), PostgresSetup::new().encrypts(), PostgresSetup::new()];
    let [plain, encrypted, local] = [plain, encrypted, local].map(|setup| setup.start());
    let socket =
        format!("postgres://postgres@/postgres?host={}&port={}&mode=session", local.folder().display(), local.port());
    let urls = [session(&plain), format!("{}&sslmode=require", session(&encrypted)), socket];
    let [one, two, three] = urls;
    [(plain, one), (encrypted, two), (local, three)]
}

/// Takes the seat, for so long that no time-out of the server plays a part, and returns its lifeline.
async fn holds(store: &SingleSeat) -> Lifeline {
    let seat = SeatName::new("jobs").unwrap();
    let record = Record { lease: Duration::from_secs(3600), ..held(1, 1) };
    assert!(matches!(store.swap(&seat, None, &record).await.unwrap(), Swap::Done { .. }));
    store.lifeline(&seat).unwrap().unwrap()
}

/// Waits until no session holds the seat any more.
fn comes_free(server: &Postgres, url: &str) {
    let began = Instant::now();
    while holders(server, "jobs") != "0" {
        assert!(began.elapsed() < PATIENCE, "{url}: the session is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn session(server: &Postgres) -> String {
    format!("{}?mode=session", server.url())
}

/// How many sessions wait for another to end.
fn waiting(server: &Postgres) -> String {
    server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
}

/// How many sessions hold the lock of a seat.
fn holders(server: &Postgres, seat: &str) -> String {
    server.sql(&format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
         AND classid::int8 << 32 | objid::int8 = {}",
        lock_id_of(seat)
    ))
}
