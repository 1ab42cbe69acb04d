//! Faults of the network and the server, and actions of an administrator: the laws about faults, and faults that only
//! MySQL has. In each test the leader stops in time, a candidate leads again, and by the timestamps of the work no two
//! leaders overlap.

mod common;

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use common::{LEASE, MODES, acted_above, held, runtime, seats_at, stand, stand_for, within};
use tenure_core::{Builder, EndReason, EventKind, Fault, Record, SeatName, SeatStore, Swap, Takeover, Token};
use tenure_mysql::{MysqlStore, grants_sql, lock_name_of, schema_sql};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::store_error;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::servers::{Mysql, MysqlSetup};

/// A server, with candidates in session mode or in lease mode.
struct Database<const SESSIONS: bool>(Arc<Mysql>);

impl<const SESSIONS: bool> Database<SESSIONS> {
    fn alone(&mut self) -> &mut Mysql {
        Arc::get_mut(&mut self.0).expect("a server that is stopped or restarted is not shared")
    }
}

impl<const SESSIONS: bool> faults::Server for Database<SESSIONS> {
    fn start(wish: Wish) -> Self {
        Self(if wish.alone { Arc::new(Mysql::start()) } else { server() })
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn open(&self, address: &str) -> Box<dyn tenure_core::DynStore> {
        let mode = MODES[usize::from(SESSIONS)];
        Box::new(MysqlStore::from_url(&format!("mysql://root@{address}/app{mode}")).unwrap())
    }

    /// As in the README: in session mode a leader has one connection, and a follower two.
    fn connections(&self, processes: usize) -> usize {
        if SESSIONS { 1 + 2 * (processes - 1) } else { processes }
    }

    /// Two seconds: the server ends sessions after whole seconds of silence.
    fn lease(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The server needs a few seconds for a restart on a busy machine.
    fn long_lease(&self) -> Duration {
        Duration::from_secs(15)
    }

    fn pause(&mut self) {
        self.alone().pause();
    }

    fn resume(&mut self) {
        self.alone().resume();
    }

    fn restart(&mut self) {
        self.alone().kill();
        self.alone().restart();
    }

    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::TokensOfWitnessesRise)
    }

    fn restart_empty(&mut self) {
        self.alone().restart_empty();
    }

    /// With `takeover=instant` two leaders may overlap until the old one notices that its session ended, as the
    /// promises say.
    fn configure(&self, election: Builder) -> Builder {
        election.takeover(Takeover::Safe)
    }

    fn ends_with_its_connection(&self) -> bool {
        SESSIONS
    }

    /// In the batch of every write of a seat.
    fn bid(&self) -> &'static str {
        "seat.version = want.v"
    }

    /// In session mode, only the heartbeat selects nothing but versions.
    fn renewals(&self) -> &'static [&'static str] {
        if SESSIONS { &["SELECT version FROM"] } else { &["seat.holder = want.h"] }
    }
}

mod lease {
    tenure_testkit::faults!(super::Database<false>);
}

mod session {
    tenure_testkit::faults!(super::Database<true>);
}

#[test]
fn a_killed_session_ends_the_term_within_milliseconds() {
    let server = server();
    runtime().block_on(async {
        let (detector, seat) = (OverlapDetector::new(), name());
        let url = format!("{}?mode=session", server.url());
        let lease = LEASE * 4;
        let mut leader = stand_for(lease, &url, &seat, &detector);
        let first = leader.elected().await;
        let _other = stand_for(lease, &url, &seat, &detector);
        tokio::time::sleep(LEASE / 2).await;
        let holder = server.sql(&format!("SELECT IS_USED_LOCK('{}')", lock_name_of("app", "tenure_", &seat)));
        let ended = Instant::now();
        server.sql(&format!("KILL {holder}"));
        assert_eq!(leader.loses().await.1, EndReason::SessionOver);
        let took = ended.elapsed();
        println!("the end of the session was reported after {took:?}, which includes the start of a client");
        assert!(took < lease / 3, "the end of the session was reported only after {took:?}");
        acted_above(&detector, first).await;
    });
}

#[test]
fn a_killed_connection_costs_no_term_in_lease_mode() {
    let server = Mysql::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let leader = stand_for(LEASE * 2, &server.url(), "jobs", &detector);
        let first = leader.elected().await;
        let kill =
            "SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db = 'app' AND command = 'Sleep'";
        for _ in 0..3 {
            for kill in server.sql(kill).lines() {
                let _ = server.try_sql(kill);
            }
            tokio::time::sleep(LEASE).await;
        }
        assert_eq!(leader.election.term().map(|term| term.token()), Some(first), "a killed connection cost the term");
        detector.acts_do_not_overlap().unwrap();
    });
}

#[test]
fn revoked_rights_are_reported_and_end_the_term_in_time() {
    let server = Mysql::start();
    server.sql("CREATE USER worker");
    in_both_modes(|mode| {
        runtime().block_on(async {
            let (detector, prefix) = (OverlapDetector::new(), format!("{}_", mode.trim_start_matches("?mode=")));
            let url = format!("mysql://worker@{}/app{mode}&table_prefix={prefix}", server.address());
            // The least rights.
            server.sql(&format!("{}{}", schema_sql(&prefix), grants_sql("app", &prefix, "worker")));
            let mut leader = stand(&url, "jobs", &detector);
            let first = leader.elected().await;
            server.sql(&format!("REVOKE ALL ON app.{prefix}seats FROM worker"));
            let error = within("the error is reported", async {
                loop {
                    let event = leader.events.next().await.expect("the election runs").kind;
                    // A busy machine may have caused a time-out before.
                    if let Some(error) = store_error(&event).filter(|error| error.fault() != Fault::Unknown) {
                        return error.clone();
                    }
                    assert!(!matches!(event, EventKind::LostLeadership { .. }), "a refusal has cost the term at once");
                }
            })
            .await;
            assert!(error.to_string().contains("denied to user"), "{error}");
            assert!(error.to_string().contains("tenure schema mysql"), "{error}");
            assert_eq!(error.fault(), Fault::Denied);
            assert_eq!(leader.loses().await.1, EndReason::NotRenewed);
            server.sql(&grants_sql("app", &prefix, "worker"));
            acted_above(&detector, first).await;
            detector.acts_do_not_overlap().unwrap();
        });
    });
}

#[test]
fn a_leader_whose_seat_is_removed_ends_with_seat_vanished() {
    in_both_modes(|mode| {
        let server = Mysql::start();
        for removal in ["DELETE FROM tenure_seats", "DROP TABLE tenure_seats"] {
            runtime().block_on(async {
                let detector = OverlapDetector::new();
                // Long enough to create the tables on a busy machine.
                let mut leader = stand_for(LEASE * 3, &format!("{}{mode}", server.url()), "jobs", &detector);
                let first = leader.elected().await;
                server.sql(removal);
                assert_eq!(leader.loses().await, (first, EndReason::SeatVanished), "{mode}: {removal}");
                acted_above(&detector, first).await;
                detector.acts_do_not_overlap().unwrap();
                leader.election.stop();
                within("the election stops", leader.election.stopped()).await;
            });
        }
    });
}

#[test]
fn a_step_of_the_servers_clock_makes_no_two_leaders_and_costs_no_term() {
    in_both_modes(|mode| {
        let server = MysqlSetup::new().clock_by_hand().start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("{}{mode}", server.url());
            let candidates = [(); 2].map(|()| stand_for(LEASE * 2, &url, "jobs", &detector));
            let mut last = acted_above(&detector, Token::ZERO).await;
            for step in [300, 0, -300] {
                let leader = candidates.iter().position(|one| one.election.is_leader()).expect("one leads");
                server.step_clock(step);
                let now: i64 = server.sql("SELECT UNIX_TIMESTAMP()").parse().unwrap();
                let true_now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
                assert!((now - true_now as i64 - i64::from(step)).abs() < 30, "the server's clock was not moved");
                tokio::time::sleep(LEASE * 2).await;
                assert!(candidates[leader].election.is_leader(), "{mode}: a step of {step} s ended a term");
                // The follower takes over with the clock as it is now.
                candidates[leader].election.step_down();
                last = acted_above(&detector, last).await;
                tokio::time::sleep(LEASE).await;
            }
            detector.acts_do_not_overlap().unwrap();
        });
    });
}

#[test]
fn a_primary_that_becomes_read_only_is_left_for_the_next_host_and_tokens_rise() {
    in_both_modes(|mode| {
        // The second server has none of the first one's data, like a replica that received nothing.
        let (first, second) = (Mysql::start(), Mysql::start());
        second.sql("SET GLOBAL read_only = ON");
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("mysql://root@{},{}/app{mode}", first.address(), second.address());
            let candidates = [(); 2].map(|()| common::stand_safely(&url, "jobs", &detector));
            let before = acted_above(&detector, Token::ZERO).await;
            // A candidate that has not read the first server would not know what it has to wait for.
            for candidate in &candidates {
                within("the candidate has read the seat", candidate.counter.wait_for(|counts| counts.looks > 0)).await;
            }
            first.sql("SET GLOBAL read_only = ON");
            second.sql("SET GLOBAL read_only = OFF");
            acted_above(&detector, before).await;
            detector.acts_do_not_overlap().unwrap();
            assert_ne!(second.sql("SELECT COUNT(*) FROM tenure_seats WHERE holder IS NOT NULL"), "0", "{mode}");
        });
    });
}

#[test]
fn a_dropped_call_leaves_no_lock_behind() {
    let server = server();
    runtime().block_on(async {
        let url = format!("{}?mode=session", server.url());
        let (one, other) = (seats_at(&url), seats_at(&url));
        let seat = SeatName::new(name()).unwrap();
        let is_free =
            || server.sql(&format!("SELECT IS_FREE_LOCK('{}')", lock_name_of("app", "tenure_", seat.as_str()))) == "1";
        let mut token = 0;
        for round in 0..20_u32 {
            // The call is dropped before, during or after its write, which wins or loses.
            for store in [&one, &other] {
                let reading = store.read(&seat).await.unwrap();
                token = token.max(reading.floor.get()) + 1;
                let record = held(token, 1 + u128::from(round));
                let expected = reading.seat.map(|seat| seat.version);
                let bid = store.swap(&seat, expected.as_ref(), &record);
                let _ = tokio::time::timeout(Duration::from_micros(u64::from(round) * 100), bid).await;
            }
            // The store that won releases the seat.
            within("the seat is vacant and its lock free", async {
                loop {
                    for store in [&one, &other] {
                        let Some(seen) = store.read(&seat).await.unwrap().seat else { continue };
                        token = token.max(seen.record.token.get());
                        let vacant = Record { holder: None, nonce: rand::random(), ..seen.record.clone() };
                        if !seen.record.is_vacant() {
                            let _ = store.swap(&seat, Some(&seen.version), &vacant).await.unwrap();
                        }
                    }
                    let vacant = one.read(&seat).await.unwrap().seat.is_none_or(|seat| seat.record.is_vacant());
                    if vacant && is_free() {
                        return;
                    }
                }
            })
            .await;
        }
        // The seat can be taken again.
        let reading = other.read(&seat).await.unwrap();
        let next = held(token.max(reading.floor.get()) + 1, 7);
        let won = other.swap(&seat, reading.seat.as_ref().map(|seat| &seat.version), &next).await.unwrap();
        assert!(matches!(won, Swap::Done { .. }));
        assert!(!is_free());
        drop((one, other));
        within("the lock is freed with its session", async {
            while !is_free() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    });
}

#[test]
fn a_lock_is_free_after_one_release_however_often_its_seat_was_written() {
    let server = server();
    runtime().block_on(async {
        let (store, seat) = (seats_at(&format!("{}?mode=session", server.url())), SeatName::new(name()).unwrap());
        let lock = lock_name_of("app", "tenure_", seat.as_str());
        let (mut version, token) = (None, store.read(&seat).await.unwrap().floor.get() + 1);
        for is_held in [true, true, true, false] {
            let mut record = held(token, 1);
            record.holder = record.holder.filter(|_| is_held);
            let swap = store.swap(&seat, version.as_ref(), &record).await.unwrap();
            let Swap::Done { version: next, .. } = swap else { panic!("lost") };
            version = Some(next);
            let is_free = server.sql(&format!("SELECT IS_FREE_LOCK('{lock}')"));
            assert_eq!(is_free, if is_held { "0" } else { "1" });
        }
    });
}

#[test]
fn the_server_ends_a_session_that_holds_a_seat_and_is_silent_for_a_lease() {
    let server = server();
    runtime().block_on(async {
        // As in a paused process, nothing is sent after the bid.
        let (store, seat) = (seats_at(&format!("{}?mode=session", server.url())), SeatName::new(name()).unwrap());
        let token = store.read(&seat).await.unwrap().floor.get() + 1;
        let record = Record { lease: LEASE, ..held(token, 1) };
        let sent = Instant::now();
        assert!(matches!(store.swap(&seat, None, &record).await, Ok(Swap::Done { .. })));
        let lock = lock_name_of("app", "tenure_", seat.as_str());
        within("the server ends the session", async {
            while server.sql(&format!("SELECT IS_FREE_LOCK('{lock}')")) == "0" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert!(sent.elapsed() >= LEASE, "the session ended before its lease");
    });
}

#[test]
fn a_locked_row_costs_other_seats_nothing() {
    let server = server();
    in_both_modes(|mode| {
        runtime().block_on(async {
            let (detector, url) = (OverlapDetector::new(), format!("{}{mode}", server.url()));
            let elections = tenure_core::Elections::new(MysqlStore::from_url(&url).unwrap());
            let start = |seat: &str| elections.election(seat).lease(LEASE * 2).start().unwrap();
            let (blocked, free) = (name(), name());
            let leaders = [start(&blocked), start(&free)];
            for leader in &leaders {
                within("the candidate leads", leader.elected()).await.unwrap();
            }
            let sql = format!("BEGIN; SELECT 1 FROM tenure_seats WHERE name = '{blocked}' FOR UPDATE; SELECT SLEEP(5)");
            let other = server.clone();
            let lock = tokio::task::spawn_blocking(move || other.try_sql(&sql));
            let term = leaders[1].term().expect("the candidate leads");
            let rival = stand_for(LEASE * 2, &url, &blocked, &detector);
            within("the row is unlocked", lock).await.unwrap().unwrap();
            assert!(term.is_current(), "{mode}: a lock on one row ended the term of another seat");
            drop(rival);
        });
    });
}

#[test]
fn a_long_insert_of_one_seat_costs_other_seats_nothing() {
    let server = server();
    in_both_modes(|mode| {
        runtime().block_on(async {
            let url = format!("{}{mode}", server.url());
            let elections = tenure_core::Elections::new(MysqlStore::from_url(&url).unwrap());
            let start = |seat: &str| elections.election(seat).lease(LEASE).start().unwrap();
            let (blocked, free) = (name(), name());
            let leader = start(&free);
            let term = within("the candidate leads", leader.elected()).await.unwrap();
            let sql = format!(
                "BEGIN; INSERT INTO tenure_seats (name, record, version, token, written) VALUES ('{blocked}', '', '', 1, 0); \
                 SELECT SLEEP(5), '{blocked}'"
            );
            let other = server.clone();
            let insert = tokio::task::spawn_blocking(move || other.try_sql(&sql));
            let sleeping = format!(
                "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP(5), ''{blocked}%'"
            );
            let is_inserting = async || {
                while server.try_sql(&sleeping).unwrap().trim() != "1" {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            within("the row is inserted", is_inserting()).await;
            let bidder = start(&blocked);
            // Statements that wait for the insert. The insert itself does not wait.
            let waiting = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";
            while !insert.is_finished() {
                assert_eq!(server.try_sql(waiting).unwrap().trim(), "0", "{mode}: a statement waits for the insert");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            within("the insert is rolled back", insert).await.unwrap().unwrap();
            assert!(term.is_current(), "{mode}: an insert of one seat ended the term of another seat");
            within("the seat is won", bidder.elected()).await.unwrap();
        });
    });
}

// -------------------------------------------------------------------------------------------------

/// Runs a test in both modes at the same time, as tests mostly wait.
fn in_both_modes(test: impl Fn(&'static str) + Sync) {
    std::thread::scope(|scope| {
        for mode in MODES {
            scope.spawn(|| test(mode));
        }
    });
}

/// Returns the server that tests of this file share while they run, if they do not stop or restart it.
fn server() -> Arc<Mysql> {
    static SERVER: Mutex<Weak<Mysql>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    server.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Mysql::start());
        *server = Arc::downgrade(&started);
        started
    })
}

/// Returns the name of a seat that no other test uses.
fn name() -> String {
    format!("seat-{:016x}", rand::random::<u64>())
}
