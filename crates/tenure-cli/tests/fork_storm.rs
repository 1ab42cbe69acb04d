//! A command that forks as fast as it can. This test is a separate program, because the command uses up process ids so
//! fast that other tests would mistake a new process for one of their own.

#![cfg(target_os = "linux")]

mod common;

use common::{World, send};
use rustix::process::Signal;

/// Sixty processes that fork and exit as fast as they can, each in a session of its own.
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

/// A fork storm that holds the lock of the probe.
const STORMS: &str = "exec 9>> probe; flock -n 9 || echo overlap >> log
    echo start $TENURE_TERM $$ $TENURE_CANDIDATE >> log; exec ./storm";

/// Returns two worlds with the program of the storm: one with a control group, if this machine allows one, and one
/// with neither a control group nor privileges.
fn storm_worlds() -> [World; 2] {
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
fn a_fork_storm_is_gone_before_the_next_command_starts() {
    // One after the other, because two storms are too much for a machine. A storm can keep a leader from renewing. Then
    // the leader loses its term and can win another, so there can be more starts than kills.
    for world in storm_worlds() {
        let mut leader = world.run(&[], STORMS);
        let mut starts = world.log_of(1).len();
        // Set `TENURE_TEST_STORMS=200` for more rounds.
        for _ in 0..std::env::var("TENURE_TEST_STORMS").map_or(2, |rounds| rounds.parse().unwrap()) {
            let waiting = || world.lines("errors").iter().filter(|line| line.contains("waiting for jobs")).count();
            let before = waiting();
            let follower = world.run(&[], STORMS);
            world.eventually("the follower to wait", || waiting() > before);
            leader.signal(Signal::KILL);
            starts = world.log_of(starts + 1).len();
            world.starts();
            leader = follower;
        }
        // If only the guard is killed, all processes of the storm become children of tenure.
        send(leader.guard(&world), Signal::KILL);
        world.log_of(starts + 1);
        world.starts();
        leader.signal(Signal::TERM);
        assert_eq!(leader.code(&world), 143);
        world.eventually_empty();
    }
}
