//! What a network, a server and an administrator can do to a leader: each time it stops in time, somebody
//! leads again, and by the moments of the work itself no two ever did at once.

mod common;

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use common::{LEASE, MODES, acted_above, held, leading, runtime, stand, stand_for, stand_safely, token_of, within};
use tenure_core::{Event, Fault, Record, SeatName, SeatStore, Swap, Token, Why};
use tenure_postgres::{PostgresStore, lock_id_of};
use tenure_testkit::Desk;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Postgres, PostgresSetup};

#[test]
fn a_leader_in_a_black_hole_stops_before_another_starts() {
    let server = server();
    for mode in MODES {
        runtime().block_on(async {
            let (desk, seat, proxy) = (Desk::new(), name(), Proxy::start(server.address()));
            let mut cut = stand(&through(&proxy, mode), &seat, &desk);
            let first = cut.elected().await;
            let _other = stand(&format!("{}{mode}", server.url()), &seat, &desk);
            tokio::time::sleep(LEASE / 2).await;
            proxy.black_hole(Way::Up);
            proxy.black_hole(Way::Down);
            let next = acted_above(&desk, first).await;
            assert_eq!(cut.loses().await.1, Why::NotRenewed, "{mode}");
            desk.acts_do_not_overlap().unwrap();
            // What was held back arrives late, and changes nothing.
            proxy.pass();
            tokio::time::sleep(LEASE / 2).await;
            assert_eq!(token_of(&server, &seat), next, "{mode}");
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_winning_bid_whose_reply_is_lost_ends_in_one_term_of_the_one_who_won() {
    let server = server();
    for mode in MODES {
        runtime().block_on(async {
            let (desk, seat, proxy) = (Desk::new(), name(), Proxy::start(server.address()));
            // The first record that goes out is the bid. Its token is 1, unless another was given up before it was sent.
            proxy.drop_reply_to("\"token\":");
            let robbed = stand_safely(&through(&proxy, mode), &seat, &desk);
            within("that the reply is lost", proxy.caught(1)).await;
            let bid = token_of(&server, &seat);
            let _other = stand_safely(&format!("{}{mode}", server.url()), &seat, &desk);
            let token = acted_above(&desk, Token::ZERO).await;
            if mode == MODES[0] {
                assert_eq!(robbed.elected().await, token, "it was locked out of its own seat");
                assert_eq!(token, bid);
            }
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_renewal_whose_reply_is_lost_costs_no_term() {
    let server = server();
    runtime().block_on(async {
        let (desk, seat, proxy) = (Desk::new(), name(), Proxy::start(server.address()));
        let leader = stand(&through(&proxy, ""), &seat, &desk);
        let token = leader.elected().await;
        let _other = stand(&server.url(), &seat, &desk);
        for count in 1..=2 {
            // Every record that goes out now is a renewal.
            proxy.drop_reply_to(format!("\"token\":{token},"));
            within("that a reply is lost", proxy.caught(count)).await;
            tokio::time::sleep(LEASE).await;
            assert!(leader.election.is_leader(), "a lost reply has cost the term");
        }
        assert_eq!(leader.elected().await, token);
    });
}

#[test]
fn resets_during_renewals_cost_no_lease_its_term_and_never_make_two_leaders() {
    let server = server();
    for mode in MODES {
        runtime().block_on(async {
            let (desk, seat, proxy) = (Desk::new(), name(), Proxy::start(server.address()));
            let leader = stand_safely(&through(&proxy, mode), &seat, &desk);
            let token = leader.elected().await;
            let _other = stand_safely(&format!("{}{mode}", server.url()), &seat, &desk);
            for _ in 0..10 {
                tokio::time::sleep(LEASE / 5).await;
                proxy.reset();
            }
            if mode == MODES[0] {
                assert_eq!(leader.elected().await, token, "resets have cost a lease");
            } else {
                acted_above(&desk, token).await;
            }
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_session_that_is_ended_ends_the_term_within_milliseconds() {
    let server = server();
    runtime().block_on(async {
        let (desk, seat) = (Desk::new(), name());
        let url = format!("{}?mode=session", server.url());
        let lease = LEASE * 4;
        let mut leader = stand_for(lease, &url, &seat, &desk);
        let first = leader.elected().await;
        let _other = stand_for(lease, &url, &seat, &desk);
        tokio::time::sleep(LEASE / 2).await;
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
             AND classid::int8 << 32 | objid::int8 = {}",
            lock_id_of(&seat)
        );
        let ended = Instant::now();
        assert_eq!(server.sql(&sql), "t");
        assert_eq!(leader.loses().await.1, Why::SessionOver);
        let took = ended.elapsed();
        println!("the loss of a session was told after {took:?}, most of it the time of psql");
        assert!(took < lease / 3, "it was told only after {took:?}");
        acted_above(&desk, first).await;
    });
}

#[test]
fn rights_that_are_revoked_in_mid_term_are_told_and_end_it_in_time() {
    let server = Postgres::start();
    server.sql("CREATE ROLE worker LOGIN; GRANT CREATE ON DATABASE postgres TO worker");
    for (number, mode) in MODES.into_iter().enumerate() {
        runtime().block_on(async {
            let (desk, schema) = (Desk::new(), format!("rights{number}"));
            let url = format!("postgres://worker@{}/postgres{mode}&schema={schema}", server.address());
            let mut leader = stand(&url, "jobs", &desk);
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
            assert_eq!(leader.loses().await.1, Why::NotRenewed);
            server.sql(&format!("GRANT ALL ON {schema}.seats TO worker"));
            acted_above(&desk, first).await;
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_leader_whose_seat_is_removed_ends_because_it_vanished() {
    let server = Postgres::start();
    for mode in MODES {
        for removal in ["TRUNCATE tenure.seats", "DROP TABLE tenure.seats"] {
            runtime().block_on(async {
                let desk = Desk::new();
                let mut leader = stand(&format!("{}{mode}", server.url()), "jobs", &desk);
                let first = leader.elected().await;
                server.sql(removal);
                assert_eq!(leader.loses().await, (first, Why::SeatVanished), "{mode}: {removal}");
                acted_above(&desk, first).await;
                desk.acts_do_not_overlap().unwrap();
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
            let desk = Desk::new();
            let url = format!("{}{mode}&connect_timeout=20", server.url());
            let lease = Duration::from_secs(6);
            let candidates: Vec<_> = (0..200).map(|_| stand_for(lease, &url, mode, &desk)).collect();
            let mut token = Token::ZERO;
            for _ in 0..3 {
                token = acted_above(&desk, token).await;
                leading(&candidates).await.election.stop();
            }
            desk.shifts_do_not_overlap().unwrap();
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
        let (one, other) = (PostgresStore::at(&url).unwrap(), PostgresStore::at(&url).unwrap());
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
            let (desk, url) = (Desk::new(), format!("{}{mode}", server.url()));
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
            let rival = stand_for(LEASE * 2, &url, &blocked, &desk);
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

fn through(proxy: &Proxy, mode: &str) -> String {
    format!("postgres://postgres@{}/postgres{mode}", proxy.address())
}
