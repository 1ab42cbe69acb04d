//! Handlers: `on_started_leading` is work, handlers of different elections do not wait for each other, and failures are
//! reported.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Elections, EndReason, Ended, Error, Event, EventKind, Fault, Health, LifeKind, ManualClock, Term, Token,
};

const LEASE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(60);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("it happens in time") })
}

fn stage() -> (Memory, ManualClock) {
    let clock = ManualClock::new();
    (Memory::of_kind(LifeKind::Clock, clock.clone()), clock)
}

#[test]
fn a_handler_that_leads_holds_its_term_until_it_has_returned() {
    let (memory, clock) = stage();
    let one = Elections::with_clock(memory.store(), clock.clone());
    let other = Elections::with_clock(memory.store(), clock.clone());
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let (working, released) = (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::Mutex::new(Some(released))));
    let works = working.clone();
    let a = one
        .election("jobs")
        .on_started_leading(async move |term| {
            works.store(true, Ordering::SeqCst);
            term.ending().await;
            // Wraps up until the test releases it.
            let released = released.lock().unwrap().take();
            let _ = released.expect("it leads once").await;
            works.store(false, Ordering::SeqCst);
        })
        .start()
        .unwrap();
    clock.settle();
    assert!(a.is_leader() && working.load(Ordering::SeqCst), "the handler was polled before the clock moved on");
    let b = other.election("jobs").start().unwrap();
    clock.settle();
    a.stop();
    clock.settle();
    assert!(!a.is_leader() && !b.is_leader(), "the seat was released while the handler wrapped up");
    assert!(working.load(Ordering::SeqCst));
    release.send(()).unwrap();
    assert_eq!(block_on(a.stopped()), Ended::Stopped);
    assert!(!working.load(Ordering::SeqCst));
    clock.settle();
    assert!(b.is_leader());
}

#[test]
fn a_handler_that_ignores_the_end_of_its_term_is_dropped() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (memory, clock) = stage();
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let dropped = Arc::new(AtomicBool::new(false));
    let is_dropped = dropped.clone();
    let a = elections
        .election("jobs")
        .on_started_leading(async move |_| {
            let _dropped = Dropped(is_dropped.clone());
            std::future::pending::<()>().await;
        })
        .start()
        .unwrap();
    clock.settle();
    a.stop();
    clock.settle();
    assert!(!dropped.load(Ordering::SeqCst), "it has time to wrap up");
    clock.advance(LEASE);
    assert_eq!(block_on(a.stopped()), Ended::Stopped);
    assert!(dropped.load(Ordering::SeqCst));
}

#[test]
fn no_handler_waits_for_a_handler_of_another_election() {
    let elections = Elections::new(MemoryStore::new());
    let (release, released) = mpsc::channel::<()>();
    let (release_other, released_other) = mpsc::channel::<()>();
    let leads =
        elections.election("leads and blocks").on_started_leading(async move |_| _ = released.recv()).start().unwrap();
    let hears = elections.election("hears and blocks").on_event(move |_| _ = released_other.recv()).start().unwrap();
    leads.elected_blocking().unwrap();
    hears.elected_blocking().unwrap();
    let (started, has_started) = mpsc::channel();
    let (told, is_told) = mpsc::channel();
    let _third = elections
        .election("third")
        .on_started_leading(async move |term| _ = started.send(term.token()))
        .on_leadership_changed(move |leads| _ = told.send(leads))
        .start()
        .unwrap();
    has_started.recv_timeout(PATIENCE).expect("on_started_leading is called");
    assert_eq!(is_told.recv_timeout(PATIENCE), Ok(true));
    drop((release, release_other));
}

#[tokio::test]
async fn handlers_can_spawn_on_the_runtime_in_which_the_election_was_started() {
    let elections = Elections::new(MemoryStore::new());
    let (done, mut is_done) = tokio::sync::mpsc::unbounded_channel();
    let also_done = done.clone();
    let _election = elections
        .election("jobs")
        .on_started_leading(async move |_| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let done = done.clone();
            tokio::spawn(async move { done.send("from on_started_leading") }).await.unwrap().unwrap();
        })
        .on_leadership_changed(move |_| {
            let done = also_done.clone();
            drop(tokio::spawn(async move { done.send("from on_leadership_changed") }));
        })
        .start()
        .unwrap();
    let mut heard = [is_done.recv().await.unwrap(), is_done.recv().await.unwrap()];
    heard.sort_unstable();
    assert_eq!(heard, ["from on_leadership_changed", "from on_started_leading"]);
}

#[test]
fn a_failing_handler_is_reported_by_an_event_and_in_health() {
    type Fails = fn(Term) -> Result<(), &'static str>;
    let fails: [Fails; 2] = [|_| Err("no disk"), |_| std::panic::resume_unwind(Box::new("no disk"))];
    for fail in fails {
        let (memory, clock) = stage();
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let (tell, told) = mpsc::channel::<Arc<Error>>();
        let a = elections
            .election("jobs")
            .on_started_leading(async move |term| fail(term))
            .on_error(move |error| _ = tell.send(error))
            .start()
            .unwrap();
        clock.settle();
        let error = told.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(&*error, Error::Handler { handler: "on_started_leading", .. }), "{error:?}");
        assert!(error.to_string().ends_with(": no disk"), "{error}");
        assert!(a.is_leader(), "the election goes on");
        assert_eq!(a.health(), Health::Unhealthy { reason: error.to_string() });
        let all = elections.health();
        assert!(all.reason().starts_with("jobs: ") && !all.is_healthy(), "{all}");
        let heard = block_on(async {
            let mut events = a.events();
            while let Some(event) = events.next().await {
                if let EventKind::Error { error } = event.kind {
                    return error;
                }
            }
            panic!("the events ended");
        });
        assert_eq!(heard.to_string(), error.to_string(), "a new listener is notified as well");
        a.step_down();
        clock.settle();
        assert!(!a.health().reason().contains("no disk"), "{}", a.health());
    }
}

#[test]
fn a_failed_handler_shows_in_health_although_another_handler_succeeds() {
    let (memory, clock) = stage();
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let (tell, told) = mpsc::channel::<()>();
    let a = elections
        .election("jobs")
        .on_started_leading(async |_| Err("no disk"))
        // Returns after the first one has failed.
        .on_started_leading(async move |_| _ = told.recv())
        .on_error(move |_| _ = tell.send(()))
        .on_event(|event| {
            if matches!(event.kind, EventKind::Error { .. }) {
                std::panic::resume_unwind(Box::new("no network"));
            }
        })
        .start()
        .unwrap();
    clock.settle();
    assert!(a.health().reason().contains("on_started_leading failed: no disk"), "{}", a.health());
}

#[test]
fn a_handler_that_fails_while_it_wraps_up_leaves_a_healthy_follower() {
    let (memory, clock) = stage();
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let other = Elections::with_clock(memory.store(), clock.clone());
    let a = elections
        .election("jobs")
        .on_started_leading(async |term| {
            term.ending().await;
            Err("no disk")
        })
        .start()
        .unwrap();
    clock.settle();
    let _b = other.election("jobs").start().unwrap();
    clock.settle();
    let mut events = a.events();
    a.step_down();
    block_on(async {
        while let Some(event) = events.next().await {
            if matches!(event.kind, EventKind::Error { .. }) {
                return;
            }
        }
        panic!("the failure was not reported");
    });
    clock.settle();
    assert!(a.health().is_healthy(), "{}", a.health());
}

#[test]
fn a_handler_that_fails_at_every_error_is_not_called_in_an_endless_loop() {
    let (memory, clock) = stage();
    memory.fail_next(Fault::Refused);
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let a = elections
        .election("jobs")
        .on_error(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("and again"));
        })
        .start()
        .unwrap();
    clock.advance(LEASE);
    assert!(a.is_leader());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(a.health().reason().contains("on_error panicked: and again"), "{}", a.health());
}

#[test]
fn events_have_election_candidate_time_and_previous_leader() {
    let (memory, clock) = stage();
    let elections = Elections::with_clock(memory.store(), clock.clone());
    let (tell, told) = mpsc::channel::<Event>();
    let began = std::time::SystemTime::now();
    let a = elections.election("jobs").candidate("me").on_event(move |event| _ = tell.send(event)).start().unwrap();
    clock.settle();
    let token = memory.usurp("jobs");
    clock.settle();
    let told: Vec<Event> = told.try_iter().collect();
    for event in &told {
        assert_eq!((event.election.as_str(), event.candidate.id()), ("jobs", "me"));
        assert!(event.at >= began);
    }
    let term = told.iter().find_map(|event| match &event.kind {
        EventKind::BecameLeader { term } => Some(term.clone()),
        _ => None,
    });
    let term = term.expect("it has led");
    assert_eq!((term.election(), term.candidate()), ("jobs", a.candidate()));
    assert!(term.is_ending() && !term.is_current());
    let changes: Vec<_> = told
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::LeaderChanged { leader, previous } => {
                let token = |leader: &Option<tenure_core::Leader>| leader.as_ref().map(|leader| leader.token);
                Some((token(previous), token(leader)))
            }
            _ => None,
        })
        .collect();
    assert_eq!(changes, [(None, Some(term.token())), (Some(term.token()), Some(token))]);
    assert!(told.iter().any(|event| matches!(
        event.kind,
        EventKind::LostLeadership { token, why: EndReason::SeatLost } if token == term.token()
    )));
    assert!(Token::from(7) > Token::ZERO);
}
