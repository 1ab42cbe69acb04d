//! `mode=session`: the return codes of the lock procedures, sessions that end, and leaders that are paused.

mod common;
mod peer;

use std::time::{Duration, Instant};

use common::{LEASE, acted_above, bid, described, held, runtime, seat, seats_at, stand, within};
use peer::tokens::{Answer, row};
use peer::{Peer, Scripted};
use tenure_core::{EndReason, Fault, Life, Record, SeatStore, SingleSeat, Swap};
use tenure_testkit::OverlapDetector;

fn url(peer: &Peer) -> String {
    format!("{}&mode=session", peer.url())
}

#[test]
fn every_return_code_of_sp_getapplock_is_handled_when_a_session_is_opened() {
    let peer = Peer::start();
    runtime().block_on(async {
        for (code, fault, message) in [
            (-1, Fault::Refused, "another session has the same random number"),
            (-2, Fault::Refused, "another session has the same random number"),
            (-3, Fault::Refused, "another session has the same random number"),
            (-999, Fault::Denied, "sp_getapplock rejects its parameters (-999)"),
            (7, Fault::Unknown, "sp_getapplock returned 7, which its documentation lacks"),
            (-7, Fault::Unknown, "sp_getapplock returned -7, which its documentation lacks"),
        ] {
            peer.script("open session", Scripted::Answer(Answer::row(row![code])));
            let error = seats_at(&url(&peer)).read(&seat("x")).await.unwrap_err();
            assert!(described(&error, fault).contains(message), "{error}");
        }
        let store = seats_at(&url(&peer));
        assert!(matches!(bid(&store, &seat("x")).await, Ok(Swap::Done { .. })));
        drop(store);
        is_quiet(&peer).await;
    });
}

/// The codes of a follower's wait: for the bell, for the end of the session, of the release; and whether the session is
/// over. Each is answered to the follower once. Whatever it is, the next leader is found.
#[test]
fn every_return_code_of_the_lock_procedures_is_handled_while_a_follower_waits() {
    let codes = [
        row![0, -1, 0, 0],
        row![0, 0, 0, 0],
        row![1, None::<i64>, 0, 0],
        row![1, None::<i64>, 0, 1],
        row![-1, None::<i64>, 0, 0],
        row![-2, None::<i64>, 0, 0],
        row![-3, None::<i64>, 0, 0],
        row![-999, None::<i64>, 0, 0],
        row![42, None::<i64>, 0, 0],
        row![1, None::<i64>, -999, 0],
        row![1, None::<i64>, 42, 0],
        row![0, -999, 0, 0],
        row![0, 42, 0, 0],
    ];
    let waits = codes.len();
    let peer = Peer::start();
    for code in codes {
        peer.script("wait", Scripted::Answer(Answer::row(code)));
    }
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let leader = stand(LEASE, &url(&peer), "jobs", &detector);
        let first = leader.elected().await;
        let _follower = stand(LEASE, &url(&peer), "jobs", &detector);
        within("every code was received", async {
            while peer.state().received.iter().filter(|name| *name == "wait").count() <= waits {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert_eq!(leader.election.term().map(|term| term.token()), Some(first), "a code has cost the term");
        leader.election.stop();
        acted_above(&detector, first).await;
        detector.acts_do_not_overlap().unwrap();
    });
}

#[test]
fn a_lock_that_was_not_released_closes_the_connection_of_the_follower() {
    let peer = Peer::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let leader = stand(LEASE, &url(&peer), "jobs", &detector);
        leader.elected().await;
        peer.script("wait", Scripted::Answer(Answer::row(row![1, None::<i64>, -999, 0])));
        let _follower = stand(LEASE, &url(&peer), "jobs", &detector);
        within("the follower waits on another connection", async {
            while peer.state().received.iter().filter(|name| *name == "settings").count() < 4 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    });
}

#[test]
fn a_killed_session_ends_the_term_at_once_and_its_seat_is_taken() {
    let peer = Peer::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let lease = LEASE * 6;
        let mut leader = stand(lease, &url(&peer), "jobs", &detector);
        let first = leader.elected().await;
        let _other = stand(lease, &url(&peer), "jobs", &detector);
        tokio::time::sleep(LEASE / 2).await;
        let ended = Instant::now();
        kill_holder(&peer, "jobs");
        assert_eq!(leader.loses().await.1, EndReason::SessionOver);
        assert!(ended.elapsed() < lease / 3, "the end of the session was reported only after {:?}", ended.elapsed());
        acted_above(&detector, first).await;
    });
}

#[test]
fn a_released_seat_is_taken_at_once() {
    let peer = Peer::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        // Polling alone would take up to 10 s.
        let lease = Duration::from_secs(30);
        let mut leader = stand(lease, &url(&peer), "jobs", &detector);
        let mut last = leader.elected().await;
        for _ in 0..3 {
            let waits = || peer.state().received.iter().filter(|name| *name == "wait").count();
            let before = waits();
            let follower = stand(lease, &url(&peer), "jobs", &detector);
            within("the follower waits", async {
                while waits() == before {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
            let began = Instant::now();
            leader.election.stop();
            last = acted_above(&detector, last).await;
            println!("the seat was taken after {:?}", began.elapsed());
            assert!(began.elapsed() < lease / 10, "the release was noticed only after {:?}", began.elapsed());
            leader = follower;
        }
        detector.acts_do_not_overlap().unwrap();
    });
}

#[test]
fn the_session_of_a_paused_leader_is_ended_after_its_lease() {
    let peer = Peer::start();
    runtime().block_on(async {
        // As in a paused process, nothing is sent after the bid.
        let (paused, follower) = (seats_at(&url(&peer)), seats_at(&url(&peer)));
        let sent = Instant::now();
        assert!(matches!(bid_for(&paused, "x", LEASE).await, Swap::Done { .. }));
        within("the session is ended", is_over(&follower, "x")).await;
        assert!(sent.elapsed() >= LEASE, "the session was ended before its lease");
        assert!(peer.state().received.iter().any(|name| name == "kill"));
    });
}

#[test]
fn a_leader_that_renews_is_never_killed_however_long_its_session_was_idle_before() {
    let peer = Peer::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let _follower = stand(LEASE, &url(&peer), "idle", &detector);
        let leader = stand(LEASE, &url(&peer), "jobs", &detector);
        let first = leader.elected().await;
        let _other = stand(LEASE, &url(&peer), "jobs", &detector);
        tokio::time::sleep(LEASE * 3).await;
        assert_eq!(leader.election.term().map(|term| term.token()), Some(first));
        assert!(!peer.state().received.iter().any(|name| name == "kill"));
    });
}

#[test]
fn without_the_right_to_end_sessions_a_paused_leader_keeps_its_seat_and_a_warning_says_so() {
    let peer = Peer::start();
    peer.state().server.may_kill = false;
    let lines = tenure_testkit::Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (paused, follower) = (seats_at(&url(&peer)), seats_at(&url(&peer)));
            bid_for(&paused, "x", LEASE).await;
            let began = Instant::now();
            while began.elapsed() < LEASE * 3 {
                assert_eq!(follower.read(&seat("x")).await.unwrap().seat.unwrap().life, Life::Held);
                tokio::time::sleep(LEASE / 10).await;
            }
            // The process ends, and with it its connection.
            drop(paused);
            within("the seat is free", is_over(&follower, "x")).await;
        });
    });
    let logged = lines.with("WARN");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("grant this login ALTER ANY CONNECTION"), "{logged:?}");
}

#[test]
fn a_pool_that_shares_sessions_is_noticed() {
    let peer = Peer::start();
    runtime().block_on(async {
        let store = seats_at(&url(&peer));
        assert!(matches!(bid(&store, &seat("x")).await, Ok(Swap::Done { .. })));
        // As if the next batch ran on another session.
        let failure = peer::tokens::Failure::new(50_117, "the session has lost its lock");
        peer.script("write new on session", Scripted::Answer(Answer::failed(failure)));
        let error = bid(&store, &seat("y")).await.unwrap_err();
        let message = described(&error, Fault::Refused);
        assert!(
            message.contains("a pool or a proxy in between shares sessions") && message.contains("mode=lease"),
            "{message}"
        );
    });
}

#[test]
fn a_dropped_call_leaves_nothing_behind() {
    let peer = Peer::start();
    runtime().block_on(async {
        let (one, other) = (seats_at(&url(&peer)), seats_at(&url(&peer)));
        for round in 0..20_u64 {
            for store in [&one, &other] {
                let reading = store.read(&seat("x")).await.unwrap();
                let token =
                    reading.floor.get().max(reading.seat.as_ref().map_or(0, |seat| seat.record.token.get())) + 1;
                let (expected, record) = (reading.seat.map(|seat| seat.version), held(token, u128::from(round) + 1));
                let target = seat("x");
                let bid = store.swap(&target, expected.as_ref(), &record);
                let _ = tokio::time::timeout(Duration::from_micros(round * 100), bid).await;
            }
            // The store that won releases the seat.
            within("the seat is vacant", async {
                loop {
                    let Some(seen) = one.read(&seat("x")).await.unwrap().seat else { return };
                    if seen.record.is_vacant() {
                        return;
                    }
                    let vacant = Record { holder: None, nonce: rand::random(), ..seen.record.clone() };
                    for store in [&one, &other] {
                        let _ = store.swap(&seat("x"), Some(&seen.version), &vacant).await.unwrap();
                    }
                }
            })
            .await;
        }
        drop((one, other));
        is_quiet(&peer).await;
    });
}

#[cfg(unix)]
#[test]
fn a_lifeline_keeps_the_session_open_until_its_last_duplicate_is_closed() {
    let peer = Peer::start();
    runtime().block_on(async {
        let detector = OverlapDetector::new();
        let leader = stand(LEASE * 4, &url(&peer), "jobs", &detector);
        leader.elected().await;
        let lifeline = leader.election.lifeline().unwrap().expect("a session has a lifeline");
        let spid = holder(&peer, "jobs").expect("a session holds the seat");
        assert!(peer.state().connections() >= 1);
        // The server sees the same connection on the duplicate.
        drop(lifeline);
        assert_eq!(holder(&peer, "jobs"), Some(spid), "closing the duplicate closed the session");
    });
}

// -------------------------------------------------------------------------------------------------

async fn bid_for(store: &SingleSeat, name: &str, lease: Duration) -> Swap {
    let floor = store.read(&seat(name)).await.unwrap().floor;
    store.swap(&seat(name), None, &Record { lease, ..held(floor.get() + 1, 1) }).await.unwrap()
}

async fn is_over(store: &SingleSeat, name: &str) {
    while store.read(&seat(name)).await.unwrap().seat.unwrap().life != Life::Over {
        tokio::time::sleep(LEASE / 20).await;
    }
}

/// Waits until the peer has neither connections nor locks.
async fn is_quiet(peer: &Peer) {
    within("no connection and no lock is left", async {
        while peer.state().connections() > 0 || peer.state().held_locks() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Returns the number of the session that holds a seat.
fn holder(peer: &Peer, name: &str) -> Option<peer::locks::Spid> {
    let mut state = peer.state();
    let session = state.tables("tenure")?.seats.get(name.as_bytes())?.session?;
    state.holder_of(&format!("tenure:{session}"))
}

fn kill_holder(peer: &Peer, name: &str) {
    let spid = holder(peer, name).expect("a session holds the seat");
    peer.state().kill(spid);
}
