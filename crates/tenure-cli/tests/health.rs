//! `tenure run --health-cmd`: an unhealthy candidate does not lead, and a health command does no harm.

#![cfg(target_os = "linux")]

mod common;

use std::fs;

use common::{PROBE, Running, World, candidate, children, is_alive, json_of, pid, send, stand, text};
use rustix::process::{Pid, Signal};

/// Frequent checks, with a long time-out for a busy machine.
const QUICK: [&str; 6] = ["--lease", "2s", "--health-every", "50ms", "--health-timeout", "20s"];

/// Frequent checks, with a short time-out.
const SHORT_TIMEOUT: [&str; 6] = ["--lease", "1s", "--health-every", "50ms", "--health-timeout", "300ms"];

/// Starts a candidate with this health command.
fn stand_checked(world: &World, id: &str, command: &str) -> Running {
    stand(world, id, &[&QUICK[..], &["--health-cmd", command]].concat())
}

/// Waits until the candidate is listed as unhealthy, and returns the error of its health command.
fn health_error(world: &World, id: &str) -> String {
    let mut error = None;
    world.eventually("the health error to be listed", || {
        let status = candidate(world, id).filter(|status| status["healthy"] == false && status["score"] == 0.0);
        error = status.and_then(|status| Some(status["metadata"]["error"].as_str()?.to_owned()));
        error.is_some()
    });
    error.unwrap()
}

/// Returns the number of lines on standard error that contain these words.
fn printed(world: &World, words: &str) -> usize {
    world.lines("errors").iter().filter(|line| line.contains(words)).count()
}

#[test]
fn an_unhealthy_leader_hands_over_and_stands_again_when_it_is_healthy() {
    let world = World::shared();
    fs::write(world.path("healthy"), "").unwrap();
    let alice = stand_checked(&world, "alice", "test -e healthy || { echo the disk is full >&2; exit 3; }");
    world.start_number(1);
    let mut bob = stand(&world, "bob", &["--lease", "2s"]);
    world.eventually("bob to be listed", || candidate(&world, "bob").is_some());

    fs::remove_file(world.path("healthy")).unwrap();
    assert_eq!(world.start_number(2).candidate, "bob");
    assert_eq!(health_error(&world, "alice"), "the health command exited with code 3: the disk is full");
    let line = "tenure: the candidate is unhealthy: the health command exited with code 3: the disk is full";
    assert_eq!((printed(&world, line), printed(&world, "is healthy again")), (1, 0));

    fs::write(world.path("healthy"), "").unwrap();
    world.eventually("alice to be healthy", || {
        candidate(&world, "alice").is_some_and(|status| status["healthy"] == true)
    });
    world.eventually("the recovery to be printed", || printed(&world, "tenure: the candidate is healthy again") == 1);
    bob.signal(Signal::TERM);
    bob.wait(&world);
    assert_eq!(world.start_number(3).candidate, "alice");
    assert_eq!(candidate(&world, "alice").unwrap()["metadata"]["error"], serde_json::Value::Null);
    drop(alice);
}

#[test]
fn while_no_candidate_is_healthy_the_seat_stays_vacant() {
    let world = World::shared();
    let _running = ["a", "b"].map(|id| stand_checked(&world, id, &format!("test -e healthy-{id}")));
    for id in ["a", "b"] {
        assert_eq!(health_error(&world, id), "the health command exited with code 1");
    }
    let status = world.output(&["status", "--json", "jobs"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status.stdout));
    assert_eq!(world.output(&["candidates", "jobs"]).status.code(), Some(0));
    assert!(world.starts().is_empty());
    fs::write(world.path("healthy-b"), "").unwrap();
    assert_eq!(world.start_number(1).candidate, "b");
}

#[test]
fn with_no_step_down_when_unhealthy_an_unhealthy_leader_keeps_leading() {
    let world = World::shared();
    fs::write(world.path("healthy"), "").unwrap();
    let options = [&QUICK[..], &["--health-cmd", "test -e healthy", "--no-step-down-when-unhealthy"]].concat();
    let _alice = stand(&world, "alice", &options);
    world.start_number(1);
    fs::remove_file(world.path("healthy")).unwrap();
    health_error(&world, "alice");
    let status = json_of(&world.output(&["status", "--json", "jobs"]));
    assert_eq!((&status["leader"]["candidate"], &status["leader"]["token"]), (&"alice".into(), &1.into()));
}

#[test]
fn a_health_command_gets_its_election_and_candidate_and_an_empty_input() {
    let world = World::shared();
    let command = "cat; echo $TENURE_ELECTION $TENURE_CANDIDATE ${TENURE_TERM-none} >> checks";
    let mut command = world.tenure(&["run", "--health-cmd", command, "jobs", "--", "sh", "-c", "cat >> got"]);
    command.env("TENURE_CANDIDATE", "alice").stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    world.eventually("a check", || !world.lines("checks").is_empty());
    assert_eq!(world.lines("checks")[0], "jobs alice none");
    // Only the main command reads standard input.
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(world.lines("got"), ["hello"]);
    world.eventually_empty();
}

#[test]
fn a_number_on_the_last_line_is_the_score() {
    let world = World::shared();
    // The number counts however much output comes before it.
    let _alice = stand_checked(&world, "alice", "seq 1 200000; echo 0.9");
    assert_eq!(world.start_number(1).candidate, "alice");
    // A score that does not change `healthy` is published within a lease.
    world.eventually("the score to be published", || {
        candidate(&world, "alice").is_some_and(|status| status["score"] == 0.9)
    });
    let _bob = stand_checked(&world, "bob", "echo 0.5");
    world.eventually("bob's score to be 0.5", || candidate(&world, "bob").is_some_and(|status| status["score"] == 0.5));
    assert_eq!(candidate(&world, "bob").unwrap()["healthy"], false);
    world.eventually("the low score to be printed", || {
        printed(&world, "unhealthy: the health command reports a score of 0.5, below the minimum of 0.8") == 1
    });
    let _carol = stand(&world, "carol", &[&QUICK[..], &["--health-cmd", "echo 0.5", "--min-health", "0.5"]].concat());
    world.eventually("carol to be healthy", || {
        candidate(&world, "carol").is_some_and(|status| status["healthy"] == true)
    });
    // A last line that is not a number counts as a score of 1.
    let _dave = stand_checked(&world, "dave", "echo fine; echo checked >> fine");
    world.eventually("dave to be listed", || candidate(&world, "dave").is_some());
    world.eventually("a check", || !world.lines("fine").is_empty());
    assert_eq!(candidate(&world, "dave").unwrap()["score"], 1.0);
}

#[test]
fn the_errors_of_health_commands_are_listed_and_their_candidates_do_not_lead() {
    let world = World::shared();
    let bad = [
        ("two", "echo 2", "the health command reports a score of 2; a score must be from 0 to 1"),
        ("nan", "echo NaN", "the health command reports a score of NaN; a score must be from 0 to 1"),
        ("minus", "echo -1", "the health command reports a score of -1; a score must be from 0 to 1"),
        ("killed", "kill -9 $$", "the health command was killed by signal 9"),
        ("hangs", "sleep 1000", "the health command timed out after 300ms"),
        ("floods", "yes", "the health command timed out after 300ms"),
        ("floods-stderr", "yes >&2", "the health command timed out after 300ms"),
        ("typo", "(", "the health command exited with code 2: "),
        ("nosuch", "./nosuch", "the health command exited with code 127: "),
    ];
    for (id, command, expected) in bad {
        let options = if expected.contains("300ms") { SHORT_TIMEOUT } else { QUICK };
        let mut running = stand(&world, id, &[&options[..], &["--health-cmd", command]].concat());
        let error = health_error(&world, id);
        assert!(error.starts_with(expected), "{id}: {error}");
        running.signal(Signal::TERM);
        assert_eq!(running.code(&world), 143, "{id}");
    }
    assert!(world.starts().is_empty());
    world.eventually_empty();
}

#[test]
fn an_unhealthy_candidate_that_does_not_wait_says_why_and_exits() {
    let world = World::shared();
    let message = "tenure: the candidate is unhealthy: the health command exited with code 1\n";
    for patience in [&["--no-wait"][..], &["--wait", "1s"]] {
        let health = ["--quiet", "--health-cmd", "exit 1", "jobs", "--", "true"];
        let output = world.output(&[&["run"], patience, &health].concat());
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), message), "{patience:?}");
    }
}

#[test]
fn without_a_shell_the_candidate_is_unhealthy() {
    let world = World::shared();
    let mut command = world.tenure(&["run", "--candidate", "alice", "--health-cmd", "true", "jobs", "--", "/bin/true"]);
    let mut running = Running { child: command.env("PATH", "/nowhere").spawn().unwrap() };
    let error = health_error(&world, "alice");
    assert!(error.starts_with("cannot start the health command: "), "{error}");
    running.signal(Signal::TERM);
    assert_eq!(running.code(&world), 143);
}

#[test]
fn a_flood_of_output_does_not_fill_the_memory() {
    let world = World::shared();
    let options = [&SHORT_TIMEOUT[..], &["--health-cmd", "echo x >> checks; yes"]].concat();
    let tenure = stand(&world, "alice", &options);
    world.eventually("a few checks", || world.lines("checks").len() >= 3);
    let status = fs::read_to_string(format!("/proc/{}/status", tenure.pid().as_raw_nonzero())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 200_000, "{peak} kB");
}

/// A health command that hangs, with a second process in a session of its own that hangs, too. Each of the two writes
/// down its process id and the process id of the check.
const HANGS: &str =
    "(setsid sh -c 'trap \"\" TERM; echo $$ $0 >> checks; exec sleep 1000' $$ &); echo $$ $$ >> checks; sleep 1000";

fn pids(world: &World) -> Vec<Pid> {
    world.lines("checks").iter().map(|line| pid(line, 0)).collect()
}

#[test]
fn at_the_time_out_all_processes_of_a_health_command_are_killed() {
    let world = World::shared();
    let mut tenure = stand(&world, "alice", &[&SHORT_TIMEOUT[..], &["--health-cmd", HANGS]].concat());
    // On a busy machine, a check can time out before both of its processes have started.
    let mut ended = None;
    world.eventually("a check with two processes, and the start of the next check", || {
        let lines = world.lines("checks");
        let check = |at: usize| Some(lines.get(at)?.split_once(' ')?.1);
        let both = (1..lines.len()).find(|at| check(*at) == check(at - 1) && check(at + 1).is_some());
        ended = both.map(|at| [pid(&lines[at - 1], 0), pid(&lines[at], 0)]);
        ended.is_some()
    });
    let ended = ended.unwrap();
    assert!(ended.iter().all(|pid| !is_alive(*pid)), "{ended:?}");
    // Processes that it leaves behind when it exits are killed, too, and do not delay the end of the check.
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
    let left = "(setsid sh -c 'echo $$ >> checks; exec sleep 1000' &); until [ -s checks ]; do sleep 0.01; done";
    fs::remove_file(world.path("checks")).unwrap();
    let _bob = stand(
        &world,
        "bob",
        &["--lease", "1s", "--health-every", "50ms", "--health-timeout", "1h", "--health-cmd", left],
    );
    world.start_number(1);
    assert!(!is_alive(pids(&world)[0]));
}

#[test]
fn a_health_command_dies_with_tenure() {
    for signal in [Signal::TERM, Signal::KILL] {
        let world = World::shared();
        let options = ["--lease", "1s", "--health-timeout", "1h", "--health-cmd", HANGS];
        let mut tenure = stand(&world, "alice", &options);
        world.eventually("the health command to hang", || pids(&world).len() == 2);
        // The check has not answered, so the candidate does not stand yet. It must still be able to leave.
        tenure.signal(signal);
        tenure.wait(&world);
        world.eventually_empty();
        assert!(world.starts().is_empty());
    }
}

/// Returns the guard of the health command and the guard of the main command.
fn guards(world: &World, tenure: &Running, command: &str) -> (Pid, Pid) {
    let mut found = (None, None);
    world.eventually("both guards", || {
        for child in children(tenure.pid()) {
            let line = fs::read(format!("/proc/{}/cmdline", child.as_raw_nonzero())).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains("__guard") {
                let guard = if line.contains(command) { &mut found.0 } else { &mut found.1 };
                *guard = Some(child);
            }
        }
        found.0.is_some() && found.1.is_some()
    });
    (found.0.unwrap(), found.1.unwrap())
}

#[test]
fn a_guard_that_is_killed_or_stopped_does_not_affect_the_other_one() {
    let world = World::shared();
    let command = "echo $$ >> checks; true";
    let mut tenure = stand(
        &world,
        "alice",
        &["--lease", "3s", "--health-every", "50ms", "--health-timeout", "20s", "--health-cmd", command],
    );
    let first = world.start_number(1);
    let checks_continue = || {
        let before = pids(&world).len();
        world.eventually("more checks", || pids(&world).len() > before + 2);
    };
    checks_continue();

    // Checks continue with another guard, and the main command is not affected.
    let (of_health, of_command) = guards(&world, &tenure, command);
    send(of_health, Signal::KILL);
    world.eventually("another guard", || guards(&world, &tenure, command).0 != of_health);
    checks_continue();
    assert!(is_alive(of_command) && is_alive(first.pid) && world.starts().len() == 1);

    // The guard of the main command is killed: the checks are not affected.
    let (of_health, of_command) = guards(&world, &tenure, command);
    send(of_command, Signal::KILL);
    let second = world.start_number(2);
    assert!(is_alive(of_health) && is_alive(second.pid) && !is_alive(first.pid));
    checks_continue();
    let (_, of_command) = guards(&world, &tenure, command);

    // A guard that is stopped is resumed when it is needed.
    send(of_health, Signal::STOP);
    checks_continue();
    assert!(is_alive(of_command) && is_alive(second.pid) && world.starts().len() == 2);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn invalid_health_options_are_refused() {
    let world = World::shared();
    let long = format!("x={}", "y".repeat(70_000));
    for (args, expected) in [
        (&["--priority", "2147483648"][..], "from -2147483648 to 2147483647"),
        (&["--priority", "high"], "whole number"),
        (&["--min-health", "1.5"], "from 0"),
        (&["--min-health", "-1"], "from 0"),
        (&["--min-health", "NaN"], "from 0"),
        (&["--health-every", "5s"], "--health-every has no effect without --health-cmd"),
        (&["--health-timeout", "5s"], "--health-timeout has no effect without --health-cmd"),
        (&["--health-cmd", " ", "--health-every", "5s"], "--health-every has no effect without --health-cmd"),
        (&["--health-cmd", "true", "--health-every", "5"], "5s"),
        (&["--health-cmd", "true", "--health-every", "0s"], "must not be 0"),
        (&["--health-cmd", "true", "--health-timeout", "0s"], "must not be 0"),
        (&["--metadata", &long], "too long"),
    ] {
        assert_refused(&world, world.tenure(&[&["run"], args, &["jobs", "--", "true"]].concat()), expected);
    }
    for (variable, value, expected) in [
        ("TENURE_PRIORITY", "99999999999", "TENURE_PRIORITY: 99999999999 is out of range"),
        ("TENURE_MIN_HEALTH", "much", "TENURE_MIN_HEALTH"),
        ("TENURE_MIN_HEALTH", "2", "TENURE_MIN_HEALTH: must be a number from 0"),
        ("TENURE_PREEMPT", "maybe", "TENURE_PREEMPT"),
        ("TENURE_HEALTH_COMMAND", "true", "TENURE_HEALTH"),
    ] {
        let mut command = world.tenure(&["run", "jobs", "--", "true"]);
        command.env(variable, value);
        assert_refused(&world, command, expected);
    }
    for (option, expected) in [
        ("min_helth = 0.5", "did you mean `min_health`?"),
        ("min_health = nan", "min_health"),
        ("min_health = 1.5", "min_health"),
        ("priority = 2147483648", "elections.jobs.priority: 2147483648 is out of range: use a whole number"),
        ("health_cmd = 3", "elections.jobs.health_cmd: "),
        ("health_cmd = \"true\"\nhealth_every = \"0s\"", "must not be 0"),
        ("health_cmd = \"true\"\nhealth_timeout = 2", "elections.jobs.health_timeout: "),
    ] {
        fs::write(world.path("tenure.toml"), format!("[elections.jobs]\n{option}\n")).unwrap();
        assert_refused(&world, world.tenure(&["run", "jobs", "--", "true"]), expected);
    }
    assert!(world.starts().is_empty());
}

fn assert_refused(world: &World, command: std::process::Command, expected: &str) {
    let output = world.output_of(command);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    let one_line = error.starts_with("tenure: ") && error.lines().count() == 1;
    assert!(one_line && error.contains(expected), "{expected:?}: {error}");
}

#[test]
fn a_health_command_can_come_from_a_variable() {
    let world = World::shared();
    let mut command = world.tenure(&["run", "--lease", "1s", "--candidate", "alice", "jobs", "--", "sh", "-c", PROBE]);
    command.env("TENURE_HEALTH_CMD", "exit 4").env("TENURE_HEALTH_EVERY", "100ms").env("TENURE_HEALTH_TIMEOUT", "20s");
    let mut running = Running { child: command.stderr(std::process::Stdio::null()).spawn().unwrap() };
    assert_eq!(health_error(&world, "alice"), "the health command exited with code 4");
    running.signal(Signal::TERM);
    assert_eq!(running.code(&world), 143);
}

#[test]
fn a_health_command_can_come_from_a_file_and_flags_override_it() {
    let world = World::shared();
    let file = "[elections.jobs]\nhealth_cmd = \"exit 5\"\nhealth_every = \"50ms\"\nhealth_timeout = \"20s\"\n";
    fs::write(world.path("tenure.toml"), file).unwrap();
    let check = |id: &str, options: &[&str], expected: &str| {
        let mut running = stand(&world, id, &[&["--lease", "1s"], options].concat());
        assert_eq!(health_error(&world, id), expected);
        running.signal(Signal::TERM);
        assert_eq!(running.code(&world), 143);
    };
    check("alice", &[], "the health command exited with code 5");
    check("bob", &["--health-cmd", "exit 6"], "the health command exited with code 6");
    let timed_out = "the health command timed out after 300ms";
    check("carol", &["--health-cmd", "sleep 1000", "--health-timeout", "300ms"], timed_out);
    assert!(world.starts().is_empty());
    // An empty flag turns the health command off. The options from the file are not refused then.
    let _dave = stand(&world, "dave", &["--lease", "1s", "--health-cmd", ""]);
    assert_eq!(world.start_number(1).candidate, "dave");
}
