//! `tenure once`: of many processes that start for the same occasion, one runs the command.

#![cfg(all(target_os = "linux", feature = "redis", feature = "postgres"))]

mod common;

use std::fs::File;
use std::process::{Child, Command, Stdio};

use common::{Running, World, text};
use rustix::process::{Pid, Signal};
use tenure_testkit::servers::{Postgres, Redis};

/// The lease of candidates whose crash a test waits for.
const LEASE: [&str; 2] = ["--lease", "3s"];

/// Sets the wall clock of a program.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

#[test]
fn a_process_that_starts_late_does_not_run_the_command_again() {
    let world = World::shared();
    let once = |candidate: &str, rest: &[&str]| {
        let mut args = vec!["once", "--slot", "1h", "--candidate", candidate];
        args.extend(rest);
        args.extend(["jobs", "--", "sh", "-c", "echo $TENURE_CANDIDATE >> log; exit 3"]);
        world.tenure(&args)
    };
    // The middle of a slot, so that no test runs into the next one.
    let at = |mut command: Command, time: &str| {
        command.env("LD_PRELOAD", FAKETIME).env("FAKETIME", format!("@2026-11-17 {time}"));
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("TZ", "UTC");
        world.output_of(command)
    };
    assert_eq!(at(once("alice", &[]), "03:10:00").status.code(), Some(3));
    let late = at(once("bob", &[]), "03:59:00");
    let message = "tenure: jobs was run by alice (term 1); not running the command\n";
    assert_eq!((late.status.code(), text(&late.stderr).as_str()), (Some(0), message));
    let early = at(once("bob", &["--conflict-exit-code", "9"]), "02:59:50");
    assert_eq!((early.status.code(), text(&early.stderr).as_str()), (Some(9), message));
    assert_eq!(at(once("bob", &[]), "03:59:45").status.code(), Some(3), "early for the next slot");
    assert_eq!(at(once("carol", &[]), "04:20:00").status.code(), Some(0));
    assert_eq!(world.log(), ["alice", "bob"]);
}

#[test]
fn a_machine_without_time_zone_data_counts_for_the_same_slot_as_the_others() {
    let world = World::shared();
    let once = |zone: &str| {
        let mut command = world.tenure(&["once", "--slot", "0 0 1 1 *", "jobs", "--", "sh", "-c", "echo ran >> log"]);
        command.env("TZ", zone);
        command
    };
    assert_eq!(world.output_of(once("Europe/Berlin")).status.code(), Some(0));
    let (tenure, mut without) = (once("Europe/Berlin"), Command::new("unshare"));
    let hide = "[ ! -d /usr/share/zoneinfo ] || mount -t tmpfs none /usr/share/zoneinfo; exec \"$@\"";
    without.args(["--mount", "sh", "-c", hide, "sh"]).arg(tenure.get_program()).args(tenure.get_args());
    without.envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?))));
    without.current_dir(tenure.get_current_dir().unwrap());
    let without = world.output_of(without);
    assert_eq!(without.status.code(), Some(0), "{}", text(&without.stderr));
    assert_eq!(world.log(), ["ran"], "{}", text(&without.stderr));
    // Without its time zone, a machine would count for a slot of its own.
    let unknown = world.output_of(once("Nowhere/Land"));
    let message = "needs the time zone of this machine, which is unknown: set TZ";
    assert!(text(&unknown.stderr).contains(message), "{}", text(&unknown.stderr));
    assert_eq!((unknown.status.code(), world.log().len()), (Some(2), 1));
}

#[test]
fn a_process_that_does_not_wait_gives_up_while_an_earlier_occasion_still_runs() {
    let world = World::shared();
    let _leader = world.run(&["--candidate", "alice"], "echo started >> log; sleep 60");
    world.eventually("the command to run", || !world.log().is_empty());
    let once = ["once", "--for", "1h", "--no-wait", "-E", "9", "jobs", "--", "true"];
    let output = world.output(&once);
    let message = "tenure: jobs is led by alice (term 1); not running the command\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(9), message));
}

#[test]
fn a_command_that_had_to_stop_is_not_said_to_run() {
    let world = World::shared();
    let once =
        ["once", "--for", "1h", "--candidate", "alice", "jobs", "--", "sh", "-c", "echo started >> log; sleep 60"];
    let mut stopped = Running { child: world.tenure(&once).stderr(Stdio::null()).spawn().unwrap() };
    world.eventually("the command to run", || !world.log().is_empty());
    stopped.signal(Signal::TERM);
    assert_eq!(stopped.code(&world), 128 + 15);
    let late = world.output(&once);
    let message = "tenure: jobs was started by alice (term 1); not running the command\n";
    assert_eq!((late.status.code(), text(&late.stderr).as_str()), (Some(0), message));
}

#[test]
fn a_command_line_that_is_refused_does_not_take_the_occasion() {
    let world = World::shared();
    let once = |options: &[&str]| {
        let mut args = vec!["once", "--for", "1h"];
        args.extend(options);
        args.extend(["jobs", "--", "sh", "-c", "echo started >> log"]);
        world.output(&args)
    };
    for options in [&["--ready-fd", "77"][..], &["--resume", "--no-release-on-stop"]] {
        let refused = once(options);
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {}", text(&refused.stderr));
    }
    assert_eq!(once(&[]).status.code(), Some(0));
    assert_eq!(world.log(), ["started"]);
}

#[test]
fn one_of_twenty_processes_runs_the_command_over_sqlite() {
    one_of_twenty(&World::shared());
}

#[test]
fn one_of_twenty_processes_runs_the_command_over_redis() {
    let redis = Redis::start();
    one_of_twenty(&World::on(&redis.url()));
}

#[test]
fn one_of_twenty_processes_runs_the_command_over_postgres() {
    let server = Postgres::start();
    one_of_twenty(&World::on(&server.url()));
}

/// Starts twenty processes whose clocks differ by up to ten seconds, in several rounds. In some rounds the process that
/// runs the command is killed.
fn one_of_twenty(world: &World) {
    assert!(std::path::Path::new(FAKETIME).exists(), "libfaketime is not installed; run scripts/servers faketime");
    // Set `TENURE_TEST_ONCE=50` for more rounds.
    let rounds = std::env::var("TENURE_TEST_ONCE").map_or(3, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let (is_killed, resumes) = (round % 3 > 0, round % 3 == 2);
        let candidates: Vec<Candidate> =
            (0..20).map(|number| start(world, round, number, is_killed, resumes)).collect();
        let runs = || world.lines(&format!("log-{round}"));
        let mut expected = 1;
        let mut killed = None;
        if is_killed {
            world.eventually("the command to run", || !runs().is_empty());
            let first: usize = runs()[0].parse().unwrap();
            rustix::process::kill_process(Pid::from_child(&candidates[first].child), Signal::KILL).unwrap();
            expected += usize::from(resumes);
            killed = Some(first);
            // A second run ends at once.
            File::create(world.path(&format!("quick-{round}"))).unwrap();
        }
        for (number, mut candidate) in candidates.into_iter().enumerate() {
            let mut code = None;
            world.eventually("all to end", || {
                code = candidate.child.try_wait().unwrap().map(|status| status.code());
                code.is_some()
            });
            let errors = world.lines(&candidate.errors);
            let ran = runs().contains(&number.to_string());
            let told = errors.iter().filter(|line| line.ends_with("not running the command")).count();
            assert_eq!(told, usize::from(!ran), "round {round}, candidate {number}: {errors:?}");
            assert_eq!(code.unwrap(), if killed == Some(number) { None } else { Some(0) }, "{errors:?}");
        }
        assert_eq!(runs().len(), expected, "round {round}: {:?}", runs());
    }
}

struct Candidate {
    child: Child,
    errors: String,
}

fn start(world: &World, round: u32, number: i64, is_killed: bool, resumes: bool) -> Candidate {
    let (election, name) = (format!("round-{round}"), number.to_string());
    // If the process is to be killed, its first command runs until then.
    let rest = if is_killed { format!("test -e quick-{round} || sleep 60") } else { "true".to_owned() };
    let script = format!("echo $TENURE_CANDIDATE >> log-{round}; {rest}");
    let mut args = vec!["once", "--for", "1h", "--candidate", &name];
    args.extend(LEASE);
    args.extend(resumes.then_some("--resume"));
    args.extend([&election, "--", "sh", "-c", &script]);
    let errors = format!("errors-{round}-{number}");
    let child = world
        .tenure(&args)
        .env("LD_PRELOAD", FAKETIME)
        .env("FAKETIME", format!("{:+}s", number % 11 - 5))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .stdout(Stdio::null())
        .stderr(File::create(world.path(&errors)).unwrap())
        .spawn()
        .unwrap();
    Candidate { child, errors }
}

#[test]
fn a_candidate_that_does_not_wait_exits_if_another_one_leads() {
    let world = World::shared();
    let leader = world.run(&["--candidate", "alice"], "echo started >> log; sleep 60");
    world.eventually("the command to run", || !world.log().is_empty());
    for (options, code) in [
        (&["--no-wait"][..], 1),
        (&["--no-wait", "--conflict-exit-code", "7"], 7),
        (&["-n", "-E", "0"], 0),
        (&["--wait", "200ms"], 1),
        (&["-w", "1ms"], 1),
    ] {
        let mut args = vec!["run", "--candidate", "bob"];
        args.extend(options);
        args.extend(["jobs", "--", "false"]);
        let output = world.output(&args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {message}");
        let last = message.lines().last().unwrap_or_default();
        assert_eq!(last, "tenure: jobs is led by alice (term 1); not running the command", "{options:?}");
    }
    drop(leader);
    world.eventually_empty();
    let output = world.output(&["run", "--no-wait", "jobs", "--", "sh", "-c", "exit 4"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
}

#[test]
fn a_candidate_that_does_not_wait_for_a_store_that_fails_says_so() {
    let url = format!("redis://127.0.0.1:{}", tenure_testkit::servers::free_port());
    let world = World::on(&url);
    for wait in ["--no-wait", "--wait=100ms"] {
        let output = world.output(&["run", wait, "jobs", "--", "true"]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wait}: {message}");
        assert!(message.contains("connection refused"), "{message}");
    }
}

#[test]
fn a_candidate_that_wins_when_its_time_is_up_is_not_in_its_own_way() {
    let world = World::alone();
    for attempt in 0..30 {
        let wait = format!("--wait={}ms", attempt % 5 + 1);
        let output = world.output(&["run", &wait, "jobs", "--", "true"]);
        let message = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{wait}: {message}");
        assert!(!message.contains("is led by"), "{wait}: {message}");
    }
}
