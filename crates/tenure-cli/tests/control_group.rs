//! The control group of a command that has started before it was in one. Where this machine allows no control groups,
//! these tests check that the command is killed without one.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Running, World, children, is_alive, is_stopped, pid, send};
use rustix::process::{Pid, Signal};

/// Returns the control group that a guard has created for this process.
fn group(process: Pid) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero())).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    group.contains("/tenure-").then(|| mount().join(group.trim_start_matches('/')))
}

/// Returns where the control groups of this machine are.
fn mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    mount.and_then(|line| line.split(' ').nth(1)).unwrap_or_default().into()
}

/// Returns whether a process in the group of this test can create a group.
fn is_allowed() -> bool {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    let Some(own) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    let probe = mount().join(own).join(format!("probe-{}", std::process::id()));
    let is_allowed = fs::create_dir(&probe).is_ok() && probe.join("cgroup.kill").exists();
    let _ = fs::remove_dir(probe);
    is_allowed
}

/// Starts `tenure run`, with variables for its guard.
fn run(world: &World, options: &[&str], variable: (&str, &str), script: &str) -> Running {
    let args = [&["run", "--quiet"], options, &["jobs", "--", "sh", "-c", script]].concat();
    Running { child: world.tenure(&args).env(variable.0, variable.1).spawn().unwrap() }
}

#[test]
fn processes_that_were_started_before_the_move_are_in_the_group_afterwards() {
    let world = World::alone();
    // A child, an orphan in a session of its own, and its child.
    let script = "sleep 1000 & (setsid sh -c 'sleep 1001 & echo away >> log; exec sleep 1002' &)
        until [ -s log ]; do sleep 0.01; done; echo start $$ >> log; exec sleep 1003";
    // Slow, so that all of them are started before the first of them is moved.
    let mut tenure = run(&world, &[], ("TENURE_TEST_SLOW_CGROUP", "500"), script);
    let command = pid(&world.log_of(2)[1], 1);
    let guard = tenure.guard(&world);
    let all =
        || -> Vec<Pid> { world.living().into_iter().filter(|pid| ![tenure.pid(), guard].contains(pid)).collect() };
    world.eventually("four processes", || all().len() == 4);
    if is_allowed() {
        world.eventually("all to be in the group", || all().into_iter().all(|process| group(process).is_some()));
        assert_eq!(all().len(), 4);
        assert_eq!(group(guard), None);
    }
    let group = group(command);
    tenure.signal(Signal::TERM);
    tenure.wait(&world);
    world.eventually_empty();
    assert!(group.is_none_or(|group| !group.exists()), "the guard removes its group");
}

#[test]
fn a_deadline_is_enforced_while_a_process_is_moved() {
    let world = World::alone();
    // Longer than the lease, and shorter than a test may take.
    let script = "setsid sleep 1000 & echo start $$ >> log; exec sleep 1000";
    let mut tenure = run(&world, &["--lease", "1s"], ("TENURE_TEST_SLOW_CGROUP", "20000"), script);
    let command = pid(&world.log_of(1)[0], 1);
    let (guard, escaped) = (tenure.guard(&world), children(command));
    let threads = || fs::read_dir(format!("/proc/{}/task", guard.as_raw_nonzero())).unwrap().count();
    if is_allowed() {
        world.eventually("the move to begin", || threads() == 2);
    }
    tenure.signal(Signal::STOP);
    world.eventually("all to be dead", || !is_alive(command) && !escaped.iter().any(|child| is_alive(*child)));
    if is_allowed() {
        assert_eq!(threads(), 2, "the move has not ended");
    }
    tenure.signal(Signal::KILL);
    tenure.wait(&world);
    send(guard, Signal::KILL);
    world.eventually_empty();
}

#[test]
fn a_waiting_command_is_in_the_group_before_it_starts() {
    let world = World::shared();
    let script = "echo start $TENURE_TERM $(grep -c /tenure- /proc/self/cgroup) >> log; exec sleep 1000";
    let mut leader = world.run(&[], "echo first >> log; exec sleep 1000");
    world.log_of(1);
    let mut follower = world.run(&[], script);
    let guard = follower.guard(&world);
    world.eventually("the command to be prepared", || children(guard).len() == 1);
    if is_allowed() {
        world.eventually("it to be in the group", || group(children(guard)[0]).is_some());
    }
    leader.signal(Signal::TERM);
    leader.wait(&world);
    assert_eq!(world.log_of(2)[1], format!("start 2 {}", u8::from(is_allowed())));
    follower.signal(Signal::TERM);
    follower.wait(&world);
    world.eventually_empty();
}

#[test]
fn a_prepared_command_that_was_killed_is_replaced_by_one_in_the_group() {
    let world = World::shared();
    let script = "echo start $TENURE_TERM $(grep -c /tenure- /proc/self/cgroup) >> log; exec sleep 1000";
    let mut leader = world.run(&[], script);
    world.log_of(1);
    let mut follower = world.run(&[], script);
    let guard = follower.guard(&world);
    world.eventually("the command to be prepared", || children(guard).len() == 1);
    if is_allowed() {
        world.eventually("it to be in the group", || group(children(guard)[0]).is_some());
    }
    // The guard is stopped, so that it receives the end of the shim and the start order together.
    send(guard, Signal::STOP);
    world.eventually("the guard to be stopped", || is_stopped(guard));
    send(children(guard)[0], Signal::KILL);
    world.eventually("the prepared command to be dead", || children(guard).is_empty());
    leader.signal(Signal::TERM);
    leader.wait(&world);
    assert_eq!(world.log_of(2)[1], format!("start 2 {}", u8::from(is_allowed())));
    follower.signal(Signal::TERM);
    follower.wait(&world);
    world.eventually_empty();
}

/// Three processes that fork and exit as fast as they can, from the start, each in a session of its own. After some
/// thousand forks they wait, so that a failure of this test does not use up all process ids.
const STORM: &str = r#"
    #include <unistd.h>
    int main(void) {
        for (int i = 0; i < 3; i++) {
            if (fork()) continue;
            for (int n = 0; n < 6000; n++) {
                if (fork() > 0) _exit(0);
                setsid();
            }
            sleep(100);
            _exit(0);
        }
        return sleep(1000);
    }"#;

#[test]
fn a_storm_that_rages_from_the_start_is_caught_in_the_group() {
    let world = World::alone();
    fs::write(world.path("storm.c"), STORM).unwrap();
    let mut compile = std::process::Command::new("cc");
    assert!(compile.arg("-o").args([world.path("storm"), world.path("storm.c")]).status().unwrap().success());
    // Every process of the storm holds the lock, also those that live too short to be seen.
    let script = "exec 9> lock; flock 9; echo start $$ >> log; exec ./storm";
    // Slow, so that the storm rages before its first process is moved.
    let mut tenure = run(&world, &[], ("TENURE_TEST_SLOW_CGROUP", "300"), script);
    let command = pid(&world.log_of(1)[0], 1);
    let guard = tenure.guard(&world);
    if is_allowed() {
        world.eventually("the command to be in the group", || group(command).is_some());
        let threads = || fs::read_dir(format!("/proc/{}/task", guard.as_raw_nonzero())).unwrap().count();
        world.eventually("the move to end", || threads() == 1);
        let group = group(command).unwrap();
        // Only the group can kill the storm now.
        for process in [tenure.pid(), guard] {
            send(process, Signal::STOP);
            world.eventually("it to be stopped", || is_stopped(process));
        }
        fs::write(group.join("cgroup.kill"), "1").unwrap();
        let lock = fs::File::open(world.path("lock")).unwrap();
        world.eventually("the storm to be over", || lock.try_lock().is_ok());
        send(guard, Signal::CONT);
        tenure.signal(Signal::CONT);
    } else {
        tenure.signal(Signal::TERM);
    }
    tenure.wait(&world);
    world.eventually_empty();
}
