//! Work in terms: work that returns, work that is spawned, and shutdown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{Elections, Ended, Error, EventKind, LifeKind, ManualClock, Term};

const LEASE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_returns_releases_the_seat_and_candidates_take_turns() {
    let memory = Memory::new();
    let (runs, at_work) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let mut standing = Vec::new();
    for id in ["one", "other"] {
        let election = Elections::new(memory.store())
            .election("jobs")
            .candidate(id)
            .lease(Duration::from_secs(1))
            .start()
            .unwrap();
        let (runs, at_work, handle) = (runs.clone(), at_work.clone(), election.clone());
        let work = tokio::spawn(async move {
            handle
                .run_then_release(async |term: Term| {
                    assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "two candidates work at once");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    runs.lock().unwrap().push((id, term.token()));
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    // An error releases the seat as well.
                    Err("on purpose")
                })
                .await
        });
        standing.push((election, work));
    }
    in_time(async {
        while runs.lock().unwrap().len() < 8 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for (election, work) in standing {
        election.stop();
        assert_eq!(in_time(work).await.unwrap(), Ended::Stopped);
    }
    let runs = runs.lock().unwrap();
    assert!(runs.windows(2).all(|pair| pair[0].1 < pair[1].1), "{runs:?}");
    for id in ["one", "other"] {
        assert!(runs.iter().filter(|(who, _)| *who == id).count() >= 2, "{id} had no turn: {runs:?}");
    }
}

#[test]
fn a_single_candidate_runs_its_job_again_after_a_pause() {
    let clock = ManualClock::new();
    let elections = Elections::with_clock(Memory::of_kind(LifeKind::Clock, clock.clone()).store(), clock.clone());
    let election = elections.election("jobs").start().unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let worker = std::thread::spawn({
        let (election, runs) = (election.clone(), runs.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(election.run_then_release(async |_| _ = runs.fetch_add(1, Ordering::SeqCst)))
        }
    });
    // The clock does not wait for the worker's thread, so the test moves it until each run has happened.
    let until = std::time::Instant::now() + PATIENCE;
    let mut waited = Duration::ZERO;
    while runs.load(Ordering::SeqCst) < 3 {
        assert!(std::time::Instant::now() < until, "{runs:?} runs in {waited:?} of the clock");
        clock.advance(LEASE / 15);
        waited += LEASE / 15;
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(waited >= LEASE * 2 / 5 * 2, "it ran {runs:?} times within {waited:?}");
    election.stop();
    while !worker.is_finished() {
        clock.advance(LEASE / 15);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(worker.join().unwrap(), Ended::Stopped);
}

#[tokio::test]
async fn work_that_panics_is_an_error_and_runs_again() {
    let runs = AtomicUsize::new(0);
    let election = Elections::new(MemoryStore::new()).election("jobs").lease(Duration::from_secs(1)).start().unwrap();
    let panics_twice = async |_| {
        match runs.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => std::panic::resume_unwind(Box::new("an intended panic of the work")),
            2 => {}
            run => panic!("the work ran again after it had succeeded, {run} times in all"),
        }
        election.stop();
    };
    assert_eq!(in_time(election.run_once_per_term(panics_twice)).await, Ended::Stopped);
    assert_eq!(runs.swap(0, Ordering::SeqCst), 3);

    let election = Elections::new(MemoryStore::new()).election("jobs").lease(Duration::from_secs(1)).start().unwrap();
    let tokens = Mutex::new(Vec::new());
    let panics_once = async |term: Term| {
        tokens.lock().unwrap().push(term.token());
        if runs.fetch_add(1, Ordering::SeqCst) == 0 {
            std::panic::resume_unwind(Box::new("an intended panic of the work"));
        }
        election.stop();
    };
    assert_eq!(in_time(election.run_then_release(panics_once)).await, Ended::Stopped);
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "the seat was not released after the panic: {tokens:?}");
}

/// Checks that these forms compile: work that borrows or owns, and returns nothing, a result or never, each spawned on
/// a runtime with several threads.
#[tokio::test]
async fn work_of_every_form_can_be_spawned() {
    async fn step(_state: &str) -> Result<(), std::io::Error> {
        tokio::task::yield_now().await;
        Ok(())
    }
    let state = Arc::new("state".to_owned());
    let elections = Elections::new(MemoryStore::new());
    let election = elections.election("jobs").start().unwrap();
    let (e, s) = (election.clone(), state.clone());
    let borrows = tokio::spawn(async move { e.run_once_per_term(async |_| step(&s).await).await });
    let (e, s) = (election.clone(), state.clone());
    let owns = tokio::spawn(async move { e.run_once_per_term(async move |_| step(&s).await).await });
    let (e, s) = (election.clone(), state.clone());
    let never_returns = tokio::spawn(async move {
        e.run_once_per_term(async |_| {
            loop {
                let _ = step(&s).await;
            }
        })
        .await
    });
    let (e, s) = (election.clone(), state.clone());
    let classic = tokio::spawn(async move {
        let work = |term: Term| {
            let s = s.clone();
            async move {
                let _ = step(&s).await;
                term.ending().await;
            }
        };
        e.run_once_per_term(work).await
    });
    let (e, mut count) = (election.clone(), 0);
    let mutates = tokio::spawn(async move { e.run_while_leader(async |_| count += 1).await });
    in_time(mutates).await.unwrap().unwrap();
    // One `?` for the term, one for the work.
    let parsed: Result<u32, Box<dyn std::error::Error>> =
        async { Ok(election.run_if_leader(async |_| "17".parse::<u32>()).await??) }.await;
    assert_eq!(parsed.unwrap(), 17);
    election.stop();
    for work in [borrows, owns, never_returns, classic] {
        assert_eq!(in_time(work).await.unwrap(), Ended::Stopped);
    }
    assert_eq!(election.run_if_leader(async |_| ()).await, Err(Ended::NotLeading));
    assert_eq!(election.run_if_leader_blocking(|_| ()), Err(Ended::NotLeading));
}

#[tokio::test]
async fn a_shutdown_waits_until_all_elections_have_stopped_but_not_forever() {
    let elections = Elections::new(MemoryStore::new());
    elections.shutdown(PATIENCE).await.expect("nothing has run");
    let a = elections.election("a").start().unwrap();
    let _b = elections.election("b").start().unwrap();
    assert_eq!(elections.running().iter().map(|election| election.name()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(elections.find("a").unwrap().candidate(), a.candidate());
    assert!(elections.find("c").is_none());
    in_time(a.elected()).await.unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (entered, has_entered) = tokio::sync::oneshot::channel();
    let blocked = tokio::task::spawn_blocking({
        let a = a.clone();
        move || {
            a.run_if_leader_blocking(|_| {
                entered.send(()).unwrap();
                let _ = released.recv();
            })
        }
    });
    in_time(has_entered).await.unwrap();
    let late = elections.shutdown(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(&late, Error::StillRunning { election, .. } if election == "a"), "{late}");
    drop(release);
    elections.shutdown(PATIENCE).await.unwrap();
    let _ = in_time(blocked).await.unwrap();
    assert_eq!(a.shutdown(PATIENCE).await.unwrap(), Ended::Stopped);
    assert!(elections.running().is_empty());
    assert!(elections.health().is_healthy());
}

#[test]
fn a_lost_bid_is_an_event() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let lost = Arc::new(AtomicUsize::new(0));
    let mut standing = Vec::new();
    for _ in 0..8 {
        let (elections, lost) = (Elections::with_clock(memory.store(), clock.clone()), lost.clone());
        let heard = move |event: tenure_core::Event| {
            lost.fetch_add(usize::from(matches!(event.kind, EventKind::LostBid)), Ordering::SeqCst);
        };
        standing.push(elections.election("jobs").on_event(heard).start().unwrap());
    }
    // All of them wait for one lease to expire, and bid at the same moment.
    for _ in 0..50 {
        clock.advance(LEASE);
        if lost.load(Ordering::SeqCst) > 0 {
            return;
        }
        memory.expire("jobs");
        clock.settle();
    }
    panic!("no bid of {} candidates was ever lost", standing.len());
}

#[test]
fn work_of_a_term_runs_in_that_term_or_not_at_all_and_its_leader_is_known() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let election = elections.election("jobs").manual().start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let term = runtime.block_on(election.try_acquire()).unwrap().expect("the seat is free");
    assert_eq!(
        election.leader().map(|leader| (leader.candidate, leader.token)),
        Some((term.candidate().clone(), term.token()))
    );
    assert_eq!(runtime.block_on(term.run(async |term| term.token())), Ok(term.token()));
    memory.usurp("jobs");
    clock.settle();
    let ended = runtime.block_on(term.run(async |_| panic!("the term is over")));
    assert!(matches!(ended, Err(Ended::TermEnded { token, .. }) if token == term.token()), "{ended:?}");
}
