//! Elections over a server whose administrator, clock or role changes, in both modes. In each test a candidate leads
//! again, and no two leaders overlap.

mod common;
mod peer;

use common::{LEASE, MODES, acted_above, runtime, stand, within};
use peer::Peer;
use tenure_core::{EndReason, EventKind, Fault, Takeover, Token};
use tenure_sqlserver::SqlServerStore;
use tenure_testkit::candidate::store_error;
use tenure_testkit::{OverlapDetector, TestCandidate};

#[test]
fn revoked_rights_are_reported_and_end_the_term_in_time() {
    in_both_modes(|mode| {
        let peer = Peer::start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let mut leader = stand(LEASE, &format!("{}{mode}", peer.url()), "jobs", &detector);
            let first = leader.elected().await;
            peer.state().server.may_write = false;
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
            assert_eq!(error.fault(), Fault::Denied, "{error}");
            assert_eq!(leader.loses().await.1, EndReason::NotRenewed);
            peer.state().server.may_write = true;
            acted_above(&detector, first).await;
            detector.acts_do_not_overlap().unwrap();
        });
    });
}

#[test]
fn a_leader_whose_seat_is_removed_ends_with_seat_vanished() {
    in_both_modes(|mode| {
        for drops_the_tables in [false, true] {
            let peer = Peer::start();
            runtime().block_on(async {
                let detector = OverlapDetector::new();
                let mut leader = stand(LEASE * 2, &format!("{}{mode}", peer.url()), "jobs", &detector);
                let first = leader.elected().await;
                match drops_the_tables {
                    true => peer.state().drop_tables("tenure"),
                    false => peer.state().tables("tenure").unwrap().seats.clear(),
                }
                assert_eq!(leader.loses().await, (first, EndReason::SeatVanished), "{mode}");
                acted_above(&detector, first).await;
                detector.acts_do_not_overlap().unwrap();
            });
        }
    });
}

#[test]
fn a_step_of_the_servers_clock_makes_no_two_leaders_and_costs_no_term() {
    in_both_modes(|mode| {
        let peer = Peer::start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let url = format!("{}{mode}", peer.url());
            let candidates = [(); 2].map(|()| stand(LEASE * 2, &url, "jobs", &detector));
            let mut last = acted_above(&detector, Token::ZERO).await;
            for step in [300, 0, -300] {
                let leader = candidates.iter().position(|one| one.election.is_leader()).expect("one leads");
                peer.state().server.clock_ahead = step * 1_000_000;
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
fn a_primary_that_becomes_a_secondary_is_left_for_the_next_host_and_tokens_rise() {
    in_both_modes(|mode| {
        // The second server has none of the first one's data, like a replica that received nothing.
        let (first, second) = (Peer::start(), Peer::start());
        second.state().server.updateability = "READ_ONLY".to_owned();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let both = format!("{},{}", first.address(), second.address());
            let url = format!("{}{mode}", first.url()).replace(&first.address(), &both);
            let safely = |_| {
                let store = SqlServerStore::from_url(&url).unwrap();
                TestCandidate::stand_for(store, "jobs", &detector, |election| {
                    election.lease(LEASE).takeover(Takeover::Safe)
                })
            };
            let candidates = [(), ()].map(safely);
            let before = acted_above(&detector, Token::ZERO).await;
            // A candidate that has not read the first server would not know what it has to wait for.
            for candidate in &candidates {
                within("the candidate has read the seat", candidate.counter.wait_for(|counts| counts.looks > 0)).await;
            }
            first.state().server.updateability = "READ_ONLY".to_owned();
            second.state().server.updateability = "READ_WRITE".to_owned();
            acted_above(&detector, before).await;
            detector.acts_do_not_overlap().unwrap();
            assert!(second.state().tables("tenure").is_some_and(|tables| !tables.seats.is_empty()), "{mode}");
        });
    });
}

#[test]
fn a_thousand_elections_share_one_connection() {
    in_both_modes(|mode| {
        let peer = Peer::start();
        runtime().block_on(async {
            let store = SqlServerStore::from_url(&format!("{}{mode}", peer.url())).unwrap();
            let elections = tenure_core::Elections::new(store);
            let start = |number| elections.election(format!("jobs-{number}")).lease(LEASE * 20).start().unwrap();
            let all: Vec<_> = (0..1000).map(start).collect();
            for election in &all {
                within("every election is won", election.elected()).await.unwrap();
            }
            assert_eq!(peer.state().connections(), 1, "{mode}");
        });
    });
}

/// A row that another transaction has locked delays a call. The engine makes up to four calls to find its seat among 500, and
/// a call must answer within a fifteenth of the lease.
#[test]
fn four_waits_for_a_locked_row_fit_into_the_time_of_one_call() {
    in_both_modes(|mode| {
        let peer = Peer::start();
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            for lease in [LEASE, LEASE * 3] {
                let url = format!("{}{mode}", peer.url());
                let leader = stand(lease, &url, &format!("jobs-{}", lease.as_millis()), &detector);
                leader.elected().await;
                within("the leader renews", leader.counter.wait_for(|counts| counts.renewals > 0)).await;
                leader.election.stop();
                within("the seat is released", leader.election.stopped()).await;
                let batches = std::mem::take(&mut peer.state().batches);
                for (name, sql) in batches.iter().filter(|(_, sql)| sql.contains("@want") || sql.contains("@me")) {
                    if ["put notes", "list notes", "delete expired"].contains(&name.as_str()) {
                        continue;
                    }
                    let wait = sql.split_once("SET LOCK_TIMEOUT ").and_then(|(_, rest)| rest.split_once(';'));
                    let wait: u128 = wait.expect(name).0.parse().unwrap();
                    assert!(wait > 0 && wait * 4 <= (lease / 15).as_millis(), "{mode}: {name} waits for {wait} ms");
                }
                assert!(batches.len() >= 6, "{batches:?}");
            }
        });
    });
}

/// Runs a test in both modes at the same time, as tests mostly wait.
fn in_both_modes(test: impl Fn(&'static str) + Sync) {
    std::thread::scope(|scope| {
        for mode in MODES {
            scope.spawn(|| test(mode));
        }
    });
}
