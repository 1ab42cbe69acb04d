//! The guard: no process of a command outlives its term, whichever process is killed or stopped.

#![cfg(target_os = "linux")]

mod common;

use common::{World, children, is_alive, is_stopped, number, pid, send};
use rustix::process::Signal;

/// The values of `TENURE_TEST_NO_CGROUP`: with a control group, if this machine allows one, and without.
const NO_CGROUP: [Option<&str>; 2] = [None, Some("1")];

/// A command that logs its start and does not end until it is killed.
const FOREVER: &str = "echo start $TENURE_TERM $$ >> log; exec sleep 1000";

fn everything_is_gone_after(signal: Signal, script: &str, lines: usize) {
    for no_cgroup in NO_CGROUP {
        let world = World::alone();
        let mut args = vec!["run", "--stop-grace", "200ms", "jobs", "--", "sh", "-c", script];
        args.insert(1, "--quiet");
        let mut command = world.tenure(&args);
        if let Some(no_cgroup) = no_cgroup {
            command.env("TENURE_TEST_NO_CGROUP", no_cgroup);
        }
        let mut tenure = common::Running { child: command.spawn().unwrap() };
        world.log_of(lines);
        tenure.signal(signal);
        tenure.wait(&world);
        if signal == Signal::KILL {
            world.eventually_empty();
        } else {
            // When tenure exits, only its guard may be left, and the guard exits at once.
            let left = world.living();
            assert!(left.len() <= 1, "left: {left:?}");
            world.eventually_empty();
        }
    }
}

#[test]
fn a_grandchild_that_ignores_sigterm_is_gone() {
    let script = "sh -c 'trap \"\" TERM; echo deep >> log; while :; do sleep 0.1; done' & wait";
    everything_is_gone_after(Signal::TERM, script, 1);
    everything_is_gone_after(Signal::KILL, script, 1);
}

#[test]
fn a_grandchild_in_a_session_of_its_own_is_gone() {
    let script = "setsid sh -c 'trap \"\" TERM; echo away >> log; while :; do sleep 0.1; done' & wait";
    everything_is_gone_after(Signal::TERM, script, 1);
    everything_is_gone_after(Signal::KILL, script, 1);
}

#[test]
fn an_orphan_in_a_session_of_its_own_is_gone() {
    // The parent of the orphan ends at once.
    let script = "(setsid sh -c 'trap \"\" TERM; echo away >> log; while :; do sleep 0.1; done' &); exec sleep 1000";
    everything_is_gone_after(Signal::TERM, script, 1);
    everything_is_gone_after(Signal::KILL, script, 1);
}

#[test]
fn a_command_that_keeps_forking_is_gone() {
    // Each link of the chain starts the next one in a session of its own, and ends.
    let link = "n=$1; [ $n = 190 ] && echo forks >> log; [ $n -gt 0 ] && setsid sh chain $((n - 1)) & sleep 0.01";
    let script = format!("cat > chain <<'END'\n{link}\nEND\nfor i in 1 2 3; do sh chain 200 & done; exec sleep 1000");
    everything_is_gone_after(Signal::TERM, &script, 3);
    everything_is_gone_after(Signal::KILL, &script, 3);
}

#[test]
fn processes_left_behind_by_a_command_are_gone_before_tenure_exits_with_its_code() {
    let script =
        "setsid sh -c 'trap \"echo asked >> log; exit\" TERM; echo away >> log; while :; do sleep 0.01; done' &
        until [ -s log ]; do sleep 0.01; done; exit 3";
    let world = World::alone();
    assert_eq!(world.run(&[], script).code(&world), 3);
    assert_eq!(world.log(), ["away", "asked"]);
    world.eventually_empty();
}

#[test]
fn a_stopped_command_is_resumed_to_handle_sigterm() {
    let world = World::alone();
    let mut tenure =
        world.run(&["--stop-grace", "1h"], "trap 'exit 7' TERM; echo $$ >> log; while :; do sleep 0.01; done");
    let command = pid(&world.log_of(1)[0], 0);
    send(command, Signal::STOP);
    world.eventually("the command to be stopped", || is_stopped(command));
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 7);
}

#[test]
fn the_command_dies_with_tenure() {
    let world = World::alone();
    let mut tenure = world.run(&[], FOREVER);
    world.log_of(1);
    tenure.signal(Signal::KILL);
    tenure.wait(&world);
    world.eventually_empty();
}

#[test]
fn the_command_dies_with_tenure_and_its_guard() {
    let world = World::alone();
    let mut tenure = world.run(&[], FOREVER);
    let command = pid(&world.log_of(1)[0], 2);
    let guard = tenure.guard(&world);
    // Both are stopped first: otherwise tenure would resume the guard, and the guard would act on the death of tenure.
    tenure.signal(Signal::STOP);
    world.eventually("tenure to be stopped", || is_stopped(tenure.pid()));
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    tenure.signal(Signal::KILL);
    send(guard, Signal::KILL);
    tenure.wait(&world);
    world.eventually("the command to be dead", || !is_alive(command));
}

#[test]
fn a_stopped_tenure_does_not_keep_the_command_alive_and_stands_again_when_resumed() {
    let world = World::alone();
    let mut tenure = world.run(&["--lease", "1s"], FOREVER);
    let command = pid(&world.log_of(1)[0], 2);
    tenure.signal(Signal::STOP);
    world.eventually("the command to be dead", || !is_alive(command));
    assert!(is_stopped(tenure.pid()));
    tenure.signal(Signal::CONT);
    let log = world.log_of(2);
    assert!(number(&log[1], 1) > number(&log[0], 1), "{log:?}");
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn a_stopped_guard_resumes_when_tenure_is_killed_and_leaves_nothing_behind() {
    for no_cgroup in NO_CGROUP {
        let world = World::alone();
        let script = format!("setsid sh -c 'trap \"\" TERM; echo away >> log; exec sleep 1000' & {FOREVER}");
        let mut command = world.tenure(&["run", "--quiet", "jobs", "--", "sh", "-c", &script]);
        if let Some(no_cgroup) = no_cgroup {
            command.env("TENURE_TEST_NO_CGROUP", no_cgroup);
        }
        let mut tenure = common::Running { child: command.spawn().unwrap() };
        world.log_of(2);
        let guard = tenure.guard(&world);
        send(guard, Signal::STOP);
        world.eventually("the guard to be stopped", || is_stopped(guard));
        tenure.signal(Signal::KILL);
        tenure.wait(&world);
        world.eventually_empty();
    }
}

#[test]
fn a_stopped_guard_does_not_keep_tenure_from_leaving() {
    let world = World::alone();
    let mut tenure = world.run(&[], FOREVER);
    world.log_of(1);
    let guard = tenure.guard(&world);
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn when_the_guard_is_killed_the_command_dies_and_tenure_stands_again() {
    let world = World::alone();
    let mut tenure =
        world.run(&["--lease", "1s"], "setsid sleep 1000 & echo start $TENURE_TERM $$ >> log; exec sleep 1000");
    let before = world.log_of(1);
    let (guard, command) = (tenure.guard(&world), pid(&before[0], 2));
    let escaped = children(command);
    assert_eq!(escaped.len(), 1);
    send(guard, Signal::KILL);
    let log = world.log_of(2);
    assert!(!is_alive(command) && !is_alive(escaped[0]));
    assert!(number(&log[1], 1) > number(&log[0], 1), "{log:?}");
    assert_ne!(tenure.guard(&world), guard);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn a_single_candidate_whose_guard_was_killed_leads_again_at_once() {
    let world = World::alone();
    let mut tenure = world.run(&["--lease", "10m"], FOREVER);
    let first = world.log_of(1);
    send(tenure.guard(&world), Signal::KILL);
    let log = world.log_of(2);
    assert!(number(&log[1], 1) > number(&log[0], 1) && !is_alive(pid(&first[0], 2)), "{log:?}");
    // Another thread writes to standard error.
    world.eventually("three lines on standard error", || world.lines("errors").len() >= 3);
    let lines = world.lines("errors");
    assert!(lines[1].starts_with("tenure: the guard was killed; "), "{lines:?}");
    let leading = ["tenure: leading jobs (term 1)", "tenure: leading jobs (term 2)"];
    assert_eq!([lines[0].as_str(), lines[2].as_str()], leading);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn a_prepared_command_that_was_killed_is_replaced_by_one_in_a_control_group() {
    let world = World::shared();
    let script = "echo start $TENURE_TERM $(grep -c /tenure- /proc/self/cgroup) >> log; exec sleep 1000";
    let mut leader = world.run(&[], script);
    let before = world.log_of(1);
    let mut follower = world.run(&[], script);
    let guard = follower.guard(&world);
    world.eventually("the command to be prepared", || children(guard).len() == 1);
    // The guard is stopped, so that it receives the end of the shim and the start order together.
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    send(children(guard)[0], Signal::KILL);
    world.eventually("the prepared command to be dead", || children(guard).is_empty());
    leader.signal(Signal::TERM);
    leader.wait(&world);
    assert_eq!(number(&world.log_of(2)[1], 2), number(&before[0], 2));
    follower.signal(Signal::TERM);
    follower.wait(&world);
    world.eventually_empty();
}

#[test]
fn a_sigterm_to_all_processes_of_a_service_does_not_end_the_guard() {
    // As systemd does: SIGTERM to every process at once.
    let world = World::alone();
    let mut tenure = world.run(
        &["--stop-grace", "1h"],
        "trap 'sleep 0.3; echo done >> log; exit 7' TERM; echo up >> log; while :; do sleep 0.01; done",
    );
    world.log_of(1);
    for pid in world.living() {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    assert_eq!(tenure.code(&world), 7);
    assert_eq!(world.log(), ["up", "done"]);
}

#[test]
fn children_of_a_shell_that_executed_tenure_are_not_killed() {
    let world = World::alone();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let script = format!("sleep 1000 & echo other $! >> log; exec {tenure} run --lease 1s jobs -- sh -c '{FOREVER}'");
    let mut tenure = world.run_in_shell(&script);
    let log = world.log_of(2);
    let (other, command) = (pid(&log[0], 1), pid(&log[1], 2));
    let guard = *children(tenure.pid()).iter().find(|child| **child != other).unwrap();
    send(guard, Signal::KILL);
    world.log_of(3);
    assert!(is_alive(other) && !is_alive(command));
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually("only the other to be left", || world.living() == [other]);
}
