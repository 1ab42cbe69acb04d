//! What can happen to a server beside what the laws about faults say: it crashes before its disk has all, loses its
//! tables, has its clock set, or another takes its place. By the moments of the work itself no two ever led at once.

mod common;

use common::{
    LEASE, MODES, TestCandidate, acted_above, held, runtime, seats_at, stand, stand_for, stand_safely, token_of, within,
};
use tenure_core::{SeatName, SeatStore, Swap, Token};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::until;
use tenure_testkit::servers::{Postgres, PostgresSetup};

#[test]
fn what_was_done_survives_a_crash_of_the_server_though_it_is_told_not_to_wait_for_its_disk() {
    for mode in MODES {
        // Else it would be a while before what is committed leaves the server's memory.
        let settings = ["synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB"];
        let mut server = settings.into_iter().fold(PostgresSetup::new(), PostgresSetup::with).start();
        runtime().block_on(async {
            let url = format!("{}{mode}", server.url());
            let seat = SeatName::new("jobs").unwrap();
            let store = seats_at(&url);
            assert!(store.read(&seat).await.unwrap().seat.is_none());
            let Swap::Done { version, .. } = store.swap(&seat, None, &held(1, 1)).await.unwrap() else {
                panic!("lost")
            };
            server.kill();
            server.restart();
            let after = |url: String| async move {
                let store = seats_at(&url);
                store.read(&SeatName::new("jobs").unwrap()).await.unwrap().seat.map(|seat| (seat.record, seat.version))
            };
            let (record, kept) = after(url.clone()).await.expect("a bid that was won is gone");
            assert_eq!((record.token, &kept), (Token::new(1), &version), "{mode}");
            // In session mode a renewal writes nothing.
            if mode == MODES[0] {
                let store = seats_at(&url);
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
            let detector = OverlapDetector::new();
            let url = format!("{}{mode}", server.url());
            let candidates = [stand(&url, "jobs", &detector), stand(&url, "jobs", &detector)];
            let first = acted_above(&detector, Token::ZERO).await;
            has_seen_who_leads(&candidates).await;
            server.sql("DROP SCHEMA tenure CASCADE");
            acted_above(&detector, first).await;
            detector.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_wall_clock_that_steps_makes_no_two_leaders_and_costs_no_term() {
    for mode in MODES {
        let server = PostgresSetup::new().clock_by_hand().start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("{}{mode}", server.url());
            let candidates = [(); 2].map(|()| stand_for(LEASE * 2, &url, "jobs", &detector));
            let mut last = acted_above(&detector, Token::ZERO).await;
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
                last = acted_above(&detector, last).await;
                tokio::time::sleep(LEASE).await;
            }
            detector.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_standby_that_is_promoted_is_led_with_a_higher_token() {
    for mode in MODES {
        let mut primary = Postgres::start();
        let standby = PostgresSetup::new().standby_of(&primary).start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("postgres://postgres@{},{}/postgres{mode}", primary.address(), standby.address());
            let mut candidates = [stand_safely(&url, "jobs", &detector), stand_safely(&url, "jobs", &detector)];
            let first = acted_above(&detector, Token::ZERO).await;
            tokio::time::sleep(LEASE).await;
            let leader = candidates.iter_mut().find(|one| one.election.is_leader()).expect("one leads");
            primary.kill();
            leader.loses().await;
            standby.sql("SELECT pg_promote()");
            acted_above(&detector, first).await;
            detector.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn tokens_rise_across_the_promotion_of_a_standby_that_had_not_received_the_last_terms() {
    for mode in MODES {
        let mut primary = Postgres::start();
        let standby = PostgresSetup::new().standby_of(&primary).start();
        runtime().block_on(async {
            // The detector is the fenced resource: it refuses a term whose token is not above that of the last one.
            let detector = OverlapDetector::new();
            let old = format!("{}{mode}", primary.url());
            leads_once(&old, "jobs", &detector).await;
            stops_receiving(&standby, "jobs", token_of(&primary, "jobs")).await;
            leads_once(&old, "jobs", &detector).await;
            let last = leads_once(&old, "jobs", &detector).await;
            assert!(last < Token::new(1 << 32), "{mode}: tokens are small as long as no standby was promoted");
            let unseen = OverlapDetector::new();
            let last_unseen = leads_once(&old, "unseen", &unseen).await;

            primary.kill();
            standby.sql("SELECT pg_promote()");
            // Candidates that know nothing of what was lost. The standby has one of the seats, as it was.
            let new = format!("{}{mode}", standby.url());
            let next = leads_once(&new, "jobs", &detector).await;
            assert!(next > last, "{mode}: token {next} after {last}");
            assert!(leads_once(&new, "unseen", &unseen).await > last_unseen, "{mode}");
            for detector in [detector, unseen] {
                detector.acts_do_not_overlap().unwrap();
            }
        });
    }
}

#[test]
fn a_bid_from_before_a_promotion_is_lost_after_it() {
    for mode in MODES {
        let mut primary = Postgres::start();
        let standby = PostgresSetup::new().standby_of(&primary).start();
        runtime().block_on(async {
            let seat = SeatName::new("jobs").unwrap();
            let url = format!("postgres://postgres@{},{}/postgres{mode}", primary.address(), standby.address());
            let (slow, quick) = (seats_at(&url), seats_at(&url));
            for store in [&slow, &quick] {
                let reading = store.read(&seat).await.unwrap();
                assert!(reading.seat.is_none() && reading.floor == Token::ZERO);
            }
            stops_receiving(&standby, "none", Token::ZERO).await;
            assert!(matches!(quick.swap(&seat, None, &held(1, 1)).await, Ok(Swap::Done { .. })));
            primary.kill();
            standby.sql("SELECT pg_promote()");
            // The first call finds the old connection broken.
            let bid = within("that the bid is answered", async {
                loop {
                    if let Ok(swap) = slow.swap(&seat, None, &held(1, 2)).await {
                        return swap;
                    }
                }
            });
            assert_eq!(bid.await, Swap::Lost, "{mode}: one token was given out twice");
            let floor = slow.read(&seat).await.unwrap().floor;
            assert!(floor > Token::new(1), "{floor}");
            let above = held(floor.get() + 1, 2);
            assert!(matches!(slow.swap(&seat, None, &above).await, Ok(Swap::Done { .. })));
        });
    }
}

/// A candidate leads, works at the detector and leaves.
async fn leads_once(url: &str, seat: &str, detector: &OverlapDetector) -> Token {
    let sittings = detector.work_spans();
    let candidate = stand(url, seat, detector);
    let token = candidate.elected().await;
    until("it works", || detector.work_spans() > sittings).await;
    candidate.election.stop();
    within("it has left", candidate.election.stopped()).await;
    token
}

/// Waits until a standby has this token, and cuts it off from its primary.
async fn stops_receiving(standby: &Postgres, seat: &str, token: Token) {
    let sql = format!("SELECT coalesce(max(token), 0) FROM tenure.seats WHERE name = '{seat}'");
    until("the standby has it", || standby.try_sql(&sql) == Ok(token.to_string())).await;
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    until("it receives nothing", || standby.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0").await;
}

/// Waits until whoever follows has read the seat, and watches it.
async fn has_seen_who_leads(candidates: &[TestCandidate]) {
    let follower = candidates.iter().find(|one| !one.election.is_leader()).expect("one follows");
    within("it watches", follower.counter.wait_for(|counts| counts.looks > 0)).await;
}
