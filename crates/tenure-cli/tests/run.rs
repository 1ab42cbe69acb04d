//! `tenure run` as a wrapper: exit codes, streams, variables, signals.

#![cfg(target_os = "linux")]

mod common;

use std::io::Write;
use std::process::Stdio;

use common::{World, number, stat, text};
use rustix::process::Signal;

#[test]
fn the_commands_exit_code_is_kept() {
    let world = World::alone();
    for (script, code) in [("true", 0), ("exit 3", 3), ("kill -SEGV $$", 139), ("kill -KILL $$", 137)] {
        assert_eq!(world.run(&[], script).code(&world), code, "{script}");
    }
    world.eventually_empty();
}

#[test]
fn the_exit_code_is_127_for_a_missing_command_and_126_for_one_that_cannot_be_executed() {
    let world = World::alone();
    std::fs::write(world.path("plain"), "no program").unwrap();
    world.script("stray", "");
    std::fs::write(world.path("stray"), "#!/nosuch/interpreter\n").unwrap();
    for (program, code) in [("./nosuch", 127), ("nosuch-anywhere", 127), ("./plain", 126), ("./stray", 127), ("/", 126)]
    {
        let output = world.output(&["run", "--quiet", "jobs", "--", program]);
        assert_eq!(output.status.code(), Some(code), "{program}");
        let error = text(&output.stderr);
        assert!(error.starts_with(&format!("tenure: {program}: ")) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_standby_whose_program_is_missing_says_so_at_once() {
    let world = World::shared();
    let _leader = world.run(&[], "echo started >> log; sleep 60");
    world.eventually("the command to run", || !world.log().is_empty());
    let output = world.output(&["run", "jobs", "--", "./nosuch"]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(text(&output.stderr), "tenure: ./nosuch: command not found; check its name and PATH\n");
}

#[test]
fn the_command_inherits_the_standard_streams() {
    let world = World::alone();
    let mut child = world
        .tenure(&["run", "--quiet", "jobs", "--", "sh", "-c", "cat; echo aside >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "one\ntwo\n");
    assert_eq!(text(&output.stderr), "aside\n");
}

#[test]
fn the_command_gets_its_election_candidate_and_term() {
    let world = World::alone();
    let script = "echo $TENURE_ELECTION $TENURE_CANDIDATE $TENURE_TERM";
    let output = world.output(&["run", "--candidate", "alice", "jobs", "--", "sh", "-c", script]);
    assert_eq!(text(&output.stdout), "jobs alice 1\n");
    assert_eq!(text(&output.stderr), "tenure: leading jobs (term 1)\n");
}

#[test]
fn the_command_and_the_health_command_do_not_get_the_url_of_the_store() {
    let world = World::alone();
    let health = "env | grep ^TENURE_STORE > health; true";
    let output = world.output(&["run", "--health-cmd", health, "jobs", "--", "sh", "-c", "env; cat health"]);
    let environment = text(&output.stdout);
    assert!(environment.contains("TENURE_TERM=1") && world.path("health").exists(), "{environment}");
    assert!(!environment.contains("TENURE_STORE"), "{environment}");
}

#[test]
fn the_command_has_a_group_of_its_own_and_no_terminal() {
    let world = World::alone();
    let output = world.output(&["run", "jobs", "--", "cat", "/proc/self/stat"]);
    let line = text(&output.stdout);
    let pid = number(&line, 0);
    let fields: Vec<&str> = line.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    let (group, session, terminal) = (number(fields[2], 0), number(fields[3], 0), fields[4]);
    assert_eq!(group, pid);
    assert_ne!(session, number(&stat(std::path::Path::new("/proc/self")).unwrap()[3], 0));
    assert_eq!(terminal, "0");
}

#[test]
fn the_command_inherits_no_descriptor_but_the_lifeline() {
    let world = World::alone();
    let output = world.output(&["run", "jobs", "--", "ls", "/proc/self/fd"]);
    let directly = std::process::Command::new("ls").arg("/proc/self/fd").output().unwrap();
    let (listed, directly) = (text(&output.stdout), text(&directly.stdout));
    // One more, at the smallest free number, and one above the numbers that scripts use.
    let inherited: Vec<&str> = listed.lines().filter(|number| *number != "100").collect();
    assert_eq!(inherited.len() + 1, listed.lines().count());
    assert_eq!(inherited.len(), directly.lines().count() + 1, "{listed} {directly}");
    let script = "readlink /proc/self/fd/3 /proc/self/fd/100";
    let lifelines = world.output(&["run", "jobs", "--", "sh", "-c", script]);
    let lifelines = text(&lifelines.stdout);
    assert_eq!(lifelines.lines().filter(|file| file.ends_with(".lock")).count(), 2, "{lifelines}");
}

#[test]
fn a_command_whose_guard_cannot_hold_the_seat_is_not_started() {
    let world = World::shared();
    let mut tenure = world.run(&["--lease", "1s"], "echo start >> log; exec sleep 1000");
    world.log_of(1);
    // From now on it can neither open nor duplicate a descriptor.
    let pid = tenure.pid().as_raw_nonzero().to_string();
    let limited = std::process::Command::new("prlimit").args(["--nofile=4", "--pid", &pid]).status().unwrap();
    assert!(limited.success());
    assert!(world.output(&["step-down", "jobs"]).status.success());
    // There is no other candidate, so it wins again.
    assert_eq!(tenure.code(&world), 2);
    let lines = world.lines("errors");
    let last = lines.last().unwrap();
    assert!(last.contains("not started") && last.contains("open files"), "{lines:?}");
    assert_eq!(world.log(), ["start"]);
    world.eventually_empty();
}

#[test]
fn a_command_that_wraps_up_in_time_keeps_its_exit_code() {
    let world = World::alone();
    let mut tenure =
        world.run(&[], "trap 'echo bye >> log; exit 7' TERM; echo up >> log; while :; do sleep 0.01; done");
    world.log_of(1);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 7);
    assert_eq!(world.log(), ["up", "bye"]);
    world.eventually_empty();
}

#[test]
fn when_a_signal_ends_the_command_the_exit_code_is_that_of_the_signal() {
    let world = World::alone();
    let stopping =
        [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131), (Signal::ALARM, 142)];
    for (signal, code) in stopping {
        let lines = world.log().len();
        let mut tenure =
            world.run(&[], "trap 'echo asked >> log; kill -9 $$' TERM; echo up >> log; while :; do sleep 0.01; done");
        world.log_of(lines + 1);
        tenure.signal(signal);
        assert_eq!(tenure.code(&world), code);
        assert_eq!(world.log()[lines..], ["up", "asked"], "{signal:?}");
    }
    world.eventually_empty();
}

#[test]
fn user_signals_are_passed_on_to_the_command() {
    let world = World::shared();
    let script =
        "trap 'echo one >> log' USR1; trap 'echo two >> log' USR2; echo up >> log; while :; do sleep 0.01; done";
    let mut leader = world.run(&[], script);
    world.log_of(1);
    let mut follower = world.run(&[], script);
    world.eventually("the follower to wait", || world.lines("errors").iter().any(|line| line.contains("waiting for")));
    // The follower runs no command, so it ignores these signals.
    follower.signal(Signal::USR1);
    follower.signal(Signal::USR2);
    leader.signal(Signal::USR1);
    world.log_of(2);
    leader.signal(Signal::USR2);
    assert_eq!(world.log_of(3), ["up", "one", "two"]);
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(&world), 143);
    assert_eq!(world.log_of(4)[3..], ["up"]);
    follower.signal(Signal::TERM);
    assert_eq!(follower.code(&world), 143);
    assert_eq!(world.log().len(), 4);
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_in_time() {
    let world = World::alone();
    let mut tenure = world.run(&["--stop-grace", "100ms"], "trap '' TERM; echo up >> log; while :; do sleep 0.1; done");
    world.log_of(1);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
    world.eventually_empty();
}

#[test]
fn a_second_signal_kills_the_command_at_once() {
    let world = World::alone();
    let mut tenure = world
        .run(&["--stop-grace", "1h"], "trap 'echo asked >> log' TERM; echo up >> log; while :; do sleep 0.1; done");
    world.log_of(1);
    tenure.signal(Signal::INT);
    world.log_of(2);
    tenure.signal(Signal::INT);
    assert_eq!(tenure.code(&world), 130);
    world.eventually_empty();
}

#[test]
fn a_command_can_wrap_up_for_longer_than_the_lease() {
    let world = World::alone();
    let script = "trap 'echo asked >> log; sleep 2; echo done >> log; exit 5' TERM; echo up >> log; while :; do sleep 0.01; done";
    let mut tenure = world.run(&["--lease", "1s", "--stop-grace", "1h"], script);
    world.log_of(1);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 5);
    assert_eq!(world.log(), ["up", "asked", "done"]);
}

#[test]
fn signals_that_were_ignored_from_the_start_stay_ignored() {
    let world = World::alone();
    // As `nohup` does, and as a shell does for processes in the background.
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let command = "grep SigIgn /proc/self/status >> log; exec sleep 1000";
    let script = format!("trap '' HUP INT; exec {tenure} run jobs -- sh -c '{command}'");
    let mut running = world.run_in_shell(&script);
    let ignored = world.log_of(1)[0].clone();
    let directly = "trap '' HUP INT; exec grep SigIgn /proc/self/status";
    let directly = std::process::Command::new("sh").args(["-c", directly]).output().unwrap();
    assert_eq!(ignored, text(&directly.stdout).trim_end());
    let ignored = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored & 3, 3, "SIGHUP and SIGINT");
    running.signal(Signal::HUP);
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    assert_eq!(running.code(&world), 143);
}

#[test]
fn the_command_ignores_the_same_signals_as_without_tenure() {
    let world = World::alone();
    let output = world.output(&["run", "jobs", "--", "grep", "SigIgn", "/proc/self/status"]);
    let directly = std::process::Command::new("grep").args(["SigIgn", "/proc/self/status"]).output().unwrap();
    assert_eq!(text(&output.stdout), text(&directly.stdout));
}
