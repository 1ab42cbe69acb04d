//! What a network, a server and an administrator can do to a leader: each time it stops in time, somebody
//! leads again, and by the moments of the work itself no two ever did at once.

mod common;

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use common::{LEASE, MODES, PATIENCE, runtime, stand, stand_for, stand_safely, within, works_above};
use tenure_core::{Event, Fault, Record, SeatName, Store, Swap, Token, Why};
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
            let first = cut.leads().await;
            let _other = stand(&format!("{}{mode}", server.url()), &seat, &desk);
            tokio::time::sleep(LEASE / 2).await;
            proxy.black_hole(Way::Up);
            proxy.black_hole(Way::Down);
            let next = works_above(&desk, first).await;
            assert_eq!(cut.is_told_of_a_loss().await, Why::NotRenewed, "{mode}");
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
            // The first record that goes out is the bid.
            proxy.drop_reply_to("\"token\":1,");
            let robbed = stand_safely(&through(&proxy, mode), &seat, &desk);
            within("that the reply is lost", proxy.caught(1)).await;
            let _other = stand_safely(&format!("{}{mode}", server.url()), &seat, &desk);
            let token = works_above(&desk, Token::ZERO).await;
            if mode == MODES[0] {
                assert_eq!(robbed.leads().await, token, "it was locked out of its own seat");
                assert_eq!(token, Token::new(1));
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
        let token = leader.leads().await;
        let _other = stand(&server.url(), &seat, &desk);
        for count in 1..=2 {
            // Every record that goes out now is a renewal.
            proxy.drop_reply_to("\"token\":1,");
            within("that a reply is lost", proxy.caught(count)).await;
            tokio::time::sleep(LEASE).await;
            assert!(leader.election.is_leader(), "a lost reply has cost the term");
        }
        assert_eq!(leader.leads().await, token);
    });
}

#[test]
fn resets_during_renewals_cost_no_lease_its_term_and_never_make_two_leaders() {
    let server = server();
    for mode in MODES {
        runtime().block_on(async {
            let (desk, seat, proxy) = (Desk::new(), name(), Proxy::start(server.address()));
            let leader = stand_safely(&through(&proxy, mode), &seat, &desk);
            let token = leader.leads().await;
            let _other = stand_safely(&format!("{}{mode}", server.url()), &seat, &desk);
            for _ in 0..10 {
                tokio::time::sleep(LEASE / 5).await;
                proxy.reset();
            }
            if mode == MODES[0] {
                assert_eq!(leader.leads().await, token, "resets have cost a lease");
            } else {
                works_above(&desk, token).await;
            }
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_server_that_stops_and_goes_on_makes_no_two_leaders() {
    for mode in MODES {
        let mut server = Postgres::start();
        runtime().block_on(async {
            let desk = Desk::new();
            let url = format!("{}{mode}", server.url());
            let mut candidates = [stand_safely(&url, "jobs", &desk), stand_safely(&url, "jobs", &desk)];
            let first = works_above(&desk, Token::ZERO).await;
            server.pause();
            let leader = candidates.iter_mut().find(|one| one.election.is_leader()).expect("one leads");
            leader.is_told_of_a_loss().await;
            tokio::time::sleep(LEASE / 2).await;
            server.resume();
            works_above(&desk, first).await;
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_server_that_is_killed_and_restarted_has_forgotten_nothing() {
    for mode in MODES {
        let mut server = Postgres::start();
        runtime().block_on(async {
            let desk = Desk::new();
            let url = format!("{}{mode}", server.url());
            let candidates = [stand_safely(&url, "jobs", &desk), stand_safely(&url, "jobs", &desk)];
            let mut token = works_above(&desk, Token::ZERO).await;
            for _ in 0..2 {
                server.kill();
                server.restart();
                // In time for the lease, or else with a higher token.
                within("that somebody leads", async {
                    while !candidates.iter().any(|one| one.election.is_leader()) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                })
                .await;
                tokio::time::sleep(LEASE).await;
                let now = token_of(&server, "jobs");
                assert!(now >= token, "{mode}: token {now} after {token}");
                token = now;
            }
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn what_was_done_survives_a_crash_of_the_server_though_it_is_told_not_to_wait_for_its_disk() {
    for mode in MODES {
        // Else it would be a while before what is committed leaves the server's memory.
        let settings = ["synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB"];
        let mut server = settings.into_iter().fold(PostgresSetup::new(), PostgresSetup::with).start();
        runtime().block_on(async {
            let url = format!("{}{mode}", server.url());
            let seat = SeatName::new("jobs").unwrap();
            let store = PostgresStore::at(&url).unwrap();
            assert!(store.read(&seat).await.unwrap().seat.is_none());
            let Swap::Done { version, .. } = store.swap(&seat, None, &held(1, 1)).await.unwrap() else { panic!("lost") };
            server.kill();
            server.restart();
            let after = |url: String| async move {
                let store = PostgresStore::at(&url).unwrap();
                store.read(&SeatName::new("jobs").unwrap()).await.unwrap().seat.map(|seat| (seat.record, seat.version))
            };
            let (record, kept) = after(url.clone()).await.expect("a bid that was won is gone");
            assert_eq!((record.token, &kept), (Token::new(1), &version), "{mode}");
            // In session mode a renewal writes nothing.
            if mode == MODES[0] {
                let store = PostgresStore::at(&url).unwrap();
                let renewed = store.renew(&seat, &version, &held(1, 1)).await.unwrap();
                let Swap::Done { version, .. } = renewed else { panic!("lost") };
                server.kill();
                server.restart();
                assert_eq!(after(url).await.expect("it is gone").1, version, "a renewal that was answered is gone");
            }
        });
    }
}

#[test]
fn tables_that_are_dropped_in_mid_term_are_made_again_and_tokens_rise() {
    for mode in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let desk = Desk::new();
            let url = format!("{}{mode}", server.url());
            let _candidates = [stand(&url, "jobs", &desk), stand(&url, "jobs", &desk)];
            let first = works_above(&desk, Token::ZERO).await;
            // The follower has seen who leads.
            tokio::time::sleep(LEASE).await;
            server.sql("DROP SCHEMA tenure CASCADE");
            works_above(&desk, first).await;
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_server_restarted_empty_is_waited_out_and_tokens_go_on_rising() {
    for mode in MODES {
        let mut server = Postgres::start();
        runtime().block_on(async {
            let desk = Desk::new();
            let url = format!("{}{mode}", server.url());
            let mut candidates = [stand_safely(&url, "jobs", &desk), stand_safely(&url, "jobs", &desk)];
            let first = works_above(&desk, Token::ZERO).await;
            let follower = candidates.iter().find(|one| !one.election.is_leader()).expect("one follows");
            within("that it watches", follower.counter.wait_for(|counts| counts.watches > 0)).await;
            let leader = candidates.iter_mut().find(|one| one.election.is_leader()).expect("one leads");
            server.restart_empty();
            leader.is_told_of_a_loss().await;
            works_above(&desk, first).await;
            desk.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_wall_clock_that_steps_makes_no_two_leaders_and_costs_no_term() {
    for mode in MODES {
        let server = PostgresSetup::new().clock_by_hand().start();
        runtime().block_on(async {
            let desk = Desk::new();
            let url = format!("{}{mode}", server.url());
            let candidates = [(); 2].map(|()| stand_for(LEASE * 2, &url, "jobs", &desk));
            let mut last = works_above(&desk, Token::ZERO).await;
            for step in [300, 0, -300] {
                let leader = candidates.iter().position(|one| one.election.is_leader()).expect("one leads");
                server.step_clock(step);
                let now: i64 = server.sql("SELECT extract(epoch FROM clock_timestamp())::int8").parse().unwrap();
                let true_now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
                assert!((now - true_now as i64 - i64::from(step)).abs() < 30, "the server's clock was not moved");
                tokio::time::sleep(LEASE * 2).await;
                assert!(candidates[leader].election.is_leader(), "{mode}: a step of {step} s has cost a term");
                // Whoever follows takes over by the clock as it is now.
                candidates[leader].election.step_down();
                last = works_above(&desk, last).await;
                tokio::time::sleep(LEASE).await;
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
        let first = leader.leads().await;
        let _other = stand_for(lease, &url, &seat, &desk);
        tokio::time::sleep(LEASE / 2).await;
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
             AND classid::int8 << 32 | objid::int8 = {}",
            lock_id_of(&seat)
        );
        let ended = Instant::now();
        assert_eq!(server.sql(&sql), "t");
        assert_eq!(leader.is_told_of_a_loss().await, Why::SessionOver);
        let took = ended.elapsed();
        println!("the loss of a session was told after {took:?}, most of it the time of psql");
        assert!(took < lease / 3, "it was told only after {took:?}");
        works_above(&desk, first).await;
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
            let first = leader.leads().await;
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
            assert_eq!(told.fault(), Fault::Denied);
            assert_eq!(leader.is_told_of_a_loss().await, Why::NotRenewed);
            server.sql(&format!("GRANT ALL ON {schema}.seats TO worker"));
            works_above(&desk, first).await;
            desk.acts_do_not_overlap().unwrap();
        });
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
                token = works_above(&desk, token).await;
                let leader = within("that one leads", async {
                    loop {
                        match candidates.iter().find(|one| one.election.is_leader()) {
                            Some(leader) => return leader,
                            None => tokio::time::sleep(Duration::from_millis(5)).await,
                        }
                    }
                })
                .await;
                leader.election.stop();
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
fn a_standby_that_is_promoted_is_led_with_a_higher_token() {
    for mode in MODES {
        let mut primary = Postgres::start();
        let standby = PostgresSetup::new().standby_of(&primary).start();
        runtime().block_on(async {
            let desk = Desk::new();
            let url = format!("postgres://postgres@{},{}/postgres{mode}", primary.address(), standby.address());
            let mut candidates = [stand_safely(&url, "jobs", &desk), stand_safely(&url, "jobs", &desk)];
            let first = works_above(&desk, Token::ZERO).await;
            tokio::time::sleep(LEASE).await;
            let leader = candidates.iter_mut().find(|one| one.election.is_leader()).expect("one leads");
            primary.kill();
            leader.is_told_of_a_loss().await;
            standby.sql("SELECT pg_promote()");
            works_above(&desk, first).await;
            desk.acts_do_not_overlap().unwrap();
        });
    }
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

fn token_of(server: &Postgres, seat: &str) -> Token {
    Token::new(server.sql(&format!("SELECT token FROM tenure.seats WHERE name = '{seat}'")).parse().unwrap())
}

fn held(token: u64, incarnation: u128) -> Record {
    Record {
        holder: Some(tenure_core::Candidate {
            id: "a".into(),
            incarnation: tenure_core::Incarnation::from_bits(incarnation),
        }),
        token: Token::new(token),
        lease: PATIENCE,
        since_ms: None,
        heir: None,
        priority: 0,
        ranked: false,
        metadata: Arc::default(),
        nonce: rand::random(),
        unknown: Arc::default(),
    }
}
