//! Faults of a server beyond the laws about faults: it crashes before its disk has all writes, loses its tables,
//! has its clock set, or a standby replaces it. By the timestamps of the work, no two leaders overlap.

mod common;

use common::{
    LEASE, MODES, TestCandidate, acted_above, held, runtime, seats_at, stand, stand_for, stand_safely, token_of, within,
};
use tenure_core::{SeatName, SeatStore, Swap, Token};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::until;
use tenure_testkit::servers::{Postgres, PostgresSetup};

#[test]
fn answered_writes_survive_a_crash_even_with_synchronous_commit_off() {
    for mode in MODES {
        // The last two settings keep committed writes in the server's memory for longer.
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
            let (record, kept) = after(url.clone()).await.expect("an answered bid survives");
            assert_eq!((record.token, &kept), (Token::new(1), &version), "{mode}");
            // In mode=session a renewal writes nothing.
            if mode == MODES[0] {
                let store = seats_at(&url);
                let renewed = store.renew(&seat, &version, &held(1, 1)).await.unwrap();
                let Swap::Done { version, .. } = renewed else { panic!("lost") };
                server.kill();
                server.restart();
                assert_eq!(after(url).await.expect("the seat survives").1, version, "an answered renewal was lost");
            }
        });
    }
}

#[test]
fn tables_dropped_during_a_term_are_created_again_and_tokens_rise() {
    for mode in MODES {
        let server = Postgres::start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("{}{mode}", server.url());
            let candidates = [stand(&url, "jobs", &detector), stand(&url, "jobs", &detector)];
            let first = acted_above(&detector, Token::ZERO).await;
            follower_has_read_the_seat(&candidates).await;
            server.sql("DROP SCHEMA tenure CASCADE");
            acted_above(&detector, first).await;
            detector.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn a_step_of_the_servers_clock_makes_no_two_leaders_and_costs_no_term() {
    for mode in MODES {
        let server = PostgresSetup::new().clock_by_hand().start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("{}{mode}", server.url());
            let mut candidates = [(); 2].map(|()| stand_for(LEASE * 2, &url, "jobs", &detector));
            let mut last = acted_above(&detector, Token::ZERO).await;
            for step in [300, 0, -300] {
                let leader = candidates.iter().position(|one| one.election.is_leader()).expect("one leads");
                server.step_clock(step);
                let now: i64 = server.sql("SELECT extract(epoch FROM clock_timestamp())::int8").parse().unwrap();
                let true_now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
                assert!((now - true_now as i64 - i64::from(step)).abs() < 30, "the server's clock was not moved");
                tokio::time::sleep(LEASE * 2).await;
                if !candidates[leader].election.is_leader() {
                    panic!("{mode}: a step of {step} s ended a term: {:?}", candidates[leader].past_events().await);
                }
                // The follower takes over with the clock as it is now.
                candidates[leader].election.step_down();
                last = acted_above(&detector, last).await;
                tokio::time::sleep(LEASE).await;
            }
            detector.acts_do_not_overlap().unwrap();
        });
    }
}

#[test]
fn the_next_leader_after_a_promotion_has_a_higher_token() {
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
fn tokens_rise_across_the_promotion_of_a_standby_that_lacks_the_last_terms() {
    // Set `TENURE_TEST_LOSSES=200` for more rounds.
    let rounds = std::env::var("TENURE_TEST_LOSSES").map_or(1, |rounds| rounds.parse().unwrap());
    for mode in MODES.into_iter().cycle().take(MODES.len() * rounds) {
        let mut primary = Postgres::start();
        let standby = PostgresSetup::new().standby_of(&primary).start();
        runtime().block_on(async {
            // The detector acts as the fenced resource: it rejects a term whose token is not above the last one.
            let detector = OverlapDetector::new();
            let old = format!("{}{mode}", primary.url());
            lead_once(&old, "jobs", &detector).await;
            disconnect(&standby, "jobs", token_of(&primary, "jobs")).await;
            lead_once(&old, "jobs", &detector).await;
            let last = lead_once(&old, "jobs", &detector).await;
            assert!(last < Token::new(1 << 32), "{mode}: tokens are large before any promotion");
            let unseen = OverlapDetector::new();
            let last_unseen = lead_once(&old, "unseen", &unseen).await;

            primary.kill();
            standby.sql("SELECT pg_promote()");
            // These candidates have not seen the lost terms. The standby has an old row of one seat, and none of
            // the other.
            let new = format!("{}{mode}", standby.url());
            let next = lead_once(&new, "jobs", &detector).await;
            assert!(next > last, "{mode}: token {next} after {last}");
            assert!(lead_once(&new, "unseen", &unseen).await > last_unseen, "{mode}");
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
            disconnect(&standby, "none", Token::ZERO).await;
            assert!(matches!(quick.swap(&seat, None, &held(1, 1)).await, Ok(Swap::Done { .. })));
            primary.kill();
            standby.sql("SELECT pg_promote()");
            // The first call finds the old connection broken.
            let bid = within("the bid is answered", async {
                loop {
                    if let Ok(swap) = slow.swap(&seat, None, &held(1, 2)).await {
                        return swap;
                    }
                }
            });
            assert_eq!(bid.await, Swap::Lost, "{mode}: a token was issued twice");
            let floor = slow.read(&seat).await.unwrap().floor;
            assert!(floor > Token::new(1), "{floor}");
            let above = held(floor.get() + 1, 2);
            assert!(matches!(slow.swap(&seat, None, &above).await, Ok(Swap::Done { .. })));
        });
    }
}

/// Starts a candidate that leads, works under the detector and stops. Returns its token.
async fn lead_once(url: &str, seat: &str, detector: &OverlapDetector) -> Token {
    let before = detector.work_spans();
    let candidate = stand(url, seat, detector);
    let token = candidate.elected().await;
    until("the leader works", || detector.work_spans() > before).await;
    candidate.election.stop();
    within("the election stops", candidate.election.stopped()).await;
    token
}

/// Waits until a standby has this token, and disconnects it from its primary.
async fn disconnect(standby: &Postgres, seat: &str, token: Token) {
    let sql = format!("SELECT coalesce(max(token), 0) FROM tenure.seats WHERE name = '{seat}'");
    until("the standby has the token", || standby.try_sql(&sql) == Ok(token.to_string())).await;
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    until("the standby is disconnected", || standby.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0").await;
}

/// Waits until the follower has read the seat.
async fn follower_has_read_the_seat(candidates: &[TestCandidate]) {
    let follower = candidates.iter().find(|one| !one.election.is_leader()).expect("one follows");
    within("the follower has read the seat", follower.counter.wait_for(|counts| counts.looks > 0)).await;
}
