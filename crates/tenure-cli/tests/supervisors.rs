//! `tenure run` under a supervisor: readiness, status, watchdog, forwarded signals, and the units in deploy/systemd.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Running, World, text};
use rustix::process::Signal;

/// A socket that receives what systemd would receive.
struct Systemd(UnixDatagram);

impl Systemd {
    fn bind(world: &World) -> Self {
        let socket = UnixDatagram::bind(world.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(socket)
    }

    /// Waits for the next status line, which begins with these words.
    #[cfg(feature = "redis")]
    fn expect_status(&self, words: &str) -> String {
        let mut buffer = [0; 1000];
        loop {
            let length = self.0.recv(&mut buffer).unwrap_or_else(|error| panic!("{words}: {error}"));
            let message = text(&buffer[..length]);
            if let Some(status) = message.strip_prefix("STATUS=") {
                assert!(status.starts_with(words), "{message}");
                return message;
            }
        }
    }

    /// Waits for this message. Others are skipped.
    fn expect(&self, expected: &str) {
        let mut buffer = [0; 1000];
        loop {
            let length = self.0.recv(&mut buffer).unwrap_or_else(|error| panic!("{expected}: {error}"));
            if text(&buffer[..length]) == expected {
                return;
            }
        }
    }
}

fn start(world: &World, args: &[&str]) -> Running {
    let mut command = world.tenure(args);
    command.env("NOTIFY_SOCKET", world.path("notify")).env("WATCHDOG_USEC", "200000").stderr(Stdio::null());
    Running { child: command.spawn().unwrap() }
}

#[test]
fn systemd_is_notified_of_readiness_status_and_stop_and_gets_signs_of_life() {
    let world = World::shared();
    let systemd = Systemd::bind(&world);
    let leader = start(&world, &["run", "--candidate", "alice", "jobs", "--", "sleep", "60"]);
    systemd.expect("READY=1");
    systemd.expect("STATUS=leading (term 1)");
    systemd.expect("WATCHDOG=1");
    systemd.expect("WATCHDOG=1");
    let mut follower = start(&world, &["run", "jobs", "--", "sleep", "60"]);
    systemd.expect("READY=1");
    systemd.expect("STATUS=led by alice (term 1)");
    follower.signal(Signal::TERM);
    systemd.expect("STOPPING=1");
    assert_eq!(follower.code(&world), 128 + 15);
    drop(leader);
    world.eventually_empty();
}

#[cfg(feature = "redis")]
#[test]
fn the_status_names_the_leader_again_when_the_store_is_available_again() {
    let mut redis = tenure_testkit::servers::Redis::start();
    let world = World::on(&redis.url());
    let systemd = Systemd::bind(&world);
    let _leader = start(&world, &["run", "--lease", "12s", "jobs", "--", "sleep", "60"]);
    let leads = systemd.expect_status("leading (term ");
    redis.pause();
    let error = systemd.expect_status("");
    assert!(error.starts_with("STATUS=store error, retrying: "), "{error}");
    redis.resume();
    assert_eq!(systemd.expect_status("leading"), leads);
}

#[test]
fn a_candidate_is_not_ready_before_its_store_has_answered() {
    let world = World::on(&format!("redis://127.0.0.1:{}", tenure_testkit::servers::free_port()));
    let systemd = Systemd::bind(&world);
    let _candidate = start(&world, &["run", "jobs", "--", "true"]);
    let mut buffer = [0; 1000];
    let mut messages = Vec::new();
    while !messages.iter().any(|message: &String| message.starts_with("STATUS=store error, retrying: ")) {
        let length = systemd.0.recv(&mut buffer).unwrap();
        messages.push(text(&buffer[..length]));
    }
    assert!(!messages.contains(&"READY=1".to_owned()), "{messages:?}");
}

#[test]
fn the_command_does_not_get_the_variables_of_the_supervisor() {
    let world = World::alone();
    let mut command = world.tenure(&["run", "-q", "jobs", "--", "env"]);
    command.env("NOTIFY_SOCKET", "@nowhere").env("WATCHDOG_USEC", "1000000").env("WATCHDOG_PID", "1");
    let environment = text(&world.output_of(command).stdout);
    assert!(environment.contains("TENURE_TERM=1"), "{environment}");
    assert!(!environment.contains("NOTIFY_SOCKET") && !environment.contains("WATCHDOG_"), "{environment}");
}

#[test]
fn readiness_is_written_to_a_descriptor() {
    let world = World::alone();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    // A file keeps what it has.
    fs::write(world.path("ready"), "before\n").unwrap();
    let script = format!("exec 3>> ready; exec {tenure} run --ready-fd 3 jobs -- sh -c 'cat ready | wc -c > count'");
    let mut shell = world.run_in_shell(&script);
    assert_eq!(shell.code(&world), 0);
    assert_eq!(fs::read(world.path("ready")).unwrap(), b"before\n\n");
    let output = world.output(&["run", "--ready-fd", "77", "jobs", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--ready-fd 77 is not open for writing"), "{}", text(&output.stderr));
}

#[test]
fn chosen_signals_are_forwarded_and_do_not_end_the_term() {
    let world = World::alone();
    let script = "trap 'echo hup >> log' HUP; trap 'echo int >> log; exit 5' INT
        echo started >> log; while :; do sleep 0.05; done";
    let mut candidate = world.run(&["--forward", "hup,INT"], script);
    world.eventually("the command to run", || world.log() == ["started"]);
    candidate.signal(Signal::HUP);
    world.eventually("the signal to arrive", || world.log() == ["started", "hup"]);
    // Not forwarded, and ignored.
    candidate.signal(Signal::USR1);
    candidate.signal(Signal::INT);
    assert_eq!(candidate.code(&world), 5);
    assert_eq!(world.log(), ["started", "hup", "int"]);
}

#[test]
fn a_forwarded_interrupt_ends_a_candidate_that_waits_and_a_hang_up_does_not() {
    let world = World::shared();
    let _leader = world.run(&[], "echo started >> log; sleep 60");
    world.eventually("the command to run", || !world.log().is_empty());
    let mut follower = world.run(&["--forward", "HUP,INT"], "true");
    let waits = || world.lines("errors").iter().any(|line| line.contains("waiting for jobs"));
    world.eventually("the follower to wait", waits);
    // If this one ended it, the exit code would be another.
    follower.signal(Signal::HUP);
    follower.signal(Signal::INT);
    assert_eq!(follower.code(&world), 128 + 2);
}

#[test]
fn the_units_of_systemd_stop_tenure_alone_and_wait_for_its_end() {
    for unit in ["outbox.service", "report.service"] {
        let path = format!("{}/../../deploy/systemd/{unit}", env!("CARGO_MANIFEST_DIR"));
        let unit = fs::read_to_string(path).unwrap();
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStop=-/bin/sh -c '")).unwrap();
        let line = line.strip_suffix('\'').unwrap();
        let world = World::alone();
        let script = "trap 'echo term >> log; exit' TERM; echo start >> log; while :; do sleep 1000 & wait; done";
        let mut tenure = world.run(&[], script);
        world.eventually("the command to run", || !world.log().is_empty());
        // A test is the parent of tenure and has to reap it, as systemd does.
        let stop = |main: &str| Command::new("/bin/sh").args(["-c", line]).env("MAINPID", main).spawn().unwrap();
        let mut stopping = stop(&tenure.child.id().to_string());
        tenure.wait(&world);
        assert!(stopping.wait().unwrap().success());
        assert_eq!(world.log(), ["start", "term"]);
        world.eventually_empty();
        // The main process has ended by itself. systemd ignores the failure, because of the minus sign.
        assert!(!stop("").wait().unwrap().success());
    }
}

#[test]
fn the_units_of_systemd_are_valid() {
    let world = World::alone();
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/systemd");
    let mut names = Vec::new();
    for unit in fs::read_dir(units).unwrap() {
        let unit = unit.unwrap();
        // The programs that the units name are not installed here.
        let content = fs::read_to_string(unit.path()).unwrap();
        let content = content.replace("/usr/local/bin/tenure", env!("CARGO_BIN_EXE_tenure"));
        fs::write(world.path(unit.file_name().to_str().unwrap()), content).unwrap();
        names.push(world.path(unit.file_name().to_str().unwrap()));
    }
    assert!(names.len() >= 3, "{names:?}");
    let output = Command::new("systemd-analyze").arg("verify").arg("--man=no").args(&names).output();
    let output = output.expect("systemd-analyze is not installed; run scripts/servers systemd");
    let complaints = text(&output.stderr);
    let ours = complaints.lines().filter(|line| names.iter().any(|name| line.contains(&*name.to_string_lossy())));
    assert!(output.status.success() && ours.count() == 0, "{complaints}");
}
