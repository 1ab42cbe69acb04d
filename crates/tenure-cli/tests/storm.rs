//! A command that forks as fast as it can. In a program of its own: it uses up the numbers of processes, so that other
//! tests would take a stranger for a process of theirs.

#![cfg(target_os = "linux")]

mod common;

use common::{World, send};
use rustix::process::Signal;

/// Sixty processes that fork and exit for ever, each in a session of its own, as fast as they can.
const STORM: &str = r#"
    #include <time.h>
    #include <unistd.h>
    int main(void) {
        time_t end = time(0) + 60;
        for (int i = 0; i < 60; i++) {
            if (fork()) continue;
            while (access("log", F_OK) == 0 && time(0) < end) {
                if (fork()) _exit(0);
                setsid();
            }
            _exit(0);
        }
        return sleep(1000);
    }"#;

/// A storm of forks that holds the lock of the probe.
const STORMS: &str = "exec 9>> probe; flock -n 9 || echo overlap >> log
    echo start $TENURE_TERM $$ $TENURE_CANDIDATE >> log; exec ./storm";

/// Worlds for a storm: with a control group to kill it by, if this machine has one to give, and without both that
/// and privileges.
fn stormy() -> [World; 2] {
    let worlds = [World::shared(), World::shared().without_cgroup().without_privileges()];
    for world in &worlds {
        std::fs::write(world.path("storm.c"), STORM).unwrap();
        let mut compile = std::process::Command::new("cc");
        let compiled = compile.arg("-o").args([world.path("storm"), world.path("storm.c")]).status().unwrap();
        assert!(compiled.success());
    }
    worlds
}

#[test]
fn a_storm_of_forks_is_gone_before_the_next_command_starts() {
    // One after the other, as no machine has room for two of them. A leader that a storm keeps from renewing may
    // lose its term and win another, so there may be more starts than one for each kill.
    for world in stormy() {
        let mut leader = world.run(&[], STORMS);
        let mut starts = world.log_of(1).len();
        for _ in 0..2 {
            let waiting = || world.lines("errors").iter().filter(|line| line.contains("waits for jobs")).count();
            let before = waiting();
            let follower = world.run(&[], STORMS);
            world.eventually("the follower to wait", || waiting() > before);
            leader.signal(Signal::KILL);
            starts = world.log_of(starts + 1).len();
            world.starts();
            leader = follower;
        }
        // The guard alone: all of the storm comes to tenure then.
        send(leader.guard(&world), Signal::KILL);
        world.log_of(starts + 1);
        world.starts();
        leader.signal(Signal::TERM);
        assert_eq!(leader.code(&world), 143);
        world.eventually_empty();
    }
}
