//! `--on-start` and `--on-stop`: tenure tells a service when its terms start and end.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::process::Stdio;

use common::{Running, World, send, text};
use rustix::process::Signal;

const ON_START: &str = "echo start $TENURE_CANDIDATE $TENURE_TERM >> log";
const ON_STOP: &str = "echo stop $TENURE_CANDIDATE $TENURE_TERM >> log";

/// A lease with a drain that is long enough for hooks on a busy machine: `--on-stop` gets at least 900 ms.
const LEASE: [&str; 6] = ["--lease", "8s", "--renew-every", "2s", "--drain", "2s"];

/// Starts `tenure run` with these options and a command of this shell, or without a command.
fn run(world: &World, options: &[&str], command: Option<&str>) -> Running {
    let mut args = vec!["run"];
    args.extend(options);
    args.push("jobs");
    if let Some(command) = command {
        args.extend(["-c", command]);
    }
    let errors = fs::File::options().append(true).create(true).open(world.path("errors")).unwrap();
    Running { child: world.tenure(&args).stdout(Stdio::null()).stderr(errors).spawn().unwrap() }
}

/// Starts a candidate with hooks that log the start and the end of its terms.
fn told(world: &World, id: &str, options: &[&str]) -> Running {
    let hooks = ["--candidate", id, "--on-start", ON_START, "--on-stop", ON_STOP];
    run(world, &[&hooks, options].concat(), None)
}

#[test]
fn the_hooks_run_before_and_after_the_command() {
    let world = World::alone();
    let mut tenure = run(
        &world,
        &["--candidate", "a", "--on-start", ON_START, "--on-stop", ON_STOP],
        Some("echo run >> log; exit 3"),
    );
    assert_eq!(tenure.code(&world), 3);
    let log = world.log();
    let term = log[0].split(' ').nth(2).unwrap().to_owned();
    assert_eq!(log, [format!("start a {term}"), "run".to_owned(), format!("stop a {term}")]);
    world.eventually_empty();
}

#[test]
fn a_hook_that_failed_is_reported_also_if_only_errors_are_printed_or_the_log_is() {
    let failed = "--on-start exited with code 3";
    for (options, expected) in [
        (&["-q"][..], format!("tenure: {failed}\n")),
        (&["-v"], format!(" ERROR {failed}")),
        (&["--log-format", "json"], format!(r#""message":"{failed}""#)),
    ] {
        let world = World::shared();
        let mut tenure = run(&world, &[options, &["--on-start", "exit 3"]].concat(), None);
        assert_eq!(tenure.code(&world), 3);
        let printed = fs::read_to_string(world.path("errors")).unwrap();
        assert!(printed.contains(&expected), "{options:?}: {printed}");
    }
}

#[test]
fn without_a_command_a_forwarded_interrupt_asks_tenure_to_leave() {
    let world = World::shared();
    let mut tenure = run(&world, &["--forward", "INT", "--on-start", ON_START, "--on-stop", ON_STOP], None);
    world.log_of(1);
    tenure.signal(Signal::INT);
    assert_eq!(tenure.code(&world), 130);
    assert!(world.log_of(2)[1].starts_with("stop "));
}

#[test]
fn hooks_without_a_shell_are_refused_before_the_candidate_stands() {
    let world = World::shared();
    let mut command = world.tenure(&["run", "--on-stop", ON_STOP, "jobs", "--", "/bin/true"]);
    let output = world.output_of({
        command.env("PATH", "/nowhere");
        command
    });
    let message = "tenure: --on-start and --on-stop need a shell: sh is not on PATH\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(127), message));
}

#[test]
fn a_service_is_told_to_stop_before_the_next_one_is_told_to_start() {
    // However the first leader ends.
    type End = fn(&World, &Running);
    let ends: [(&str, End); 5] = [
        ("asked to leave", |_, leader| leader.signal(Signal::TERM)),
        ("killed", |_, leader| leader.signal(Signal::KILL)),
        ("stopped", |_, leader| leader.signal(Signal::STOP)),
        ("its guard killed", |world, leader| send(leader.guard(world), Signal::KILL)),
        ("asked to step down", |world, _| drop(world.output(&["step-down", "jobs"]))),
    ];
    for (how, end) in ends {
        let world = World::shared();
        // A hook that takes some time, so that one which is not waited for is noticed.
        let slow = format!("sleep 0.05; {ON_STOP}");
        let hooks = ["--candidate", "a", "--on-start", ON_START, "--on-stop", &slow];
        let first = run(&world, &[&LEASE[..], &hooks].concat(), None);
        world.log_of(1);
        let _second = told(&world, "b", &LEASE);
        world.eventually("the second candidate", || {
            text(&world.output(&["candidates", "jobs"]).stdout).contains("\nb ")
        });
        end(&world, &first);
        let log = world.log_of(3);
        let who: Vec<&str> = log.iter().map(|line| &line[..line.rfind(' ').unwrap()]).collect();
        assert_eq!(&who[..2], ["start a", "stop a"], "{how}: {log:?}");
        // If its guard is killed, the first candidate stands again at once.
        assert!(who[2].starts_with("start "), "{how}: {log:?}");
        first.signal(Signal::CONT);
    }
}

#[test]
fn a_failed_hook_for_the_start_ends_tenure_with_its_code() {
    let world = World::alone();
    let mut tenure = run(
        &world,
        &["--candidate", "a", "--on-start", "exit 7", "--on-stop", "echo stop >> log"],
        Some("echo run >> log"),
    );
    assert_eq!(tenure.code(&world), 7);
    // The hook for the end can undo the work of the failed hook.
    assert_eq!(world.log(), ["stop"]);
    assert!(world.lines("errors").iter().any(|line| line.contains("--on-start exited with code 7")));
}

#[test]
fn a_command_that_does_not_end_is_killed_in_time_for_the_hook() {
    let world = World::alone();
    let options = [&LEASE[..], &["--on-stop", "echo stop >> log"]].concat();
    let mut tenure = run(&world, &options, Some("trap '' TERM; echo run >> log; while :; do sleep 1; done"));
    world.log_of(1);
    tenure.signal(Signal::TERM);
    tenure.wait(&world);
    assert_eq!(world.log(), ["run", "stop"]);
    world.eventually_empty();
}

#[test]
fn a_hook_for_the_end_that_does_not_end_is_killed_with_the_term() {
    let world = World::shared();
    let hang = "echo stop >> log; trap '' TERM; sleep 1000 & wait; wait";
    let first = run(&world, &["--lease", "2s", "--on-start", "echo start >> log", "--on-stop", hang], None);
    world.log_of(1);
    first.signal(Signal::TERM);
    world.log_of(2);
    let _second = told(&world, "b", &["--lease", "2s"]);
    let log = world.log_of(3);
    assert!(log[2].starts_with("start b"), "{log:?}");
    let message = "--on-stop was killed because its time was up";
    world.eventually("the message", || world.lines("errors").iter().any(|line| line.contains(message)));
}

#[test]
fn processes_of_the_hook_for_the_start_end_with_the_term() {
    let world = World::alone();
    let hooks = ["--on-start", "sleep 1000 & echo start >> log", "--on-stop", "echo stop >> log"];
    let mut tenure = run(&world, &hooks, None);
    world.log_of(1);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    assert_eq!(world.log(), ["start", "stop"]);
    world.eventually_empty();
}

/// A hook for the end that has begun and does not end before the file `go` exists.
const UNTIL_GO: &str = "echo stopping >> log; until [ -e go ]; do sleep 0.01; done; echo stop >> log";

/// Enough time for a hook for the end, and a guard that is not found to be stopped because of its deadlines.
const PATIENT: [&str; 6] = ["--lease", "20s", "--renew-every", "6s", "--stop-grace", "1h"];

#[test]
fn a_hook_for_the_end_that_has_begun_continues_if_tenure_is_killed() {
    let world = World::alone();
    let hooks = ["--on-start", "echo start >> log", "--on-stop", UNTIL_GO];
    let mut tenure = run(&world, &[&PATIENT[..], &hooks].concat(), None);
    world.log_of(1);
    tenure.signal(Signal::TERM);
    world.log_of(2);
    tenure.signal(Signal::KILL);
    tenure.wait(&world);
    fs::write(world.path("go"), "").unwrap();
    assert_eq!(world.log_of(3), ["start", "stopping", "stop"]);
    world.eventually_empty();
}

#[test]
fn a_hook_for_the_end_whose_guard_is_killed_is_gone_before_it_runs_again() {
    let world = World::alone();
    // Its first run does not end, and has a descendant that the death of the guard does not kill.
    let hang = "setsid sh -c 'exec 9>> probe; flock 9; echo stopping >> log; exec sleep 1000' & wait; wait";
    let again = "flock -n probe true || echo overlap >> log; echo again >> log";
    let on_stop = format!("if grep -q stopping log; then {again}; else {hang}; fi");
    let hooks = ["--on-start", "flock -n probe true && echo start >> log", "--on-stop", &on_stop];
    let tenure = run(&world, &[&PATIENT[..], &hooks].concat(), None);
    world.log_of(1);
    // The hook for the end runs under the next guard.
    send(tenure.guard(&world), Signal::KILL);
    world.log_of(2);
    send(tenure.guard(&world), Signal::KILL);
    assert_eq!(world.log_of(4)[..4], ["start", "stopping", "again", "start"]);
}

#[test]
fn a_guard_that_is_stopped_at_the_end_of_a_term_is_resumed_in_time_for_the_hook() {
    let world = World::alone();
    let options = [&LEASE[..], &["--on-stop", "echo stop >> log"]].concat();
    // The command stops its guard when it is asked to end.
    let command = "trap 'echo asked >> log; kill -STOP $PPID' TERM; echo run >> log; while :; do sleep 0.01; done";
    let mut tenure = run(&world, &options, Some(command));
    world.log_of(1);
    tenure.signal(Signal::TERM);
    tenure.wait(&world);
    assert_eq!(world.log(), ["run", "asked", "stop"]);
    world.eventually_empty();
}

#[test]
fn a_command_that_cannot_be_executed_ends_the_term_though_the_first_hook_left_processes() {
    let world = World::alone();
    world.script("prog", "echo run >> log");
    let hooks = ["--on-start", "rm prog; sleep 1000 & echo start >> log", "--on-stop", "echo stop >> log"];
    let mut args = vec!["run"];
    args.extend(hooks);
    args.extend(["jobs", "--", "./prog"]);
    let mut tenure = Running { child: world.tenure(&args).stderr(Stdio::null()).spawn().unwrap() };
    assert_eq!(tenure.code(&world), 127);
    assert_eq!(world.log(), ["start", "stop"]);
    world.eventually_empty();
}

#[test]
fn a_second_signal_kills_the_command_and_leaves_the_hook_its_time() {
    let world = World::alone();
    let options = [&LEASE[..], &["--stop-grace", "10m", "--on-stop", "sleep 0.2; echo stop >> log"]].concat();
    let mut tenure =
        run(&world, &options, Some("trap 'echo asked >> log' TERM; echo run >> log; while :; do sleep 0.1; done"));
    world.log_of(1);
    tenure.signal(Signal::TERM);
    world.log_of(2);
    tenure.signal(Signal::TERM);
    tenure.wait(&world);
    assert_eq!(world.log(), ["run", "asked", "stop"]);
    world.eventually_empty();
}
