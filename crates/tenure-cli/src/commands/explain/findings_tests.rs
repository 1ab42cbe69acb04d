//! Each finding, over a memory store with a clock that the test moves.

use std::sync::Arc;

use tenure::testing::Stage;
use tenure::{Builder, Election};

use super::*;

const LEASE: Duration = Duration::from_secs(15);

/// The seat and the candidates of `jobs`, as read once. Tests change what a store would show.
struct Scene {
    seat: SeatStatus,
    candidates: Vec<CandidateStatus>,
}

impl Scene {
    fn read(stage: &Stage) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let elections = stage.elections();
        let seat = runtime.block_on(elections.look("jobs")).unwrap();
        let candidates = runtime.block_on(elections.candidates("jobs")).unwrap();
        Self { seat, candidates }
    }

    /// Reads a scene in which `alice` leads and `bob` waits, and then removes the leader.
    fn vacant() -> (Self, [Election; 2]) {
        let stage = Stage::new();
        let standing = [stand(&stage, "alice", plain), stand(&stage, "bob", plain)];
        let mut scene = Self::read(&stage);
        scene.seat.leader = None;
        scene.candidates.iter_mut().for_each(|status| status.is_leader = false);
        (scene, standing)
    }

    fn explain(&self, asked: Option<&str>) -> Vec<Finding> {
        findings(&Facts {
            election: "jobs",
            store: "memory:",
            missing: None,
            seat: &self.seat,
            candidates: &self.candidates,
            asked,
            now: SystemTime::now(),
        })
    }

    fn status(&mut self, id: &str) -> &mut CandidateStatus {
        self.candidates.iter_mut().find(|status| &*status.candidate.id == id).unwrap()
    }
}

/// Returns the crash of the leader of this term.
fn crash(token: u64) -> Arc<Crash> {
    let of = tenure::Candidate { id: "zoe".into(), incarnation: tenure::Incarnation::from_bits(7) };
    Arc::new(Crash { of, token: token.into(), by: "guard 7 on host".into() })
}

#[test]
fn a_seat_that_a_last_will_has_freed_says_which_leader_died_and_who_freed_it() {
    let (mut scene, _standing) = Scene::vacant();
    let term = scene.seat.token.get();
    scene.seat.crash = Some(crash(term));
    let text = format!("jobs has no leader: zoe (term {term}) died, and guard 7 on host has freed the seat.");
    assert_found(&scene.explain(None), &["crashed", "ready", "unlisted"], &text);
    // A crash of an earlier term is not how this one ended.
    scene.seat.crash = Some(crash(term - 1));
    assert_found(&scene.explain(None), &["vacant", "ready", "last_crash", "unlisted"], "jobs has no leader");
}

#[test]
fn the_last_crash_is_shown_in_later_terms() {
    let stage = Stage::new();
    let _standing = stand(&stage, "alice", plain);
    let mut scene = Scene::read(&stage);
    scene.seat.crash = Some(crash(0));
    let text = "The last leader that crashed was zoe (term 0): it died, and guard 7 on host freed the seat.";
    assert_found(&scene.explain(None), &["leader", "last_crash"], text);
}

fn plain(builder: Builder) -> Builder {
    builder
}

fn stand(stage: &Stage, id: &str, configure: impl FnOnce(Builder) -> Builder) -> Election {
    let election = configure(stage.elections().election("jobs").candidate(id)).start().unwrap();
    stage.settle();
    election
}

fn codes(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.code).collect()
}

/// Checks the findings: their codes, and a part of the text of one of them.
#[track_caller]
fn assert_found(found: &[Finding], expected: &[&str], part: &str) {
    assert_eq!(codes(found), expected, "{found:#?}");
    assert!(found.iter().any(|finding| finding.text.contains(part)), "{part}: {found:#?}");
}

#[test]
fn an_election_that_was_never_used_has_no_candidates() {
    let mut scene = Scene::read(&Stage::new());
    let expected = ["never_led", "no_candidates", "other_store", "unlisted"];
    assert_found(&scene.explain(None), &expected, "has read jobs in memory:");
    assert_eq!(scene.explain(None)[1].command.as_deref(), Some("tenure run jobs -- CMD"));
    scene.seat.token = 7.into();
    assert_found(
        &scene.explain(None),
        &["vacant", "no_candidates", "other_store", "unlisted"],
        "of term 7 has released",
    );
}

#[test]
fn a_database_that_does_not_exist_is_named() {
    let scene = Scene::read(&Stage::new());
    let facts = Facts {
        election: "my jobs",
        store: "sqlite:/x.db",
        missing: Some(Path::new("/x.db")),
        seat: &scene.seat,
        candidates: &[],
        asked: None,
        now: SystemTime::now(),
    };
    let found = findings(&facts);
    assert_found(
        &found,
        &["no_database", "no_candidates", "other_store", "unlisted"],
        "the database /x.db does not exist",
    );
    assert_eq!(found[1].command.as_deref(), Some("tenure run 'my jobs' -- CMD"));
}

#[test]
fn a_leader_is_shown_with_its_lease() {
    let stage = Stage::new();
    let _alice = stand(&stage, "alice", plain);
    stage.advance(Duration::from_secs(1));
    let mut scene = Scene::read(&stage);
    assert_found(&scene.explain(None), &["leader"], "alice (term 1) leads jobs. Its lease of 15.0 s expires in 1");
    scene.seat.vouched = false;
    assert_found(&scene.explain(None), &["leader_unconfirmed"], "does not know whether it is alive");
    (scene.seat.vouched, scene.seat.expires_in) = (true, None);
    assert_found(&scene.explain(None), &["leader"], "the store knows that it is alive");
}

#[test]
fn a_leader_that_has_died_is_not_said_to_take_its_seat_again() {
    let stage = Stage::new();
    let _standing = [stand(&stage, "alice", plain), stand(&stage, "bob", plain)];
    let mut scene = Scene::read(&stage);
    scene.seat.lapsed = scene.seat.leader.take();
    scene.candidates.iter_mut().for_each(|status| status.is_leader = false);
    assert_found(&scene.explain(None), &["lapsed", "ready", "unlisted"], "bob can take the seat, and it leads within");
    // The process that was killed is the only candidate.
    scene.candidates.retain(|status| &*status.candidate.id == "alice");
    assert_eq!(codes(&scene.explain(None)), ["lapsed", "no_candidates", "other_store", "unlisted"]);
}

#[test]
fn a_lease_that_has_expired_is_told_from_a_seat_that_was_released() {
    let stage = Stage::new();
    // A candidate that is not of this program, and never renews.
    stage.usurp("jobs");
    stage.clock().advance(LEASE * 2);
    let scene = Scene::read(&stage);
    assert_eq!(codes(&scene.explain(None)), ["lapsed", "no_candidates", "other_store", "unlisted"]);
    assert!(scene.explain(None)[0].text.contains("(term 1) has not renewed its lease of "));
    let alice = stand(&stage, "alice", plain);
    stage.advance(LEASE * 2);
    alice.stop();
    stage.settle();
    let found = Scene::read(&stage).explain(None);
    assert_found(&found, &["vacant", "no_candidates", "other_store", "unlisted"], "the leader of term 2 has released");
}

#[test]
fn unhealthy_candidates_are_listed_with_their_errors() {
    let stage = Stage::new();
    let standing = [("alice", "no disk"), ("bob", "no\nnet")].map(|(id, error)| {
        let candidate = stand(&stage, id, plain);
        candidate.report_health(0.25, [("error", error)]).unwrap();
        stage.settle();
        candidate
    });
    let mut scene = Scene::read(&stage);
    let expected = ["vacant", "all_unhealthy", "unhealthy", "unhealthy", "unlisted"];
    assert_found(&scene.explain(None), &expected, "alice is not healthy enough to lead (score 0.25, error: no disk)");
    // Bob is mentioned once, although the user asks about bob.
    let expected = ["vacant", "candidate_unhealthy", "all_unhealthy", "unhealthy", "unlisted"];
    assert_found(&scene.explain(Some("bob")), &expected, "(score 0.25, error: no\u{fffd}net). It stands again");
    scene.candidates.pop();
    assert_found(&scene.explain(None), &["vacant", "all_unhealthy", "unhealthy", "unlisted"], "The only candidate");
    drop(standing);
}

#[test]
fn a_seat_that_is_reserved_names_its_heir() {
    let (mut scene, _standing) = Scene::vacant();
    scene.seat.heir = Some(scene.status("bob").candidate.clone());
    let found = scene.explain(None);
    assert_found(
        &found,
        &["vacant", "reserved", "ready", "unlisted"],
        "reserved for bob for two fifths of a lease (6.0 s)",
    );
    assert!(!found[1].text.contains("not listed"), "{found:#?}");
    scene.status("bob").healthy = false;
    assert_found(&scene.explain(None), &["vacant", "reserved", "ready", "unlisted"], "It is not listed as healthy");
}

#[test]
fn the_highest_priority_goes_first() {
    let (mut scene, _standing) = Scene::vacant();
    (scene.status("bob").priority, scene.seat.ranked) = (7, true);
    let found = scene.explain(Some("alice"));
    let expected = ["vacant", "candidate_outranked", "priority", "ready", "unlisted"];
    assert_found(&found, &expected, "bob goes before alice when the seat is free: its priority is 7, not 0");
    assert!(found[2].text.starts_with("bob goes first, because its priority (7) is the highest"), "{found:#?}");
}

#[test]
fn a_candidate_that_has_stepped_down_holds_back() {
    let stage = Stage::new();
    let alice = stand(&stage, "alice", plain);
    alice.step_down();
    stage.settle();
    let scene = Scene::read(&stage);
    let text = "alice has stepped down, and leaves the seat to others for up to ";
    assert_found(&scene.explain(None), &["vacant", "held_back", "unlisted"], text);
    assert_found(&scene.explain(Some("alice")), &["vacant", "candidate_held_back", "unlisted"], text);
    // Another candidate could take the seat, but is unhealthy.
    let _bob = stand(&stage, "bob", |builder| builder.health(async || false));
    let found = Scene::read(&stage).explain(None);
    assert_found(
        &found,
        &["vacant", "held_back", "unhealthy", "unlisted"],
        "bob is not healthy enough to lead (score 0.00)",
    );
    // It leads again once the time is up.
    stage.advance(LEASE * 2);
    assert_eq!(Scene::read(&stage).explain(None)[0].code, "leader");
}

#[test]
fn a_candidate_that_waits_can_be_handed_the_seat() {
    let stage = Stage::new();
    let _alice = stand(&stage, "alice", plain);
    let _bob = stand(&stage, "bob", |builder| builder.priority(3));
    let scene = Scene::read(&stage);
    let found = scene.explain(Some("bob"));
    assert_found(&found, &["leader", "candidate_waits"], "Its priority (3) is higher, but only with --preempt");
    assert_eq!(found[1].command.as_deref(), Some("tenure step-down jobs --to bob"));
    assert_found(&scene.explain(Some("alice")), &["leader", "candidate_leads"], "alice is the leader");
    assert_found(
        &scene.explain(Some("carol")),
        &["leader", "not_listed"],
        "carol is not listed as a candidate of jobs",
    );
    let twin = stand(&stage, "bob", plain);
    let expected = ["leader", "same_id", "candidate_waits", "candidate_outranked", "candidate_waits"];
    assert_found(&Scene::read(&stage).explain(Some("bob")), &expected, "2 candidates have the id bob");
    let incarnation = twin.candidate().incarnation.to_string();
    let expected = ["leader", "candidate_outranked", "candidate_waits"];
    assert_found(&Scene::read(&stage).explain(Some(&incarnation)), &expected, "bob is healthy and waits for alice");
}

#[test]
fn an_occasion_that_is_taken_is_shown() {
    let stage = Stage::new();
    let at = SystemTime::now();
    let alice = stand(&stage, "alice", |builder| builder.occasion(tenure::Occasion::at(at)));
    let text = format!("occasions up to {}: alice (term 1) took that one, which has not recorded", timestamp(at));
    assert_found(&Scene::read(&stage).explain(None), &["leader", "occasion_taken"], &text);
    alice.term().unwrap().finish();
    stage.settle();
    let found = Scene::read(&stage).explain(None);
    assert!(codes(&found).contains(&"occasion_done"), "{found:#?}");

    let later = tenure::Occasion::at(at + Duration::from_secs(7200));
    let _bob = stand(&stage, "bob", |builder| builder.occasion(later));
    let found = Scene::read(&stage).explain(None);
    assert_found(
        &found,
        &["leader", "occasion_taken", "occasion_ahead"],
        "is 1 h 59 min ahead of this machine's clock",
    );
    assert_eq!(found[2].command.as_deref(), Some("tenure forget jobs"));
}

#[test]
fn leases_that_differ_and_clocks_that_are_ahead_are_shown() {
    let stage = Stage::new();
    let _alice = stand(&stage, "alice", plain);
    let _bob = stand(&stage, "bob", |builder| builder.lease(Duration::from_secs(5)));
    let mut scene = Scene::read(&stage);
    assert_found(&scene.explain(None), &["leader", "leases_differ"], "different leases, from 5.0 s to 15.0 s");
    let soon = SystemTime::now() + Duration::from_secs(3);
    scene.candidates.iter_mut().for_each(|status| (status.lease, status.updated) = (None, Some(soon)));
    assert_found(&scene.explain(None), &["leader"], "");
    scene.status("bob").updated = Some(soon + Duration::from_secs(3600));
    let text = "The clock of bob is ahead of this machine's by at least 1 h 0 min";
    assert_found(&scene.explain(None), &["leader", "clock_ahead"], text);
    let leader = scene.seat.leader.as_mut().unwrap();
    leader.since = Some(soon + Duration::from_secs(60));
    assert_found(&scene.explain(None), &["leader", "clock_ahead", "clock_ahead"], "The clock of alice is ahead");
}
