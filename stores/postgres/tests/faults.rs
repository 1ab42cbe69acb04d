//! What a network, a server and an administrator can do to a leader: the laws about that in both modes, and what only
//! PostgreSQL can do. Each time the leader stops in time, somebody leads again, and by the moments of the work itself no
//! two ever did at once.

mod common;

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use common::{LEASE, MODES, acted_above, held, leading, runtime, seats_at, stand, stand_for, within};
use tenure_core::{Builder, EndReason, Event, Fault, Record, SeatName, SeatStore, Swap, Takeover, Token};
use tenure_postgres::{PostgresStore, lock_id_of};
use tenure_testkit::OverlapDetector;
use tenure_testkit::faults::{self, AfterLoss, Wish};
use tenure_testkit::servers::{Postgres, PostgresSetup};

/// A server, with candidates in session mode or in lease mode.
struct Database<const SESSIONS: bool>(Arc<Postgres>);

impl<const SESSIONS: bool> Database<SESSIONS> {
    fn alone(&mut self) -> &mut Postgres {
        Arc::get_mut(&mut self.0).expect("nobody else uses a server that is stopped or restarted")
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
        Box::new(PostgresStore::at(&format!("postgres://postgres@{address}/postgres{mode}")).unwrap())
    }

    /// As the README counts them: in session mode two of a leader, and three of a follower.
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

    /// With `takeover=instant` two may overlap until the news of the end of a session has arrived, and that is said.
    fn configure(&self, election: Builder) -> Builder {
        election.takeover(Takeover::Safe)
    }

    fn ends_with_its_connection(&self) -> bool {
        SESSIONS
    }

    /// The first record that goes out is the bid.
    fn bid(&self) -> &'static str {
        "\"token\":"
    }

    /// Every record that goes out after it is a renewal.
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
fn a_session_that_is_ended_ends_the_term_within_milliseconds() {
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
        println!("the loss of a session was told after {took:?}, most of it the time of psql");
        assert!(took < lease / 3, "it was told only after {took:?}");
        acted_above(&detector, first).await;
    });
}

#[test]
fn rights_that_are_revoked_in_mid_term_are_told_and_end_it_in_time() {
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
            let told = within("that it is told", async {
                loop {
                    match leader.events.next().await.expect("it goes on") {
                        // A busy machine may have been slow before.
                        Event::Error { error } if error.fault() != Fault::Unknown => return error,
                        Event::LostLeadership { .. } => panic!("a refusal has cost the term at once"),
                        _ => {}
                    }
                }
            })
            .await;
            assert!(told.to_string().contains("permission denied"), "{told}");
            assert!(told.to_string().contains("tenure schema postgres"), "{told}");
            assert_eq!(told.fault(), Fault::Denied);
            assert_eq!(leader.loses().await.1, EndReason::NotRenewed);
            server.sql(&format!("GRANT ALL ON {schema}.seats TO worker"));
            acted_above(&detector, first).await;
            detector.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_leader_whose_seat_is_removed_ends_because_it_vanished() {
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
                within("that it stops", leader.election.stopped()).await;
            });
        }
    }
}

#[test]
fn two_hundred_candidates_race_and_one_wins_each_time() {
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
                within("that it stops", one.election.stopped()).await;
            }
        });
    }
}

#[test]
fn a_call_that_is_given_up_leaves_no_lock_behind() {
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
            // Given up before, while or after it is done; lost or won.
            for store in [&one, &other] {
                token += 1;
                let expected = store.read(&seat).await.unwrap().seat.map(|seat| seat.version);
                let record = held(token, 1 + u128::from(round));
                let bid = store.swap(&seat, expected.as_ref(), &record);
                let _ = tokio::time::timeout(Duration::from_micros(u64::from(round) * 100), bid).await;
            }
            // Whoever has won gives it up.
            within("that the seat is vacant and its lock free", async {
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
        // Nobody was locked out by it.
        let seen = other.read(&seat).await.unwrap().seat;
        let won = other.swap(&seat, seen.as_ref().map(|seat| &seat.version), &held(token + 1, 7)).await.unwrap();
        assert!(matches!(won, Swap::Done { .. }));
        drop((one, other));
        within("that the lock is freed with its session", async {
            while locks() != "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    });
}

#[test]
fn a_row_that_somebody_else_has_locked_costs_other_seats_nothing() {
    let server = server();
    for mode in MODES {
        runtime().block_on(async {
            let (detector, url) = (OverlapDetector::new(), format!("{}{mode}", server.url()));
            let store = PostgresStore::at(&url).unwrap();
            let elections = tenure_core::Elections::new(store);
            let start = |seat: &str| elections.election(seat).lease(LEASE * 2).start().unwrap();
            let (blocked, free) = (name(), name());
            let leaders = [start(&blocked), start(&free)];
            for leader in &leaders {
                within("that it leads", leader.elected()).await.unwrap();
            }
            let sql =
                format!("BEGIN; SELECT FROM tenure.seats WHERE name = '{blocked}' FOR UPDATE; SELECT pg_sleep(5)");
            let other = server.clone();
            let lock = tokio::task::spawn_blocking(move || other.try_sql(&sql));
            let term = leaders[1].term().expect("it leads");
            let rival = stand_for(LEASE * 2, &url, &blocked, &detector);
            within("that the lock is given back", lock).await.unwrap().unwrap();
            assert!(term.is_current(), "{mode}: a lock on one row has cost another its term");
            drop(rival);
        });
    }
}

// -------------------------------------------------------------------------------------------------

/// One server for all tests of this file that leave it alone and run at a time.
fn server() -> Arc<Postgres> {
    static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    server.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Postgres::start());
        *server = Arc::downgrade(&started);
        started
    })
}

/// A seat that no other test uses.
fn name() -> String {
    format!("seat-{:016x}", rand::random::<u64>())
}
