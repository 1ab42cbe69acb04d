//! The engine over a memory, on a manual clock: exact, and in no real time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tenure_core::memory::Memory;
use tenure_core::{
    Election, Elections, EndReason, Ended, EventKind, Fault, LifeKind, ManualClock, SeatName, SeatStore, Swap,
};

const KINDS: [LifeKind; 4] = [LifeKind::Observe, LifeKind::Clock, LifeKind::Session, LifeKind::Lock];
const LEASE: Duration = Duration::from_secs(15);

fn each_kind(test: impl Fn(ManualClock, Memory)) {
    for kind in KINDS {
        let clock = ManualClock::new();
        test(clock.clone(), Memory::of_kind(kind, clock));
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_follower_takes_over_when_the_leader_stops() {
    each_kind(|clock, memory| {
        let (one, other) = (
            Elections::with_clock(memory.store(), clock.clone()),
            Elections::with_clock(memory.store(), clock.clone()),
        );
        let a = one.election("jobs").candidate("a").start().unwrap();
        clock.settle();
        assert!(a.is_leader());
        let b = other.election("jobs").candidate("b").start().unwrap();
        clock.advance(LEASE * 4);
        assert!(a.is_leader() && !b.is_leader());
        assert_eq!(b.leader().unwrap().candidate.id.as_ref(), "a");
        let first = a.term().unwrap().token();
        a.stop();
        clock.settle();
        assert!(!a.is_leader() && b.is_leader());
        assert!(b.term().unwrap().token() > first);
        assert_eq!(block_on(a.stopped()), Ended::Stopped);
    });
}

#[test]
fn the_term_of_a_paused_leader_ends_before_the_engine_runs() {
    each_kind(|clock, memory| {
        let one = Elections::with_clock(memory.store(), clock.clone());
        let a = one.election("jobs").start().unwrap();
        clock.settle();
        let term = a.term().unwrap();
        let mut events = a.events();
        clock.jump(LEASE);
        assert!(!term.is_current());
        let told: Vec<EventKind> = block_on(async {
            let mut told = Vec::new();
            while told.len() < 4 {
                told.push(events.next().await.unwrap().kind);
            }
            told
        });
        assert!(
            told.iter().any(|event| matches!(
                event,
                EventKind::LostLeadership { why: EndReason::NotRenewed | EndReason::SessionOver, .. }
            )),
            "{told:?}"
        );
    });
}

#[test]
fn work_is_dropped_when_the_seat_is_taken() {
    each_kind(|clock, memory| {
        let one = Elections::with_clock(memory.store(), clock.clone());
        let a = one.election("jobs").start().unwrap();
        let (began, begins) = std::sync::mpsc::channel();
        let handle = std::thread::spawn({
            let a = a.clone();
            move || {
                block_on(a.run_while_leader(async |term| {
                    began.send(term.token()).unwrap();
                    std::future::pending::<()>().await
                }))
            }
        });
        let token = begins.recv().unwrap();
        memory.usurp("jobs");
        clock.settle();
        let ended = handle.join().unwrap().unwrap_err();
        assert!(matches!(ended, Ended::TermEnded { token: t, why: EndReason::SeatLost } if t == token), "{ended:?}");
    });
}

#[test]
fn the_end_of_one_election_does_not_affect_the_others() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let (a, b) = (elections.election("a").start().unwrap(), elections.election("b").start().unwrap());
        clock.settle();
        let mut events = a.events();
        a.stop();
        clock.settle();
        assert!(b.is_leader());
        let told = block_on(async {
            let mut told = Vec::new();
            while let Some(event) = events.next().await {
                told.push(event.kind);
            }
            told
        });
        assert!(matches!(told.last(), Some(EventKind::Stopped { why: Ended::Stopped })), "{told:?}");
        assert!(told.iter().any(|event| matches!(event, EventKind::LeaderChanged { leader: None, .. })), "{told:?}");
        // Its name can be used again.
        let again = elections.election("a").start().unwrap();
        clock.settle();
        assert!(again.is_leader());
    });
}

#[test]
fn an_election_that_is_started_again_never_reuses_a_token() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let a = elections.election("a").release_on_stop(false).start().unwrap();
        clock.settle();
        let token = a.term().unwrap().token();
        a.stop();
        clock.settle();
        assert_eq!(block_on(a.stopped()), Ended::Stopped);
        let again = elections.election("a").start().unwrap();
        clock.advance(LEASE);
        assert!(again.term().unwrap().token() > token);
    });
}

#[test]
fn a_leader_that_releases_its_seat_stands_again_at_once() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let a = elections.election("a").start().unwrap();
        clock.settle();
        let token = a.term().unwrap().token();
        a.release();
        clock.advance(LEASE / 2);
        assert!(a.term().unwrap().token() > token);
    });
}

#[test]
fn a_seat_restored_to_an_ended_term_of_the_same_process_is_not_led_again() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let seat = SeatName::new("a").unwrap();
        let first = elections.election("a").start().unwrap();
        clock.settle();
        let token = first.term().unwrap().token();
        let operator = memory.store();
        let backup = block_on(operator.read(&seat)).unwrap().seat.unwrap();
        first.stop();
        clock.settle();
        assert_eq!(block_on(first.stopped()), Ended::Stopped);

        let now = block_on(operator.read(&seat)).unwrap().seat.unwrap();
        let restored = block_on(operator.swap(&seat, Some(&now.version), &backup.record)).unwrap();
        assert!(matches!(restored, Swap::Done { .. }));
        drop(operator);
        let again = elections.election("a").start().unwrap();
        clock.advance(LEASE * 3);
        assert!(again.term().unwrap().token() > token);
    });
}

#[test]
fn an_observer_does_not_affect_the_seat_of_its_own_process() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let a = elections.election("a").candidate("me").start().unwrap();
        clock.settle();
        let token = a.term().unwrap().token();
        let observer = elections.observe("a").unwrap();
        clock.advance(LEASE * 2);
        assert_eq!(a.term().unwrap().token(), token);
        assert_eq!(observer.leader().unwrap().candidate.id.as_ref(), "me");
        assert_eq!(observer.leader().unwrap().token, token);
    });
}

#[test]
fn a_late_listener_is_notified_that_the_store_fails() {
    each_kind(|clock, memory| {
        memory.fail_next(Fault::Denied);
        let one = Elections::with_clock(memory.store(), clock.clone());
        let a = one.election("jobs").start().unwrap();
        clock.settle();
        let mut events = a.events();
        assert!(matches!(block_on(events.next()).map(|event| event.kind), Some(EventKind::Error { .. })));
        clock.advance(LEASE);
        assert!(matches!(block_on(events.next()).map(|event| event.kind), Some(EventKind::Recovered)));
        // A listener that subscribes after the recovery is not.
        assert!(!matches!(block_on(a.events().next()).map(|event| event.kind), Some(EventKind::Error { .. })));
    });
}

#[test]
fn a_term_reports_every_change_of_its_deadline() {
    each_kind(|clock, memory| {
        let one = Elections::with_clock(memory.store(), clock.clone());
        let a = one.election("jobs").start().unwrap();
        clock.settle();
        let term = a.term().unwrap();
        let first = term.deadline();
        assert_eq!(first.since(clock.now()), term.remaining());
        clock.advance(LEASE / 2);
        let second = block_on(term.deadline_moved(first));
        assert!(second > first);
        a.stop();
        clock.settle();
        assert!(block_on(term.deadline_moved(second)) < second);
    });
}

#[test]
fn the_seat_is_kept_until_registered_work_has_ended() {
    each_kind(|clock, memory| {
        let (one, other) = (
            Elections::with_clock(memory.store(), clock.clone()),
            Elections::with_clock(memory.store(), clock.clone()),
        );
        let a = one.election("jobs").stop_grace(LEASE * 10).start().unwrap();
        clock.settle();
        let b = other.election("jobs").start().unwrap();
        let term = a.term().unwrap();
        let work = term.begin_work().unwrap();
        a.stop();
        clock.advance(LEASE * 3);
        assert!(term.is_current() && !a.is_leader() && !b.is_leader());
        assert!(term.begin_work().is_none());
        drop(work);
        clock.settle();
        assert!(b.is_leader());
    });
}

#[test]
fn a_single_read_shows_the_leader() {
    each_kind(|clock, memory| {
        let (one, other) = (
            Elections::with_clock(memory.store(), clock.clone()),
            Elections::with_clock(memory.store(), clock.clone()),
        );
        let looks = || block_on(other.look("jobs")).unwrap();
        assert_eq!((looks().leader, looks().token.get()), (None, 0));
        let a = one.election("jobs").candidate("a").start().unwrap();
        clock.settle();
        let look = looks();
        assert_eq!(look.leader.unwrap().candidate.id.as_ref(), "a");
        assert!(look.expires_in.is_none_or(|left| left <= LEASE));
        a.stop();
        clock.settle();
        let look = looks();
        assert_eq!((look.leader, look.token.get(), look.vouched), (None, 1, true));
    });
}

#[test]
fn a_usurper_leads_on_every_kind_of_store() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let a = elections.election("a").start().unwrap();
        clock.settle();
        memory.usurp("a");
        clock.settle();
        assert!(!a.is_leader());
        assert_eq!(a.leader().unwrap().candidate.id.as_ref(), "usurper");
        clock.advance(LEASE * 2);
        assert!(a.is_leader(), "the usurper does not renew");
    });
}

#[test]
fn a_manual_clock_waits_for_handlers() {
    for _ in 0..50 {
        each_kind(|clock, memory| {
            let told = Arc::new(AtomicUsize::new(0));
            let (started, stopped) = (told.clone(), told.clone());
            let one = Elections::with_clock(memory.store(), clock.clone());
            let a = one
                .election("a")
                .on_started_leading(async move |_| _ = started.fetch_add(1, Ordering::SeqCst))
                .on_stopped_leading(move |_, _| _ = stopped.fetch_add(10, Ordering::SeqCst))
                .start()
                .unwrap();
            clock.settle();
            assert_eq!(told.load(Ordering::SeqCst), 1);
            let other = Elections::with_clock(memory.store(), clock.clone());
            let b = other.election("a").start().unwrap();
            clock.settle();
            a.stop();
            clock.settle();
            assert_eq!(told.load(Ordering::SeqCst), 11);
            assert!(b.is_leader());
        });
    }
}

#[test]
fn work_that_fails_runs_again_after_a_pause_and_not_before() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let a = elections.election("a").start().unwrap();
        let runs = Arc::new(AtomicUsize::new(0));
        let worker = std::thread::spawn({
            let (a, runs) = (a.clone(), runs.clone());
            move || {
                block_on(a.run_once_per_term(async |_| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    Err("it failed")
                }))
            }
        });
        while runs.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // The clock stands still, so the pause does not end.
        for _ in 0..1000 {
            clock.settle();
            std::thread::yield_now();
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        while runs.load(Ordering::SeqCst) < 3 {
            clock.advance(LEASE / 15);
        }
        a.stop();
        clock.settle();
        assert_eq!(worker.join().unwrap(), Ended::Stopped);
    });
}

#[test]
fn work_that_outlasts_its_term_returns_an_error() {
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let a = elections.election("a").start().unwrap();
        clock.settle();
        let outcome = block_on(a.run_if_leader(async |_| clock.jump(LEASE)));
        assert!(matches!(outcome, Err(Ended::TermEnded { .. })), "{outcome:?}");
        let outcome = {
            clock.advance(LEASE * 3);
            a.run_if_leader_blocking(|_| clock.jump(LEASE))
        };
        assert!(matches!(outcome, Err(Ended::TermEnded { .. })), "{outcome:?}");
    });
}

#[test]
fn a_handler_with_a_weak_handle_does_not_keep_its_election_running() {
    each_kind(|clock, memory| {
        let (one, other) = (
            Elections::with_clock(memory.store(), clock.clone()),
            Elections::with_clock(memory.store(), clock.clone()),
        );
        let (all, seen) = (one.downgrade(), Arc::new(AtomicUsize::new(0)));
        let count = seen.clone();
        let a = one
            .election("jobs")
            .on_event(move |_| _ = count.fetch_add(usize::from(all.upgrade().is_some()), Ordering::SeqCst))
            .start()
            .unwrap();
        clock.settle();
        assert!(a.is_leader() && seen.load(Ordering::SeqCst) > 0);
        let weak = a.downgrade();
        assert!(weak.upgrade().is_some_and(|a| a.is_leader()));
        let b = other.election("jobs").start().unwrap();
        drop((one, a));
        clock.settle();
        assert!(b.is_leader() && weak.upgrade().is_none());
    });
}

#[test]
fn handlers_are_dropped_on_a_handler_thread_at_the_end_even_if_they_own_the_election() {
    struct Owned(OnceLock<Election>, mpsc::Sender<Option<String>>);
    impl Drop for Owned {
        fn drop(&mut self) {
            self.1.send(std::thread::current().name().map(ToOwned::to_owned)).unwrap();
        }
    }
    each_kind(|clock, memory| {
        let elections = Elections::with_clock(memory.store(), clock.clone());
        let (dropped, drops) = mpsc::channel();
        let owned = Arc::new(Owned(OnceLock::new(), dropped));
        let inner = owned.clone();
        let a = elections.election("jobs").on_event(move |_| _ = inner.0.get()).start().unwrap();
        owned.0.set(a.clone()).unwrap();
        let weak = elections.downgrade();
        drop((elections, owned));
        clock.settle();
        assert!(a.is_leader());
        a.stop();
        drop(a);
        assert_eq!(drops.recv_timeout(Duration::from_secs(60)), Ok(Some("tenure-handlers".to_owned())));
        clock.settle();
        assert!(weak.upgrade().is_none(), "the election and its handler no longer keep each other alive");
    });
}
