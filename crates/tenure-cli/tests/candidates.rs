//! Candidates: how they are listed, and how a leader hands over by name and by priority.

#![cfg(target_os = "linux")]

mod common;

use common::{PROBE, Running, World, candidate, candidates, json_of, stand, text};
use rustix::process::Signal;
use serde_json::Value;

/// Starts candidates and waits until all are listed. The first one leads.
fn standing(world: &World, ids: &[&str]) -> Vec<Running> {
    let mut running = Vec::new();
    for id in ids {
        running.push(stand(world, id, &[]));
        if running.len() == 1 {
            world.start_number(1);
        }
    }
    world.eventually("all to be listed", || candidates(world).len() == ids.len());
    running
}

#[test]
fn an_election_without_candidates_exits_with_1() {
    let world = World::shared();
    let listed = world.output(&["candidates", "jobs"]);
    assert_eq!((listed.status.code(), text(&listed.stdout).as_str()), (Some(1), "jobs has no candidates\n"));
    let listed = world.output(&["candidates", "--json", "jobs"]);
    assert_eq!(listed.status.code(), Some(1));
    assert_eq!(json_of(&listed)["candidates"], Value::Array(Vec::new()));
}

#[test]
fn candidates_are_listed_with_the_leader_first_until_they_end() {
    let world = World::shared();
    let alice = stand(&world, "alice", &["--lease", "1s", "--metadata", "zone=a"]);
    world.start_number(1);
    let mut bob = stand(&world, "bob", &["--lease", "1s", "--priority", "-3"]);
    world.eventually("both to be listed", || candidates(&world).len() == 2);

    let listed = world.output(&["candidates", "--json", "jobs"]);
    assert_eq!(listed.status.code(), Some(0));
    let json = json_of(&listed);
    assert_eq!(json["election"], "jobs");
    let (first, second) = (&json["candidates"][0], &json["candidates"][1]);
    assert_eq!((&first["candidate"], &first["leader"]), (&"alice".into(), &true.into()));
    assert_eq!(first["metadata"]["zone"], "a");
    assert_eq!((&second["candidate"], &second["leader"]), (&"bob".into(), &false.into()));
    assert_eq!((&second["priority"], &second["score"], &second["healthy"]), (&(-3).into(), &1.0.into(), &true.into()));
    assert!(second["since"].as_str().unwrap().ends_with('Z') && second["updated"].as_str().unwrap().ends_with('Z'));
    assert_eq!(second["incarnation"].as_str().unwrap().len(), 32);

    let listed = world.output(&["candidates", "jobs"]);
    let table = text(&listed.stdout);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(listed.status.code(), Some(0));
    assert!(lines.len() == 3 && !table.contains('\x1b'), "{table}");
    assert!(lines[1].starts_with("alice      yes     1.00  yes             0  "), "{table}");
    assert!(lines[1].ends_with("zone=a") && lines[2].starts_with("bob        no "), "{table}");

    // A candidate that leaves is removed at once, a killed one when its announcement expires.
    bob.signal(Signal::TERM);
    bob.wait(&world);
    assert_eq!(candidates(&world).len(), 1);
    alice.signal(Signal::KILL);
    world.eventually("the killed candidate to be removed", || candidates(&world).is_empty());
    assert_eq!(world.output(&["candidates", "--quiet", "jobs"]).status.code(), Some(1));
}

#[test]
fn a_seat_is_handed_over_to_the_named_candidate_and_never_to_a_third() {
    let world = World::shared();
    let _running = standing(&world, &["a", "b", "c", "d"]);
    let mut expected = vec!["a"];
    for heir in ["c", "b", "a", "d", "c", "a"] {
        let asked = world.output(&["step-down", "jobs", "--to", heir]);
        let (from, term) = (expected[expected.len() - 1], expected.len());
        assert_eq!(asked.status.code(), Some(0), "{}", text(&asked.stderr));
        let line = format!("{from} (term {term}) has handed over: {heir} (term {}) leads\n", term + 1);
        assert_eq!(text(&asked.stdout), line);
        expected.push(heir);
        world.start_number(expected.len());
    }
    let starts = world.starts();
    assert_eq!(starts.iter().map(|start| start.candidate.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn a_hand_over_accepts_an_incarnation_and_prints_json() {
    let world = World::shared();
    let _running = standing(&world, &["a", "b"]);
    let b = candidate(&world, "b").unwrap()["incarnation"].as_str().unwrap().to_owned();
    let asked = json_of(&world.output(&["step-down", "--json", "jobs", "--to", &b]));
    assert_eq!((&asked["asked"]["candidate"], &asked["leader"]["candidate"]), (&"a".into(), &"b".into()));
    assert_eq!((&asked["handed_over"], &asked["to"]), (&true.into(), &b.into()));
    world.start_number(2);
    // With --wait 0s, the command returns once the leader was asked.
    let asked = world.output(&["step-down", "jobs", "--to", "a", "--wait", "0s"]);
    assert_eq!(text(&asked.stdout), "asked b (term 2) to hand over to a\n");
    assert_eq!(world.start_number(3).candidate, "a");
}

#[test]
fn an_impossible_hand_over_is_refused() {
    let world = World::shared();
    let asked = world.output(&["step-down", "jobs", "--to", "a"]);
    assert_eq!((asked.status.code(), text(&asked.stdout).as_str()), (Some(1), "no leader\n"));

    let mut running = standing(&world, &["a", "b"]);
    running.push(stand(&world, "ill", &["--health-cmd", "false"]));
    world.eventually("the unhealthy candidate to be listed", || {
        candidate(&world, "ill").is_some_and(|status| status["healthy"] == false)
    });
    for (to, expected) in [
        ("nobody", "the candidate \"nobody\" does not stand for \"jobs\"; the candidates are: a, b, ill"),
        ("a", "the candidate \"a\" already leads the election"),
        ("ill", "the candidate \"ill\" is not healthy enough to lead (score 0)"),
        ("", "the candidate \"\" does not stand"),
    ] {
        let asked = world.output(&["step-down", "jobs", "--to", to]);
        let error = text(&asked.stderr);
        assert_eq!(asked.status.code(), Some(2), "{error}");
        assert!(error.starts_with(&format!("tenure: {expected}")) && error.lines().count() == 1, "{error}");
    }
    assert_eq!(world.starts().len(), 1);
}

/// A command that wraps up slowly, so that its heir can be gone by then.
const SLOW: &str = "trap 'echo asked >> asked; until [ -e go ]; do sleep 0.01; done; exit' TERM
    exec 9>> probe; flock -n 9 || echo overlap >> log
    echo start $TENURE_TERM $$ a >> log; while :; do sleep 0.01; done";

#[test]
fn step_down_fails_if_another_candidate_leads_instead_of_the_heir() {
    let world = World::shared();
    let _leader = world.run(&["--candidate", "a", "--lease", "3s", "--stop-grace", "1h"], SLOW);
    world.start_number(1);
    let heir = stand(&world, "b", &["--lease", "3s"]);
    let _third = stand(&world, "c", &["--lease", "3s"]);
    world.eventually("all to be listed", || candidates(&world).len() == 3);
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| world.output(&["step-down", "jobs", "--to", "b", "--wait", "60s"]));
        world.eventually("the leader to be asked", || !world.lines("asked").is_empty());
        let again = world.output(&["step-down", "jobs", "--to", "b", "--wait", "100ms"]);
        let error = text(&again.stderr);
        assert_eq!(again.status.code(), Some(2), "{error}");
        assert!(error.starts_with("tenure: a (term 1) was asked, but b does not lead after 100ms; "), "{error}");
        heir.signal(Signal::KILL);
        world.eventually("the heir to be gone", || candidate(&world, "b").is_none());
        std::fs::write(world.path("go"), "").unwrap();
        asked.join().unwrap()
    });
    let error = text(&asked.stderr);
    assert_eq!(asked.status.code(), Some(2), "{error}");
    assert_eq!(error, "tenure: a (term 1) has handed over, but c (term 2) leads instead of b; try again\n");
    assert_eq!(world.start_number(2).candidate, "c");
}

#[test]
fn of_two_concurrent_hand_overs_the_first_one_wins_and_the_other_one_fails() {
    let world = World::shared();
    let _leader = world.run(&["--candidate", "a", "--lease", "3s", "--stop-grace", "1h"], SLOW);
    world.start_number(1);
    let _others = ["b", "c"].map(|id| stand(&world, id, &["--lease", "3s"]));
    world.eventually("all to be listed", || candidates(&world).len() == 3);
    let first = std::thread::scope(|scope| {
        let first = scope.spawn(|| world.output(&["step-down", "jobs", "--to", "b", "--wait", "60s"]));
        world.eventually("the leader to be asked", || !world.lines("asked").is_empty());
        let second = world.output(&["step-down", "jobs", "--to", "c", "--wait", "200ms"]);
        let error = text(&second.stderr);
        assert_eq!(second.status.code(), Some(2), "{error}");
        assert!(error.starts_with("tenure: a (term 1) was asked, but c does not lead after 200ms; "), "{error}");
        std::fs::write(world.path("go"), "").unwrap();
        first.join().unwrap()
    });
    assert_eq!(text(&first.stdout), "a (term 1) has handed over: b (term 2) leads\n");
    assert_eq!(world.start_number(2).candidate, "b");
}

#[test]
fn a_free_seat_goes_to_the_highest_priority() {
    let world = World::shared();
    // The leader has a priority, so its record says from the start that there are priorities.
    let mut leader = stand(&world, "leader", &["--priority", "9"]);
    world.start_number(1);
    let [_low, mut high, _mid] =
        [("low", "1"), ("high", "7"), ("mid", "3")].map(|(id, priority)| stand(&world, id, &["--priority", priority]));
    world.eventually("all to be listed", || candidates(&world).len() == 4);
    leader.signal(Signal::TERM);
    leader.wait(&world);
    assert_eq!(world.start_number(2).candidate, "high");
    let order: Vec<_> = candidates(&world).iter().map(|status| status["candidate"].clone()).collect();
    assert_eq!(order, ["high", "mid", "low"]);
    // A killed leader is followed by the next in priority, too, once it is removed from the list.
    high.signal(Signal::KILL);
    high.wait(&world);
    assert_eq!(world.start_number(3).candidate, "mid");
}

#[test]
fn a_higher_priority_preempts_if_asked_to() {
    let world = World::shared();
    let _leader = stand(&world, "leader", &["--lease", "1s"]);
    world.start_number(1);
    let mut command = world.tenure(&["run", "--preempt", "--lease", "1s", "jobs", "--", "sh", "-c", PROBE]);
    // Options can come from variables.
    command.env("TENURE_PRIORITY", "7").env("TENURE_CANDIDATE", "eager");
    let _eager = Running { child: command.spawn().unwrap() };
    assert_eq!(world.start_number(2).candidate, "eager");
}
