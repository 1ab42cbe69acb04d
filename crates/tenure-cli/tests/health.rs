//! `tenure run --health-cmd`: who is not well does not lead, and a health command does no harm.

#![cfg(target_os = "linux")]

mod common;

use std::fs;

use common::{PROBE, Running, World, candidate, children, is_alive, json_of, pid, send, stand, text};
use rustix::process::{Pid, Signal};

/// Checks often, with patience for a busy machine.
const QUICK: [&str; 6] = ["--lease", "2s", "--health-every", "50ms", "--health-timeout", "20s"];

/// With little patience.
const HASTY: [&str; 6] = ["--lease", "1s", "--health-every", "50ms", "--health-timeout", "300ms"];

/// Starts a candidate that is as well as this command says.
fn checked(world: &World, id: &str, command: &str) -> Running {
    stand(world, id, &[&QUICK[..], &["--health-cmd", command]].concat())
}

/// Waits until the candidate is listed as not well, and returns what is wrong with it.
fn unwell(world: &World, id: &str) -> String {
    let mut wrong = None;
    world.eventually("what is wrong to be told", || {
        let status = candidate(world, id).filter(|status| status["healthy"] == false && status["score"] == 0.0);
        wrong = status.and_then(|status| Some(status["metadata"]["error"].as_str()?.to_owned()));
        wrong.is_some()
    });
    wrong.unwrap()
}

fn said(world: &World, line: &str) -> usize {
    world.lines("errors").iter().filter(|said| said.contains(line)).count()
}

#[test]
fn an_unhealthy_leader_hands_over_and_stands_again_when_it_is_well() {
    let world = World::shared();
    fs::write(world.path("well"), "").unwrap();
    let alice = checked(&world, "alice", "test -e well || { echo the well is dry >&2; exit 3; }");
    world.start_number(1);
    let mut bob = stand(&world, "bob", &["--lease", "2s"]);
    world.eventually("bob to be listed", || candidate(&world, "bob").is_some());

    fs::remove_file(world.path("well")).unwrap();
    assert_eq!(world.start_number(2).candidate, "bob");
    assert_eq!(unwell(&world, "alice"), "the health command ended with exit code 3: the well is dry");
    let line = "tenure: is not well enough to lead jobs: the health command ended with exit code 3: the well is dry";
    assert_eq!((said(&world, line), said(&world, "is well again")), (1, 0));

    fs::write(world.path("well"), "").unwrap();
    world.eventually("alice to be well", || candidate(&world, "alice").is_some_and(|status| status["healthy"] == true));
    world.eventually("that to be told", || said(&world, "tenure: is well again") == 1);
    bob.signal(Signal::TERM);
    bob.wait(&world);
    assert_eq!(world.start_number(3).candidate, "alice");
    assert_eq!(candidate(&world, "alice").unwrap()["metadata"]["error"], serde_json::Value::Null);
    drop(alice);
}

#[test]
fn with_nobody_well_nobody_leads_until_one_is() {
    let world = World::shared();
    let _running = ["a", "b"].map(|id| checked(&world, id, &format!("test -e well-{id}")));
    for id in ["a", "b"] {
        assert_eq!(unwell(&world, id), "the health command ended with exit code 1");
    }
    let status = world.output(&["status", "--json", "jobs"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status.stdout));
    assert_eq!(world.output(&["candidates", "jobs"]).status.code(), Some(0));
    assert!(world.starts().is_empty());
    fs::write(world.path("well-b"), "").unwrap();
    assert_eq!(world.start_number(1).candidate, "b");
}

#[test]
fn a_leader_that_is_told_to_goes_on_though_it_is_not_well() {
    let world = World::shared();
    fs::write(world.path("well"), "").unwrap();
    let options = [&QUICK[..], &["--health-cmd", "test -e well", "--no-step-down-when-unhealthy"]].concat();
    let _alice = stand(&world, "alice", &options);
    world.start_number(1);
    fs::remove_file(world.path("well")).unwrap();
    unwell(&world, "alice");
    let status = json_of(&world.output(&["status", "--json", "jobs"]));
    assert_eq!((&status["leader"]["candidate"], &status["leader"]["token"]), (&"alice".into(), &1.into()));
}

#[test]
fn a_health_command_knows_whom_it_is_asked_about_and_has_nothing_to_read() {
    let world = World::shared();
    let command = "cat; echo $TENURE_ELECTION $TENURE_CANDIDATE ${TENURE_TERM-none} >> asked";
    let mut command = world.tenure(&["run", "--health-cmd", command, "jobs", "--", "sh", "-c", "cat >> got"]);
    command.env("TENURE_CANDIDATE", "alice").stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    world.eventually("the health command to be asked", || !world.lines("asked").is_empty());
    assert_eq!(world.lines("asked")[0], "jobs alice none");
    // The standard input is the command's alone.
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"hello\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(world.lines("got"), ["hello"]);
    world.eventually_empty();
}

#[test]
fn numbers_that_are_printed_are_scores() {
    let world = World::shared();
    // However much comes before.
    let _alice = checked(&world, "alice", "seq 1 200000; echo 0.9");
    assert_eq!(world.start_number(1).candidate, "alice");
    // What changes nothing is told by and by.
    world
        .eventually("the score to be told", || candidate(&world, "alice").is_some_and(|status| status["score"] == 0.9));
    let _bob = checked(&world, "bob", "echo 0.5");
    world.eventually("bob to be half well", || candidate(&world, "bob").is_some_and(|status| status["score"] == 0.5));
    assert_eq!(candidate(&world, "bob").unwrap()["healthy"], false);
    world.eventually("that to be told", || {
        said(&world, "is not well enough to lead jobs: the health command says 0.5, which is below 0.8") == 1
    });
    let _carol = stand(&world, "carol", &[&QUICK[..], &["--health-cmd", "echo 0.5", "--min-health", "0.5"]].concat());
    world.eventually("carol to be well", || candidate(&world, "carol").is_some_and(|status| status["healthy"] == true));
    // What is no number says nothing.
    let _dave = checked(&world, "dave", "echo fine; echo checked >> fine");
    world.eventually("dave to be listed", || candidate(&world, "dave").is_some());
    world.eventually("a check to be over", || !world.lines("fine").is_empty());
    assert_eq!(candidate(&world, "dave").unwrap()["score"], 1.0);
}

#[test]
fn health_commands_that_make_no_sense_are_told_and_do_not_lead() {
    let world = World::shared();
    let bad = [
        ("two", "echo 2", "the health command says 2, which is not from 0 to 1"),
        ("nan", "echo NaN", "the health command says NaN, which is not from 0 to 1"),
        ("minus", "echo -1", "the health command says -1, which is not from 0 to 1"),
        ("killed", "kill -9 $$", "the health command was ended by signal 9"),
        ("hangs", "sleep 1000", "the health command took longer than 300ms and was killed"),
        ("floods", "yes", "the health command took longer than 300ms and was killed"),
        ("floods-aside", "yes >&2", "the health command took longer than 300ms and was killed"),
        ("typo", "(", "the health command ended with exit code 2: "),
        ("nosuch", "./nosuch", "the health command ended with exit code 127: "),
    ];
    for (id, command, wrong) in bad {
        let patience = if wrong.contains("300ms") { HASTY } else { QUICK };
        let mut running = stand(&world, id, &[&patience[..], &["--health-cmd", command]].concat());
        let told = unwell(&world, id);
        assert!(told.starts_with(wrong), "{id}: {told}");
        running.signal(Signal::TERM);
        assert_eq!(running.code(&world), 143, "{id}");
    }
    assert!(world.starts().is_empty());
    world.eventually_empty();
}

#[test]
fn without_a_shell_there_is_no_health() {
    let world = World::shared();
    let mut command = world.tenure(&["run", "--candidate", "alice", "--health-cmd", "true", "jobs", "--", "/bin/true"]);
    let mut running = Running { child: command.env("PATH", "/nowhere").spawn().unwrap() };
    let told = unwell(&world, "alice");
    assert!(told.starts_with("the health command could not be started: "), "{told}");
    running.signal(Signal::TERM);
    assert_eq!(running.code(&world), 143);
}

#[test]
fn a_flood_of_output_does_not_fill_the_memory() {
    let world = World::shared();
    let options = [&HASTY[..], &["--health-cmd", "echo x >> asked; yes"]].concat();
    let tenure = stand(&world, "alice", &options);
    world.eventually("a few checks", || world.lines("asked").len() >= 3);
    let status = fs::read_to_string(format!("/proc/{}/status", tenure.pid().as_raw_nonzero())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most < 200_000, "{most} kB");
}

/// Hangs, and has others hang with it that went away.
/// Each of its two processes writes down its number, and that of the check.
const HANGS: &str =
    "(setsid sh -c 'trap \"\" TERM; echo $$ $0 >> asked; exec sleep 1000' $$ &); echo $$ $$ >> asked; sleep 1000";

fn pids(world: &World) -> Vec<Pid> {
    world.lines("asked").iter().map(|line| pid(line, 0)).collect()
}

#[test]
fn at_its_time_out_everything_of_a_health_command_is_killed() {
    let world = World::shared();
    let mut tenure = stand(&world, "alice", &[&HASTY[..], &["--health-cmd", HANGS]].concat());
    // On a busy machine, its time may be up before both of its processes have begun.
    let mut ended = None;
    world.eventually("a check after one of which both processes had begun", || {
        let lines = world.lines("asked");
        let check = |at: usize| Some(lines.get(at)?.split_once(' ')?.1);
        let both = (1..lines.len()).find(|at| check(*at) == check(at - 1) && check(at + 1).is_some());
        ended = both.map(|at| [pid(&lines[at - 1], 0), pid(&lines[at], 0)]);
        ended.is_some()
    });
    let ended = ended.unwrap();
    assert!(ended.iter().all(|pid| !is_alive(*pid)), "{ended:?}");
    // What it leaves behind when it ends by itself goes, too, and does not keep its check from ending.
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
    let left = "(setsid sh -c 'echo $$ >> asked; exec sleep 1000' &); until [ -s asked ]; do sleep 0.01; done";
    fs::remove_file(world.path("asked")).unwrap();
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
        // It has not answered yet, so the candidate does not stand yet; and leaves all the same.
        tenure.signal(signal);
        tenure.wait(&world);
        world.eventually_empty();
        assert!(world.starts().is_empty());
    }
}

/// The guard of the health command, and the one of the command.
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
fn a_guard_that_is_killed_or_stopped_does_not_hurt_the_other_one() {
    let world = World::shared();
    let command = "echo $$ >> asked; true";
    let mut tenure = stand(
        &world,
        "alice",
        &["--lease", "3s", "--health-every", "50ms", "--health-timeout", "20s", "--health-cmd", command],
    );
    let first = world.start_number(1);
    let checks_go_on = || {
        let asked = pids(&world).len();
        world.eventually("the health command to be asked again and again", || pids(&world).len() > asked + 2);
    };
    checks_go_on();

    // Checks go on with another guard, and the command does not notice.
    let (of_health, of_command) = guards(&world, &tenure, command);
    send(of_health, Signal::KILL);
    world.eventually("another guard", || guards(&world, &tenure, command).0 != of_health);
    checks_go_on();
    assert!(is_alive(of_command) && is_alive(first.pid) && world.starts().len() == 1);

    // The other way round.
    let (of_health, of_command) = guards(&world, &tenure, command);
    send(of_command, Signal::KILL);
    let second = world.start_number(2);
    assert!(is_alive(of_health) && is_alive(second.pid) && !is_alive(first.pid));
    checks_go_on();
    let (_, of_command) = guards(&world, &tenure, command);

    // One that is stopped is woken up when it is needed.
    send(of_health, Signal::STOP);
    checks_go_on();
    assert!(is_alive(of_command) && is_alive(second.pid) && world.starts().len() == 2);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn options_of_health_that_make_no_sense_are_refused() {
    let world = World::shared();
    let long = format!("x={}", "y".repeat(70_000));
    for (args, says) in [
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
        is_refused(&world, world.tenure(&[&["run"], args, &["jobs", "--", "true"]].concat()), says);
    }
    for (variable, value, says) in [
        ("TENURE_PRIORITY", "99999999999", "TENURE_PRIORITY: 99999999999 is out of range"),
        ("TENURE_MIN_HEALTH", "much", "TENURE_MIN_HEALTH"),
        ("TENURE_MIN_HEALTH", "2", "min_health"),
        ("TENURE_PREEMPT", "maybe", "TENURE_PREEMPT"),
        ("TENURE_HEALTH_COMMAND", "true", "TENURE_HEALTH"),
    ] {
        let mut command = world.tenure(&["run", "jobs", "--", "true"]);
        command.env(variable, value);
        is_refused(&world, command, says);
    }
    for (option, says) in [
        ("min_helth = 0.5", "did you mean `min_health`?"),
        ("min_health = nan", "min_health"),
        ("min_health = 1.5", "min_health"),
        ("priority = 2147483648", "elections.jobs.priority: 2147483648 is out of range: use a whole number"),
        ("health_cmd = 3", "elections.jobs.health_cmd: "),
        ("health_cmd = \"true\"\nhealth_every = \"0s\"", "must not be 0"),
        ("health_cmd = \"true\"\nhealth_timeout = 2", "elections.jobs.health_timeout: "),
    ] {
        fs::write(world.path("tenure.toml"), format!("[elections.jobs]\n{option}\n")).unwrap();
        is_refused(&world, world.tenure(&["run", "jobs", "--", "true"]), says);
    }
    assert!(world.starts().is_empty());
}

fn is_refused(world: &World, command: std::process::Command, says: &str) {
    let output = world.output_of(command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("tenure: ") && said.lines().count() == 1 && said.contains(says), "{says:?}: {said}");
}

#[test]
fn a_health_command_comes_from_a_variable_too() {
    let world = World::shared();
    let mut command = world.tenure(&["run", "--lease", "1s", "--candidate", "alice", "jobs", "--", "sh", "-c", PROBE]);
    command.env("TENURE_HEALTH_CMD", "exit 4").env("TENURE_HEALTH_EVERY", "100ms").env("TENURE_HEALTH_TIMEOUT", "20s");
    let mut running = Running { child: command.stderr(std::process::Stdio::null()).spawn().unwrap() };
    assert_eq!(unwell(&world, "alice"), "the health command ended with exit code 4");
    running.signal(Signal::TERM);
    assert_eq!(running.code(&world), 143);
}

#[test]
fn a_health_command_comes_from_a_file_too_and_flags_go_over_it() {
    let world = World::shared();
    let file = "[elections.jobs]\nhealth_cmd = \"exit 5\"\nhealth_every = \"50ms\"\nhealth_timeout = \"20s\"\n";
    fs::write(world.path("tenure.toml"), file).unwrap();
    let over = |id: &str, options: &[&str], wrong: &str| {
        let mut running = stand(&world, id, &[&["--lease", "1s"], options].concat());
        assert_eq!(unwell(&world, id), wrong);
        running.signal(Signal::TERM);
        assert_eq!(running.code(&world), 143);
    };
    over("alice", &[], "the health command ended with exit code 5");
    over("bob", &["--health-cmd", "exit 6"], "the health command ended with exit code 6");
    let late = "the health command took longer than 300ms and was killed";
    over("carol", &["--health-cmd", "sleep 1000", "--health-timeout", "300ms"], late);
    assert!(world.starts().is_empty());
    // An empty one is none, and how often it would be asked is the file's.
    let _dave = stand(&world, "dave", &["--lease", "1s", "--health-cmd", ""]);
    assert_eq!(world.start_number(1).candidate, "dave");
}
