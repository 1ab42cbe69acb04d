//! Runs the examples, each with two or three candidates. Two candidates never work at once, even if the leader stops,
//! steps down or loses its seat.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "examples are programs, and only parts of them are used here"
)]

#[path = "../../examples/batch_worker.rs"]
mod batch_worker;
mod floor;
#[path = "../../examples/handlers.rs"]
mod handlers;
#[path = "../../examples/health.rs"]
mod health;
#[path = "../../examples/hosted_service.rs"]
mod hosted_service;
#[path = "../../examples/keyed.rs"]
mod keyed;
#[path = "../../examples/lifecycle.rs"]
mod lifecycle;
#[path = "../../examples/manual.rs"]
mod manual;
#[path = "../../examples/outbox.rs"]
mod outbox;
#[path = "../../examples/run_if_leader.rs"]
mod run_if_leader;
#[path = "../../examples/settings.rs"]
mod settings;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use floor::{Floor, wrap_up};
use tenure::testing::Stage;
use tenure::{Builder, CancellationToken, Election, EndReason, Ended, Term, Token};

const LEASE: Duration = Duration::from_secs(15);

/// Returns candidates `0`, `1` and so on of one election. For the store, each is a separate process.
fn candidates<const N: usize>(stage: &Stage, election: &str) -> [Builder; N] {
    std::array::from_fn(|number| stage.elections().election(election).candidate(number.to_string()))
}

/// The same, with their numbers.
fn numbered<const N: usize>(stage: &Stage, election: &str) -> [(usize, Builder); N] {
    let mut number = 0..;
    candidates(stage, election).map(|candidate| (number.next().unwrap_or_default(), candidate))
}

fn stops<const N: usize>() -> [CancellationToken; N] {
    std::array::from_fn(|_| CancellationToken::new())
}

/// Runs a future to its end, on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Runs an instance of a program on a separate thread.
fn instance<T: Send + 'static, F: Future<Output = T>>(program: impl FnOnce() -> F + Send + 'static) -> JoinHandle<T> {
    thread::spawn(|| block_on(program()))
}

/// Waits for an instance to end. A stopped instance can wait for a pause on a clock that stands still, so the clock is
/// moved if the end takes long.
fn joined<T>(stage: &Stage, instance: JoinHandle<T>) -> T {
    let mut waited = 0;
    while !instance.is_finished() {
        thread::sleep(Duration::from_millis(10));
        waited += 1;
        if waited % 100 == 0 {
            stage.advance(LEASE / 15);
        }
    }
    instance.join().unwrap()
}

/// Waits until an election has ended in this process, because it was stopped.
fn stopped(stage: &Stage, election: &Election) {
    let election = election.clone();
    assert_eq!(joined(stage, instance(async move || election.stopped().await)), Ended::Stopped);
}

/// The place in the array of a candidate from `candidates`.
fn number(who: &str) -> usize {
    who.parse().unwrap()
}

#[test]
fn only_the_leader_runs_the_task_and_another_instance_takes_over_when_it_stops() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let stopping = stops::<3>();
    let services: Vec<_> = candidates::<3>(&stage, "reports")
        .into_iter()
        .zip(stopping.clone())
        .map(|(candidate, stop)| {
            let floor = floor.clone();
            instance(move || {
                run_if_leader::service(candidate, stop, async move |term: Term| {
                    let here = floor.enter(&term);
                    wrap_up().await;
                    here.finish();
                })
            })
        })
        .collect();

    // Twice by the same leader, before it stops in the middle of its task.
    let (first, token) = floor.wait("a task runs the second time", |visits| {
        let last = visits.last().filter(|visit| visits.len() == 2 && !visit.left)?;
        Some((last.who.clone(), last.token))
    });
    stopping[number(&first)].cancel();
    let (second, token) = floor.next(token);
    assert_ne!(second, first);

    stage.usurp("reports");
    floor.left(token);
    stage.advance(LEASE);
    let (third, _) = floor.next(token);
    assert_ne!(third, first, "it has stopped");

    stopping.iter().for_each(CancellationToken::cancel);
    services.into_iter().for_each(|service| joined(&stage, service).unwrap());
    let worked = floor.check();
    assert_eq!(worked[..3], [first.clone(), first, second]);
}

#[test]
fn a_hosted_service_works_while_it_leads_and_wraps_up_before_it_is_stopped() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let services = candidates::<3>(&stage, "worker").map(|candidate| {
        let floor = floor.clone();
        hosted_service::start(candidate, async move |term| floor.work(term).await).unwrap()
    });
    let stop = |service: &Election| {
        let service = service.clone();
        joined(&stage, instance(async move || hosted_service::stop(&service).await)).unwrap();
    };

    let (first, token) = floor.next(Token::ZERO);
    stop(&services[number(&first)]);
    assert!(floor.left(token), "it was cut short");

    let (second, token) = floor.next(token);
    assert_ne!(second, first);
    services[number(&second)].step_down();
    assert!(floor.left(token), "it was cut short");

    let (third, token) = floor.next(token);
    assert!(third != first && third != second);
    stage.usurp("worker");
    assert!(!floor.left(token), "its seat was taken: it has no time to wrap up");
    stage.advance(LEASE);
    floor.next(token);

    services.iter().for_each(stop);
    floor.check();
}

#[test]
fn batches_run_in_turns_and_one_that_was_cut_short_runs_again() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let (stopping, hang) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
    let (hangs, hanging) = channel();
    let workers: Vec<_> = candidates::<3>(&stage, "batches")
        .into_iter()
        .map(|candidate| {
            let (floor, stopping, hang, hangs) = (floor.clone(), stopping.clone(), hang.clone(), hangs.clone());
            instance(move || {
                batch_worker::worker(candidate, stopping, async move |term: Term| {
                    let here = floor.enter(&term);
                    wrap_up().await;
                    while hang.load(Ordering::Relaxed) {
                        let _ = hangs.send(term.token());
                        wrap_up().await;
                    }
                    here.finish();
                })
            })
        })
        .collect();

    floor.wait("nine batches are done", |visits| {
        (visits.iter().filter(|visit| visit.finished).count() >= 9).then_some(())
    });
    let worked = floor.check();
    assert!(worked.windows(2).all(|pair| pair[0] != pair[1]), "one ran two batches in a row: {worked:?}");

    hang.store(true, Ordering::Relaxed);
    let hanging = hanging.recv_timeout(Duration::from_secs(60)).expect("a batch hangs");
    stage.usurp("batches");
    assert!(!floor.left(hanging), "it was dropped");
    hang.store(false, Ordering::Relaxed);
    stage.advance(LEASE);
    let (_, token) = floor.next(hanging);
    assert!(floor.left(token));

    stopping.cancel();
    for worker in workers {
        assert_eq!(joined(&stage, worker).unwrap(), Ended::Stopped);
    }
    floor.check();
}

#[test]
fn handlers_hear_of_every_start_every_stop_and_every_new_leader() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let stopping = stops::<2>();
    let leaders = Arc::new(Mutex::new(Vec::new()));
    let ends = Arc::new(Mutex::new(Vec::new()));
    let elections = numbered::<2>(&stage, "controller").map(|(me, candidate)| {
        let (floor, leaders, ends) = (floor.clone(), leaders.clone(), ends.clone());
        let heard = candidate
            .on_stopped_leading(move |token, why| ends.lock().unwrap().push((token, why)))
            .on_new_leader(move |leader| {
                leaders.lock().unwrap().push((me, leader.map(|leader| leader.candidate.id.to_string())));
            });
        handlers::stand(heard, &stopping[me], async move |term| floor.work(term).await).unwrap()
    });

    let (first, one) = floor.next(Token::ZERO);
    stage.settle();
    stage.usurp("controller");
    assert!(!floor.left(one));
    stage.advance(LEASE);
    let (leader, two) = floor.next(one);
    // Cancelled while it leads: the seat is released, and the other candidate leads without delay.
    stopping[number(&leader)].cancel();
    let (other, three) = floor.next(two);
    assert_ne!(other, leader);
    assert!(floor.left(two), "the seat was released before the work had returned");
    stopping.iter().for_each(CancellationToken::cancel);
    elections.iter().for_each(|election| stopped(&stage, election));

    floor.check();
    let ends = ends.lock().unwrap();
    assert_eq!(*ends, [(one, EndReason::SeatLost), (two, EndReason::Stopped), (three, EndReason::Stopped)]);
    for me in [0, 1] {
        let leaders = leaders.lock().unwrap();
        let heard: Vec<_> =
            leaders.iter().filter(|(who, _)| *who == me).filter_map(|(_, leader)| leader.as_deref()).collect();
        assert!(heard.starts_with(&[first.as_str(), "usurper"]), "{me} heard of {heard:?}");
        assert!(me == number(&leader) || heard.ends_with(&[other.as_str()]), "{me} heard of {heard:?}");
    }
}

#[test]
fn messages_are_published_in_order_and_none_is_lost_when_the_leader_changes() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let outbox = Arc::new(outbox::Outbox { pending: Mutex::new((1..=5).collect()), ..outbox::Outbox::default() });
    let elections = candidates::<3>(&stage, "outbox").map(|candidate| candidate.start().unwrap());
    let writing = Arc::new(AtomicBool::new(true));
    // Each is locked while its publisher is polled.
    let polls: [Arc<Mutex<()>>; 3] = Default::default();
    let publishers = [0, 1, 2].map(|me| {
        let (election, poll) = (elections[me].clone(), polls[me].clone());
        let (outbox, floor, writing) = (outbox.clone(), floor.clone(), writing.clone());
        instance(async move || {
            let publisher = outbox::publisher(election, outbox.clone(), async move |term: &Term, message| {
                let here = floor.enter(term);
                tokio::time::sleep(Duration::from_millis(5)).await;
                // Another message for each that was published.
                let mut pending = outbox.pending.lock().unwrap();
                if writing.load(Ordering::Relaxed) && !pending.contains(&(message + 5)) {
                    pending.push_back(message + 5);
                }
                drop(pending);
                here.finish();
            });
            let mut publisher = std::pin::pin!(publisher);
            std::future::poll_fn(|context| {
                let _polled = poll.lock().unwrap();
                publisher.as_mut().poll(context)
            })
            .await
        })
    });

    let (first, token) = floor.next(Token::ZERO);
    elections[number(&first)].step_down();
    let (second, token) = floor.next(token);
    stage.usurp("outbox");
    floor.wait("the seat is lost", |_| (!elections[number(&second)].is_leader()).then_some(()));
    // A poll that began before the loss can still start to publish a message. The next poll drops the work.
    drop(polls[number(&second)].lock().unwrap());
    floor.wait("the work has left", |visits| visits.iter().all(|visit| visit.left).then_some(()));
    stage.advance(LEASE);
    floor.next(token);
    writing.store(false, Ordering::Relaxed);
    floor.wait("all messages are published", |_| outbox.pending.lock().unwrap().is_empty().then_some(()));
    elections.iter().for_each(Election::stop);
    publishers.into_iter().for_each(|publisher| assert_eq!(joined(&stage, publisher), Ended::Stopped));

    let published = outbox.published.lock().unwrap().clone();
    assert!(published.iter().map(|(message, _)| *message).eq(1..=published.len() as u32), "{published:?}");
    assert!(published.is_sorted_by_key(|(_, token)| *token), "{published:?}");
    assert!(outbox.mark_published(1, Token::ZERO).is_err(), "a leader that was replaced is refused");
    assert!(floor.check().contains(&second));
}

#[test]
fn each_election_has_a_leader_of_its_own() {
    let stage = Stage::new();
    let floors: BTreeMap<_, _> = keyed::JOBS.map(|job| (job, Floor::default())).into();
    let job = {
        let floors = floors.clone();
        async move |term: Term| floors[term.election()].work(term).await
    };
    let instances = ["0", "1"].map(|id| {
        let elections = stage.elections();
        keyed::start(&elections, id, job.clone()).unwrap();
        stage.settle();
        elections
    });

    let led: Vec<_> = floors.values().map(|floor| floor.next(Token::ZERO)).collect();
    assert!(led.iter().all(|(who, _)| who == "0"), "the first to come leads all: {led:?}");

    instances[0].find("cleanup").unwrap().step_down();
    assert_eq!(floors["cleanup"].next(led[0].1).0, "1");
    assert!(instances[0].find("outbox").unwrap().is_leader(), "only one of them has moved");

    let (_, token) = floors["projections"].next(Token::ZERO);
    stage.usurp("projections");
    floors["projections"].left(token);
    stage.advance(LEASE);
    floors["projections"].next(token);

    instances[0].stop();
    instances[0].running().iter().for_each(|election| stopped(&stage, election));
    for (job, floor) in &floors {
        let moved = instances[1].find(job).unwrap();
        joined(&stage, instance(async move || moved.elected().await)).unwrap();
        floor.check();
    }
    instances[1].stop();
    instances[1].running().iter().for_each(|election| stopped(&stage, election));
    for floor in floors.values() {
        floor.check();
    }
}

#[test]
fn an_unwell_leader_hands_over_and_stands_again_once_it_is_well() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let queues: [Arc<AtomicU32>; 2] = Default::default();
    let elections = numbered::<2>(&stage, "critical").map(|(me, candidate)| {
        let (floor, queue) = (floor.clone(), queues[me].clone());
        let works = candidate.on_started_leading(async move |term| floor.work(term).await);
        health::stand(works, "east", queue).unwrap()
    });

    let (unwell, token) = floor.next(Token::ZERO);
    queues[number(&unwell)].store(70, Ordering::Relaxed);
    stage.advance(LEASE / 3);
    let (well, token) = floor.next(token);
    assert_ne!(well, unwell);

    // It does not stand while it is unhealthy, although there is no leader.
    stage.advance(LEASE);
    let roster = block_on(elections[number(&well)].candidates()).unwrap();
    let status = roster.iter().find(|status| *status.candidate.id == *unwell).unwrap();
    assert!((status.score - 0.3).abs() < 1e-9 && !status.healthy && !status.is_leader, "{status:?}");
    assert_eq!((status.metadata["queue"].as_str(), status.metadata["region"].as_str()), ("70", "east"));
    elections[number(&well)].stop();
    assert!(floor.left(token));
    stage.advance(2 * LEASE);
    assert!(!elections[number(&unwell)].is_leader());

    queues[number(&unwell)].store(0, Ordering::Relaxed);
    stage.advance(2 * LEASE);
    assert_eq!(floor.next(token).0, unwell);
    elections.iter().for_each(Election::stop);
    elections.iter().for_each(|election| stopped(&stage, election));
    floor.check();
}

#[test]
fn options_come_from_the_file_then_from_variables_then_from_code() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let options = settings::settings().unwrap().election("reports");
    assert_eq!(options.lease, Some(Duration::from_secs(45)), "a variable goes over the file");
    assert_eq!(options.renew_every, Some(Duration::from_secs(10)), "the file is for all elections");
    assert_eq!(options.stop_grace, Some(Duration::from_secs(60)), "and for this one");

    let elections = [(); 2].map(|()| {
        let floor = floor.clone();
        let elections = stage.elections().with_settings(settings::settings().unwrap());
        let works = settings::candidate(&elections).on_started_leading(async move |term| floor.work(term).await);
        works.start().unwrap()
    });
    let (who, token) = floor.next(Token::ZERO);
    assert_eq!(who, "instance-7");
    stage.settle();
    let leader = elections[0].leader().unwrap();
    assert_eq!((leader.metadata["team"].as_str(), leader.metadata.contains_key("version")), ("billing", true));

    // Two candidates with one id are two candidates.
    elections.iter().find(|election| election.is_leader()).unwrap().stop();
    let (_, token) = floor.next(token);
    stage.usurp("reports");
    floor.left(token);
    stage.advance(Duration::from_secs(45));
    floor.next(token);
    elections.iter().for_each(Election::stop);
    elections.iter().for_each(|election| stopped(&stage, election));
    floor.check();
}

#[test]
fn a_job_that_runs_on_one_instance_does_not_run_on_another() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let [one, other] = candidates::<2>(&stage, "report").map(|candidate| candidate.manual().start().unwrap());
    let release = CancellationToken::new();
    let running = {
        let (floor, one, release) = (floor.clone(), one.clone(), release.clone());
        instance(async move || {
            let job = async |term: Term| {
                let here = floor.enter(&term);
                release.cancelled().await;
                here.finish();
            };
            manual::run_unless_running(&one, job).await.unwrap()
        })
    };
    let (_, token) = floor.next(Token::ZERO);
    let job = async |term: Term| floor.enter(&term).finish();
    assert!(!block_on(manual::run_unless_running(&other, job)).unwrap(), "it runs already");
    release.cancel();
    assert!(running.join().unwrap(), "it ran to its end");
    assert!(floor.left(token));
    stage.settle();
    assert!(block_on(manual::run_unless_running(&other, job)).unwrap(), "the seat was given up");
    stage.settle();

    // Its seat is taken: the job is dropped, and counts as not run.
    let cut = {
        let floor = floor.clone();
        instance(async move || {
            let job = async |term: Term| floor.work(term).await;
            manual::run_unless_running(&one, job).await.unwrap()
        })
    };
    let (_, token) = floor.next(token.next().unwrap());
    stage.usurp("report");
    assert!(!cut.join().unwrap());
    assert!(!floor.left(token));
    assert_eq!(floor.check(), ["0", "1", "0"]);
}

#[test]
fn a_candidate_that_is_stopped_ends_between_two_batches() {
    let (stage, floor) = (Stage::new(), Floor::default());
    let [one, other] = candidates::<2>(&stage, "reports").map(|candidate| candidate.start().unwrap());
    let watching = [&one, &other].map(|election| {
        let events = election.events();
        instance(|| lifecycle::watch(events))
    });
    let working = [&one, &other].map(|election| {
        let (floor, election) = (floor.clone(), election.clone());
        instance(async move || {
            let work = async |term: Term| {
                let here = floor.enter(&term);
                let done = lifecycle::work(term).await;
                here.finish();
                done
            };
            election.run_while_leader(work).await
        })
    });

    let (first, token) = floor.next(Token::ZERO);
    let (leader, follower) = if number(&first) == 0 { (&one, &other) } else { (&other, &one) };
    assert!(leader.is_leader() && !follower.is_leader());
    leader.stop();
    assert!(floor.left(token), "a batch was cut short");
    floor.next(token);
    stopped(&stage, leader);
    assert!(!leader.is_leader() && leader.last_renewal().is_none());

    let done = working.map(|work| work.join().unwrap().unwrap());
    assert!(done[number(&first)] < 3 && done[1 - number(&first)] == 3, "{done:?}");
    follower.stop();
    watching.into_iter().for_each(|watch| joined(&stage, watch));
    floor.check();
}

/// `cargo test -p tenure` builds the examples; `cargo test --test ports` alone does not.
#[test]
fn every_example_ends_by_itself() {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap().join("examples");
    for example in [
        "batch_worker",
        "handlers",
        "health",
        "hosted_service",
        "keyed",
        "lifecycle",
        "manual",
        "outbox",
        "run_if_leader",
        "settings",
        "two_candidates",
    ] {
        let program = built.join(example).with_extension(std::env::consts::EXE_EXTENSION);
        let ran = Command::new(&program).output();
        let ran = ran.unwrap_or_else(|error| panic!("{}: {error}; run: cargo build --examples", program.display()));
        assert!(ran.status.success(), "{example}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
