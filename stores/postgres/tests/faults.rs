//! Faults of the network and the server, and actions of an administrator: the laws about faults in both modes,
//! and faults that only PostgreSQL has. In each test the leader stops in time, a candidate leads again, and by
//! the timestamps of the work no two leaders overlap.

mod common;

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use common::{LEASE, MODES, acted_above, held, leading, runtime, seats_at, stand, stand_for, within};
use tenure_core::{Builder, EndReason, EventKind, Fault, Record, SeatName, SeatStore, Swap, Takeover, Token};
use tenure_postgres::{PostgresStore, lock_id_of};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::store_error;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::servers::{Postgres, PostgresSetup};

/// A server, with candidates in session mode or in lease mode.
struct Database<const SESSIONS: bool>(Arc<Postgres>);

impl<const SESSIONS: bool> Database<SESSIONS> {
    fn alone(&mut self) -> &mut Postgres {
        Arc::get_mut(&mut self.0).expect("a server that is stopped or restarted is not shared")
    }
}

impl<const SESSIONS: bool> faults::Server for Database<SESSIONS> {
    fn start(wish: Wish) -> Self {
        Self(if wish.alone { Arc::new(Postgres::start()) } else { server() })
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn open(&self, address: &str) -> Box<dyn tenure_core::DynStore> {
        let mode = MODES[usize::from(SESSIONS)];
        Box::new(PostgresStore::from_url(&format!("postgres://postgres@{address}/postgres{mode}")).unwrap())
    }

    /// As in the README: in session mode a leader has two connections, and a follower three.
    fn connections(&self, processes: usize) -> usize {
        if SESSIONS { 2 + 3 * (processes - 1) } else { processes }
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

    /// The first record that is sent is the bid.
    fn bid(&self) -> &'static str {
        "\"token\":"
    }

    /// Every record that is sent after the bid is a renewal.
    fn renewals(&self) -> &'static [&'static str] {
        &["\"token\":"]
    }
}

mod lease {
    tenure_testkit::faults!(super::Database<false>);
}

mod session {
    tenure_testkit::faults!(super::Database<true>);
}

#[test]
fn a_terminated_session_ends_the_term_within_milliseconds() {
    let server = server();
    runtime().block_on(async {
        let (detector, seat) = (OverlapDetector::new(), name());
        let url = format!("{}?mode=session", server.url());
        let lease = LEASE * 4;
        let mut leader = stand_for(lease, &url, &seat, &detector);
        let first = leader.elected().await;
        let _other = stand_for(lease, &url, &seat, &detector);
        tokio::time::sleep(LEASE / 2).await;
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
             AND classid::int8 << 32 | objid::int8 = {}",
            lock_id_of(&seat)
        );
        let ended = Instant::now();
        assert_eq!(server.sql(&sql), "t");
        assert_eq!(leader.loses().await.1, EndReason::SessionOver);
        let took = ended.elapsed();
        println!("the end of the session was reported after {took:?}, which includes the start of psql");
        assert!(took < lease / 3, "the end of the session was reported only after {took:?}");
        acted_above(&detector, first).await;
    });
}

#[test]
fn revoked_rights_are_reported_and_end_the_term_in_time() {
    let server = Postgres::start();
    server.sql("CREATE ROLE worker LOGIN; GRANT CREATE ON DATABASE postgres TO worker");
    for (number, mode) in MODES.into_iter().enumerate() {
        runtime().block_on(async {
            let (detector, schema) = (OverlapDetector::new(), format!("rights{number}"));
            let url = format!("postgres://worker@{}/postgres{mode}&schema={schema}", server.address());
            let mut leader = stand(&url, "jobs", &detector);
            let first = leader.elected().await;
            server.sql(&format!(
                "ALTER TABLE {schema}.seats OWNER TO postgres; REVOKE ALL ON {schema}.seats FROM worker"
            ));
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
            assert!(error.to_string().contains("permission denied"), "{error}");
            assert!(error.to_string().contains("tenure schema postgres"), "{error}");
            assert_eq!(error.fault(), Fault::Denied);
            assert_eq!(leader.loses().await.1, EndReason::NotRenewed);
            server.sql(&format!("GRANT ALL ON {schema}.seats TO worker"));
            acted_above(&detector, first).await;
            detector.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_leader_whose_seat_is_removed_ends_with_seat_vanished() {
    let server = Postgres::start();
    for mode in MODES {
        for removal in ["TRUNCATE tenure.seats", "DROP TABLE tenure.seats"] {
            runtime().block_on(async {
                let detector = OverlapDetector::new();
                let mut leader = stand(&format!("{}{mode}", server.url()), "jobs", &detector);
                let first = leader.elected().await;
                server.sql(removal);
                assert_eq!(leader.loses().await, (first, EndReason::SeatVanished), "{mode}: {removal}");
                acted_above(&detector, first).await;
                detector.acts_do_not_overlap().unwrap();
                leader.election.stop();
                within("the election stops", leader.election.stopped()).await;
            });
        }
    }
}

#[test]
fn of_two_hundred_candidates_one_wins_each_term() {
    let server = PostgresSetup::new().with("max_connections=700").start();
    for mode in MODES {
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("{}{mode}&connect_timeout=20", server.url());
            let lease = Duration::from_secs(6);
            let candidates: Vec<_> = (0..200).map(|_| stand_for(lease, &url, mode, &detector)).collect();
            let mut token = Token::ZERO;
            for _ in 0..3 {
                token = acted_above(&detector, token).await;
                leading(&candidates).await.election.stop();
            }
            detector.shifts_do_not_overlap().unwrap();
            for one in &candidates {
                one.election.stop();
            }
            for one in &candidates {
                within("the election stops", one.election.stopped()).await;
            }
        });
    }
}

#[test]
fn a_dropped_call_leaves_no_lock_behind() {
    let server = server();
    runtime().block_on(async {
        let url = format!("{}?mode=session", server.url());
        let (one, other) = (seats_at(&url), seats_at(&url));
        let seat = SeatName::new(name()).unwrap();
        let locks = || {
            let sql = format!(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
                 AND classid::int8 << 32 | objid::int8 = {}",
                lock_id_of(seat.as_str())
            );
            server.sql(&sql)
        };
        let mut token = 0;
        for round in 0..20_u32 {
            // The call is dropped before, during or after its write, which wins or loses.
            for store in [&one, &other] {
                token += 1;
                let expected = store.read(&seat).await.unwrap().seat.map(|seat| seat.version);
                let record = held(token, 1 + u128::from(round));
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
                    if vacant && locks() == "0" {
                        return;
                    }
                }
            })
            .await;
        }
        // The seat can be taken again.
        let seen = other.read(&seat).await.unwrap().seat;
        let won = other.swap(&seat, seen.as_ref().map(|seat| &seat.version), &held(token + 1, 7)).await.unwrap();
        assert!(matches!(won, Swap::Done { .. }));
        drop((one, other));
        within("the lock is freed with its session", async {
            while locks() != "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    });
}

#[test]
fn a_locked_row_costs_other_seats_nothing() {
    let server = server();
    for mode in MODES {
        runtime().block_on(async {
            let (detector, url) = (OverlapDetector::new(), format!("{}{mode}", server.url()));
            let store = PostgresStore::from_url(&url).unwrap();
            let elections = tenure_core::Elections::new(store);
            let start = |seat: &str| elections.election(seat).lease(LEASE * 2).start().unwrap();
            let (blocked, free) = (name(), name());
            let leaders = [start(&blocked), start(&free)];
            for leader in &leaders {
                within("the candidate leads", leader.elected()).await.unwrap();
            }
            let sql =
                format!("BEGIN; SELECT FROM tenure.seats WHERE name = '{blocked}' FOR UPDATE; SELECT pg_sleep(5)");
            let other = server.clone();
            let lock = tokio::task::spawn_blocking(move || other.try_sql(&sql));
            let term = leaders[1].term().expect("the candidate leads");
            let rival = stand_for(LEASE * 2, &url, &blocked, &detector);
            within("the row is unlocked", lock).await.unwrap().unwrap();
            assert!(term.is_current(), "{mode}: a lock on one row ended the term of another seat");
            drop(rival);
        });
    }
}

// -------------------------------------------------------------------------------------------------

/// Returns the server that tests of this file share while they run, if they do not stop or restart it.
fn server() -> Arc<Postgres> {
    static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    server.upgrade().unwrap_or_else(|| {
        // In session mode, forty candidates need more connections than the default.
        let started = Arc::new(PostgresSetup::new().with("max_connections=400").start());
        *server = Arc::downgrade(&started);
        started
    })
}

/// Returns the name of a seat that no other test uses.
fn name() -> String {
    format!("seat-{:016x}", rand::random::<u64>())
}
