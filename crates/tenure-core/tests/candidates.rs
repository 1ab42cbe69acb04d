//! Health, heirs and the list of candidates, over a memory on a manual clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tenure_core::memory::Memory;
use tenure_core::{
    Builder, CandidateStatus, Election, ElectionOptions, Elections, Fault, Health, LifeKind, ManualClock, Report,
};

const LEASE: Duration = Duration::from_secs(15);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A memory and a clock for candidates, each in a separate process.
struct Stage {
    clock: ManualClock,
    memory: Memory,
}

impl Stage {
    fn new() -> Self {
        let clock = ManualClock::new();
        Self { memory: Memory::of_kind(LifeKind::Clock, clock.clone()), clock }
    }

    fn stand(&self, id: &str, configure: impl FnOnce(Builder) -> Builder) -> Election {
        let elections = Elections::with_clock(self.memory.store(), self.clock.clone());
        let election = configure(elections.election("jobs").candidate(id)).start().unwrap();
        self.clock.settle();
        election
    }
}

fn plain(builder: Builder) -> Builder {
    builder
}

fn roster(election: &Election) -> Vec<CandidateStatus> {
    block_on(election.candidates()).unwrap()
}

fn ids(election: &Election) -> Vec<String> {
    roster(election).iter().map(|status| status.candidate.id.to_string()).collect()
}

fn status(at: &Election, id: &str) -> CandidateStatus {
    roster(at).into_iter().find(|status| &*status.candidate.id == id).unwrap()
}

#[test]
fn invalid_reports_are_refused_and_change_nothing() {
    let stage = Stage::new();
    let one = stage.stand("one", plain);
    for score in [f64::NAN, f64::INFINITY, -0.01, 1.01] {
        let error = one.report_health(score, ()).unwrap_err().to_string();
        assert!(error.contains("from 0 to 1"), "{error}");
    }
    let long: BTreeMap<_, _> = [("x".to_owned(), "y".repeat(64 * 1024))].into();
    let error = one.report_health(0.0, long.clone()).unwrap_err().to_string();
    assert!(error.contains("use at most 65536"), "{error}");
    stage.clock.settle();
    assert!(one.is_leader());
    let elections = Elections::new(tenure_core::memory::MemoryStore::new());
    let too_much =
        long.into_iter().fold(elections.election("j"), |builder, (name, value)| builder.metadata(name, value));
    assert!(too_much.start().unwrap_err().to_string().contains("metadata is too long"));
    for least in [f64::NAN, -1.0, 1.5] {
        let error = elections.election("j").min_health(least).start().unwrap_err().to_string();
        assert!(error.contains("min_health"), "{error}");
    }
    let error = elections.election("j").health_timeout(Duration::ZERO).start().unwrap_err().to_string();
    assert!(error.contains("health_timeout"), "{error}");
    // Only `tenure run` runs a health command, so a program must not accept one silently.
    let options = || ElectionOptions { health_cmd: Some("true".to_owned()), ..ElectionOptions::default() };
    let error = elections.election("j").options(options()).start().unwrap_err().to_string();
    assert!(error.contains("health_cmd only works with `tenure run`"), "{error}");
    elections.election("j").options(options()).health(async || true).start().unwrap();
}

#[test]
fn the_list_of_candidates_has_their_health_and_drops_those_that_leave() {
    let stage = Stage::new();
    let one = stage.stand("one", |builder| builder.metadata("zone", "a").priority(-3));
    let other = stage.stand("other", plain);
    assert_eq!(ids(&other), ["one", "other"]);
    let first = status(&other, "one");
    assert!(first.is_leader && first.healthy && first.priority == -3 && first.metadata["zone"] == "a", "{first:?}");

    other.report_health(0.5, [("queue", "17")]).unwrap();
    stage.clock.settle();
    let unhealthy = status(&one, "other");
    assert!(!unhealthy.healthy && unhealthy.score == 0.5 && unhealthy.metadata["queue"] == "17", "{unhealthy:?}");
    drop(other);
    stage.clock.settle();
    assert_eq!(ids(&one), ["one"], "a candidate that leaves is removed at once");
}

#[test]
fn a_leader_that_learns_of_priorities_keeps_the_beginning_of_its_term() {
    let stage = Stage::new();
    let one = stage.stand("one", plain);
    let observer = Elections::with_clock(stage.memory.store(), stage.clock.clone());
    let look = || block_on(observer.look("jobs")).unwrap();
    let since = look().leader.unwrap().since.unwrap();
    while since.elapsed().unwrap_or_default() < Duration::from_millis(2) {}
    let _other = stage.stand("other", |builder| builder.priority(3));
    stage.clock.advance(LEASE);
    assert!(one.is_leader() && look().ranked);
    assert_eq!(look().leader.unwrap().since, Some(since));
}

#[test]
fn a_candidate_that_steps_down_announces_at_once_how_long_it_holds_back() {
    let stage = Stage::new();
    let one = stage.stand("one", plain);
    assert_eq!((status(&one, "one").lease, status(&one, "one").held_back_until), (Some(LEASE), None));
    let before = std::time::SystemTime::now();
    one.step_down();
    stage.clock.settle();
    let until = status(&one, "one").held_back_until.unwrap();
    assert!(!one.is_leader() && until > before + LEASE && until <= std::time::SystemTime::now() + LEASE * 2);
    assert!(status(&one, "one").healthy);
    // A release is not a hold-back: the candidate stands again at once.
    let other = stage.stand("other", plain);
    assert!(other.is_leader());
    other.release();
    stage.clock.settle();
    assert_eq!(status(&one, "other").held_back_until, None);
}

#[test]
fn a_process_is_listed_again_after_a_long_pause() {
    let stage = Stage::new();
    let (one, other) = (stage.stand("one", plain), stage.stand("other", plain));
    stage.clock.jump(LEASE * 3);
    stage.clock.advance(LEASE);
    let mut listed = ids(&one);
    listed.sort();
    assert_eq!(listed, ["one", "other"]);
    drop(other);
}

#[test]
fn without_a_healthy_candidate_there_is_no_leader_and_health_is_degraded() {
    let stage = Stage::new();
    let (one, other) = (stage.stand("one", plain), stage.stand("other", plain));
    assert_eq!(one.health().to_string(), "healthy: this candidate leads");
    assert_eq!(other.health().to_string(), "healthy: one leads");
    other.report_healthy(false, ()).unwrap();
    one.report_healthy(false, ()).unwrap();
    stage.clock.advance(LEASE * 4);
    for election in [&one, &other] {
        assert!(!election.is_leader());
        assert_eq!(
            election.health().to_string(),
            "degraded: this candidate sees no leader; this candidate is not healthy enough to lead"
        );
    }
    one.report_healthy(true, ()).unwrap();
    stage.clock.advance(LEASE - Duration::from_millis(1));
    assert!(!one.is_leader(), "it has not been healthy for a lease");
    stage.clock.advance(Duration::from_millis(1));
    assert!(one.is_leader());
    assert!(other.health().is_healthy());
}

#[test]
fn health_that_flaps_does_not_make_the_seat_flap() {
    let stage = Stage::new();
    let (one, other) = (stage.stand("one", plain), stage.stand("other", plain));
    one.report_healthy(false, ()).unwrap();
    stage.clock.settle();
    let token = other.term().unwrap().token();
    for _ in 0..50 {
        for healthy in [true, false] {
            one.report_healthy(healthy, ()).unwrap();
            stage.clock.advance(LEASE / 2);
        }
    }
    assert_eq!(other.term().unwrap().token(), token);
}

#[test]
fn work_and_handlers_can_report_health_and_every_report_counts() {
    let stage = Stage::new();
    let (itself, terms): (Arc<std::sync::OnceLock<Election>>, Arc<AtomicU32>) = Default::default();
    let report = |healthy| {
        let itself = itself.clone();
        move || {
            if let Some(election) = itself.get() {
                election.report_healthy(healthy, ()).unwrap();
            }
        }
    };
    let (report_unhealthy, report_healthy, counted) = (report(false), report(true), terms.clone());
    let one = stage.stand("one", |builder| {
        let started = async move |_| {
            report_unhealthy();
            counted.fetch_add(1, Ordering::SeqCst);
        };
        builder.on_started_leading(started).on_stopped_leading(move |_, _| report_healthy())
    });
    assert!(one.is_leader());
    // In the first term, the work reports that the candidate is unhealthy.
    itself.set(one.clone()).unwrap();
    let work = one.run_if_leader(async |term| {
        one.report_healthy(false, ()).unwrap();
        term.ending().await;
    });
    assert!(matches!(block_on(work), Ok(())));
    stage.clock.settle();
    assert!(!one.is_leader());
    for term in 2..6 {
        // Healthy again since the end of its term, it stands again after a lease.
        stage.clock.advance(LEASE);
        assert_eq!(terms.load(Ordering::SeqCst), term);
        assert!(!one.is_leader(), "it is unhealthy as soon as it leads");
    }
    one.stop();
    stage.clock.settle();
    block_on(one.stopped());
}

#[test]
fn the_health_of_an_election_shows_failures_of_the_store_and_overruns() {
    let stage = Stage::new();
    let one = stage.stand("one", plain);
    stage.memory.fail_next(Fault::Unknown);
    stage.clock.advance(LEASE / 3 + Duration::from_millis(1));
    assert!(one.health().is_healthy(), "one failed call does not make the election unhealthy: {}", one.health());
    for _ in 0..200 {
        stage.memory.fail_next(Fault::Refused);
    }
    stage.clock.advance(LEASE);
    let health = one.health();
    assert!(matches!(&health, Health::Unhealthy { reason } if reason.contains("calls to the store fail")), "{health}");
    one.stop();
    stage.clock.advance(LEASE * 2);
    assert!(matches!(one.health(), Health::Unhealthy { reason } if reason.contains("stopped")));

    let stage = Stage::new();
    let one = stage.stand("one", plain);
    let work = one.term().unwrap().begin_work().unwrap();
    stage.clock.jump(LEASE * 2);
    stage.clock.advance(LEASE);
    assert!(one.health().reason().contains("still running"), "{}", one.health());
    drop(work);
    stage.clock.advance(LEASE);
    assert!(one.health().is_healthy(), "{}", one.health());
}

#[test]
fn an_election_is_unhealthy_at_once_if_the_store_denies_calls() {
    let stage = Stage::new();
    stage.memory.fail_next(Fault::Denied);
    let one = stage.stand("one", plain);
    assert!(matches!(one.health(), Health::Unhealthy { reason } if reason.contains("denies calls")));
}

#[test]
fn a_transfer_goes_to_its_heir_at_once() {
    let stage = Stage::new();
    let (one, _other, heir) = (stage.stand("one", plain), stage.stand("other", plain), stage.stand("heir", plain));
    block_on(one.transfer_to("heir")).unwrap();
    stage.clock.settle();
    assert!(heir.is_leader());
    // Another candidate can hand over as well, and by incarnation.
    let incarnation = one.candidate().incarnation.to_string();
    block_on(_other.transfer_to(&incarnation)).unwrap();
    stage.clock.settle();
    assert!(one.is_leader());
}

#[test]
fn transfers_to_unknown_or_unhealthy_candidates_are_refused() {
    let stage = Stage::new();
    let one = stage.stand("one", plain);
    let ill = stage.stand("ill", plain);
    ill.report_healthy(false, ()).unwrap();
    stage.clock.settle();
    let refused = |to: &str| block_on(one.transfer_to(to)).unwrap_err().to_string();
    assert_eq!(refused("nobody"), "the candidate \"nobody\" does not stand for \"jobs\"; the candidates are: one, ill");
    assert_eq!(refused("ill"), "the candidate \"ill\" is not healthy enough to lead (score 0)");
    assert_eq!(refused("one"), "the candidate \"one\" already leads the election; choose another candidate");
    assert!(one.is_leader());
    one.report_healthy(false, ()).unwrap();
    stage.clock.settle();
    assert_eq!(refused("ill"), "no leader of \"jobs\" can hand over: the seat is vacant");
}

#[test]
fn of_two_transfers_at_once_the_first_counts() {
    let stage = Stage::new();
    let (one, first, second) = (stage.stand("one", plain), stage.stand("first", plain), stage.stand("second", plain));
    let work = one.term().unwrap().begin_work().unwrap();
    block_on(one.transfer_to("first")).unwrap();
    let error = block_on(one.transfer_to("second")).unwrap_err().to_string();
    assert_eq!(error, "no leader of \"jobs\" can hand over: its term is already ending");
    drop(work);
    stage.clock.settle();
    assert!(first.is_leader() && !second.is_leader());
}

/// A health check that returns a given score, or hangs.
#[derive(Clone, Default)]
struct Probe {
    score: Arc<AtomicU32>,
    hangs: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
}

impl Probe {
    fn healthy(self) -> Self {
        self.score.store(100, Ordering::SeqCst);
        self
    }

    async fn report(&self) -> f64 {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        f64::from(self.score.load(Ordering::SeqCst)) / 100.0
    }
}

#[test]
fn a_check_runs_before_the_candidate_stands_and_at_regular_intervals() {
    let stage = Stage::new();
    let probe = Probe::default();
    let one = stage.stand("one", |builder| {
        let probe = probe.clone();
        builder.health(async move || probe.report().await)
    });
    assert!(!one.is_leader(), "its first score was 0");
    assert_eq!(probe.asked.load(Ordering::SeqCst), 1);
    stage.clock.advance(LEASE);
    assert_eq!(probe.asked.load(Ordering::SeqCst), 4, "once every third of a lease");
    probe.score.store(100, Ordering::SeqCst);
    stage.clock.advance(LEASE * 2);
    assert!(one.is_leader());
    assert_eq!(status(&one, "one").score, 1.0);
}

#[test]
fn a_check_that_hangs_costs_the_seat_and_does_not_run_twice_at_once() {
    let stage = Stage::new();
    let probe = Probe::default().healthy();
    let one = stage.stand("one", |builder| {
        let probe = probe.clone();
        builder.health(async move || probe.report().await)
    });
    assert!(one.is_leader());
    probe.hangs.store(true, Ordering::SeqCst);
    stage.clock.advance(LEASE / 3);
    assert!(one.is_leader(), "the check has just started");
    stage.clock.advance(LEASE * 2 / 15);
    assert!(!one.is_leader());
    let asked = probe.asked.load(Ordering::SeqCst);
    stage.clock.advance(LEASE * 5);
    assert_eq!(probe.asked.load(Ordering::SeqCst), asked, "no other check starts while one hangs");
    let error = status(&one, "one").metadata["error"].clone();
    assert_eq!(error, "the health check did not answer within 2s");
}

#[test]
fn a_check_that_panics_or_returns_an_invalid_score_counts_as_unhealthy() {
    type Answer = fn() -> Report;
    let answers: [(Answer, &str); 5] = [
        (|| panic!("on purpose"), "panicked"),
        (|| 1.5.into(), "returned 1.5"),
        (|| f64::NAN.into(), "returned NaN"),
        (|| Err::<bool, _>("the disk is full").into(), "the disk is full"),
        (|| (1.0, [("x", "y".repeat(64 * 1024))]).into(), "the metadata is too long (65537 bytes)"),
    ];
    for (answer, words) in answers {
        let stage = Stage::new();
        let one = stage.stand("one", |builder| builder.health(async move || answer()));
        assert!(!one.is_leader());
        let error = status(&one, "one").metadata["error"].clone();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_candidate_without_a_first_check_result_is_not_listed_and_cannot_take_over() {
    let stage = Stage::new();
    let one = stage.stand("one", plain);
    let slow = stage.stand("slow", |builder| builder.health(async || std::future::pending::<bool>().await));
    assert_eq!(ids(&one), ["one"]);
    let refused = block_on(one.transfer_to("slow")).unwrap_err().to_string();
    assert_eq!(refused, "the candidate \"slow\" does not stand for \"jobs\"; the candidates are: one");
    stage.clock.advance(LEASE * 2 / 15);
    let listed = status(&one, "slow");
    assert!(!listed.healthy && listed.score == 0.0 && listed.metadata.contains_key("error"), "{listed:?}");
    assert_eq!(roster(&slow).len(), 2);
}

#[test]
fn an_election_with_a_check_can_be_stopped_before_the_first_result() {
    let stage = Stage::new();
    let one = stage.stand("one", |builder| builder.health(async || std::future::pending::<bool>().await));
    one.stop();
    stage.clock.settle();
    block_on(one.stopped());
}

#[test]
fn after_all_elections_have_stopped_no_candidate_is_listed() {
    for _ in 0..50 {
        let memory = Memory::new();
        let (staying, leaving) = (Elections::new(memory.store()), Elections::new(memory.store()));
        let one = staying.election("jobs").candidate("one").start().unwrap();
        let other = leaving.election("jobs").candidate("other").start().unwrap();
        while ids(&one).len() < 2 {
            std::thread::yield_now();
        }
        other.stop();
        block_on(leaving.stopped());
        assert_eq!(ids(&one), ["one"]);
    }
    // Also where nothing was ever started.
    block_on(Elections::new(Memory::new().store()).stopped());
}
