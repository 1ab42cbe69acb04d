//! The companion of a program that uses the library (`tenure will`): it frees the seats of the program when the
//! program is dead, and never before. The lease of these tests is longer than they wait.
//!
//! The program is this test executable, started again with only the test `program`.

#![cfg(all(target_os = "linux", feature = "redis"))]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{World, children, is_alive, send, text};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, getpid, pidfd_getfd, pidfd_open};
use tenure::layers::LastWills;
use tenure::testing::Memory;
use tenure::{Elections, Settings};
use tenure_testkit::servers::Redis;

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const LEASE: Duration = Duration::from_secs(600);

/// The variables that make the test `program` a program.
const STORE: &str = "TENURE_TEST_PROGRAM_STORE";

/// A program that leads with a last will and obeys the words on its standard input.
#[test]
fn program() {
    let Ok(url) = std::env::var(STORE) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let variables = [("TENURE_STORE", url.as_str()), ("TENURE_LAST_WILL", TENURE)];
    let settings = Settings::default().with_vars(variables).unwrap();
    let elections = tenure::from_settings(settings).unwrap();
    let election = elections.election("jobs").candidate("program").lease(LEASE).start().unwrap();
    let term = runtime.block_on(election.elected()).unwrap();
    println!("\nleads {}", term.token());
    let mut fork = None;
    for word in std::io::stdin().lines().map_while(Result::ok) {
        match word.as_str() {
            "exit" => std::process::exit(0),
            "abort" => std::process::abort(),
            "panic" => drop(std::thread::spawn(|| panic!("a thread of the program panics")).join()),
            "await the end of the term" => runtime.block_on(term.ended()),
            "stop" => runtime.block_on(elections.shutdown(Duration::from_secs(30))).unwrap(),
            // A child that lives on with all descriptors of its parent, the socket to the companion among them.
            "fork" => {
                let sockets = sockets();
                fork = Some((Command::new("sleep").arg("1000").spawn().unwrap(), sockets));
            }
            // A child that does work of this leader, and keeps its seat.
            "lifeline" => {
                let lifeline = election.lifeline().unwrap().unwrap();
                fork = Some((Command::new("sleep").arg("1000").stdin(lifeline).spawn().unwrap(), Vec::new()));
            }
            other => panic!("{other}"),
        }
        println!("done {word}");
    }
    drop(fork);
}

/// Returns duplicates of all sockets of this process, which its children inherit.
fn sockets() -> Vec<OwnedFd> {
    let me = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let is_socket = |path: &Path| fs::read_link(path).is_ok_and(|it| it.to_string_lossy().starts_with("socket:"));
    let entries = fs::read_dir("/proc/self/fd").unwrap().flatten().filter(|entry| is_socket(&entry.path()));
    let copy = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let copy = pidfd_getfd(&me, number, PidfdGetfdFlags::empty()).ok()?;
        fcntl_setfd(&copy, FdFlags::empty()).ok()?;
        Some(copy)
    };
    let copies: Vec<_> = entries.filter_map(copy).collect();
    assert!(!copies.is_empty());
    copies
}

struct Program {
    child: Child,
    orders: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Program {
    /// Starts a program and waits until it leads.
    fn lead(world: &World, url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let tenure = world.tenure(&[]);
        command.envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("TENURE_STORE");
        command.args(["--exact", "program", "--nocapture"]).env(STORE, url).current_dir(world.path("."));
        let errors = fs::File::options().append(true).create(true).open(world.path("errors")).unwrap();
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::from(errors)).spawn().unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut program = Self { child, orders, lines: BufReader::new(output).lines() };
        program.await_line("leads ");
        program
    }

    fn await_line(&mut self, begins: &str) {
        let found = self.lines.by_ref().map_while(Result::ok).any(|line| line.starts_with(begins));
        assert!(found, "the program ended before it wrote {begins:?}");
    }

    fn order(&mut self, word: &str) {
        writeln!(self.orders, "{word}").unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn companion(&self) -> Pid {
        let is_companion = |pid: &Pid| {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            line.windows(6).any(|word| word == b"\0will\0")
        };
        children(self.pid()).into_iter().find(is_companion).expect("a companion")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(world: &World) -> serde_json::Value {
    common::json_of(&world.output(&["status", "--json", "jobs"]))
}

fn is_freed(world: &World) -> bool {
    let status = status(world);
    status["leader"].is_null() && status["crash"]["candidate"] == "program"
}

#[test]
fn the_seat_of_a_program_that_crashes_is_freed_at_once() {
    for death in ["kill -9", "abort", "exit"] {
        let redis = Redis::start();
        let world = World::on(&redis.url());
        let mut program = Program::lead(&world, &redis.url());
        match death {
            "kill -9" => send(program.pid(), Signal::KILL),
            word => program.order(word),
        }
        program.child.wait().unwrap();
        world.eventually(&format!("the seat to be free after {death}"), || is_freed(&world));
        let by = status(&world)["crash"]["by"].as_str().unwrap().to_owned();
        assert!(by.starts_with("companion "), "{by}");
        drop(program);
        world.eventually_empty();
    }
}

#[test]
fn while_the_program_lives_its_seat_is_left_alone() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let mut program = Program::lead(&world, &redis.url());
    program.order("panic");
    program.await_line("done panic");
    // Signals to the whole group of the program do not end its companion either.
    let companion = program.companion();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        send(companion, signal);
    }
    // The program is stopped for a while: it lives.
    send(program.pid(), Signal::STOP);
    world.eventually("the program to be stopped", || common::is_stopped(program.pid()));
    assert!(is_alive(companion));
    assert_eq!(status(&world)["leader"]["candidate"], "program");
    send(program.pid(), Signal::CONT);
    send(program.pid(), Signal::KILL);
    world.eventually("the seat to be free", || is_freed(&world));
}

#[test]
fn a_socket_that_a_fork_keeps_open_does_not_hide_the_death_of_the_program() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let mut program = Program::lead(&world, &redis.url());
    program.order("fork");
    program.await_line("done fork");
    send(program.pid(), Signal::KILL);
    world.eventually("the seat to be free", || is_freed(&world));
}

#[test]
fn a_pipe_that_is_closed_while_its_program_lives_frees_nothing() {
    // This test is the program: it leads, and closes the pipe without a word.
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let elections = Elections::new(tenure::connect(&redis.url()).unwrap());
    let election = elections.election("jobs").candidate("program").lease(LEASE).start().unwrap();
    let term = runtime.block_on(election.elected()).unwrap();
    let arm = |lease_ms: u64| {
        serde_json::json!({ "arm": {
            "election": "jobs",
            "candidate": "program",
            "incarnation": election.candidate().incarnation.to_string(),
            "token": term.token().get(),
            "lease_ms": lease_ms,
        } })
    };
    let mut companion = world.tenure(&["will"]);
    companion.env_remove("TENURE_STORE");
    let mut companion = companion.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = companion.stdin.take().unwrap();
    let first = serde_json::json!({ "store": redis.url(), "parent": std::process::id() });
    writeln!(pipe, "{first}\n{}", arm(100)).unwrap();
    drop(pipe);
    // It ends when the lease that it knows of has passed.
    assert!(companion.wait().unwrap().success());
    assert!(term.is_current());
    assert_eq!(status(&world)["leader"]["candidate"], "program");
    assert_eq!(status(&world)["crash"], serde_json::Value::Null);
}

#[test]
fn a_program_that_stops_in_order_needs_its_companion_no_more() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let mut program = Program::lead(&world, &redis.url());
    program.order("stop");
    program.await_line("done stop");
    assert_eq!(status(&world)["leader"], serde_json::Value::Null);
    program.order("exit");
    program.child.wait().unwrap();
    drop(program);
    world.eventually_empty();
    assert_eq!(status(&world)["crash"], serde_json::Value::Null);
}

#[test]
fn a_program_that_has_lost_its_seat_and_stops_in_order_has_not_died() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let mut program = Program::lead(&world, &redis.url());
    assert!(world.output(&["forget", "--yes", "jobs"]).status.success());
    let options = ["--lease", "10m", "--priority", "5"];
    let mut other = common::stand(&world, "other", &options);
    world.eventually("the other candidate to lead", || {
        // The program can be the first to take the seat again. With `--to`, the other candidate is never the one that
        // steps down: it would not stand again during this test.
        let _ = world.output(&["step-down", "jobs", "--to", "other"]);
        status(&world)["leader"]["candidate"] == "other"
    });
    program.order("stop");
    program.await_line("done stop");
    program.order("exit");
    program.child.wait().unwrap();
    drop(program);
    other.signal(Signal::TERM);
    other.wait(&world);
    world.eventually_empty();
    let lines = world.lines("errors");
    assert!(!lines.iter().any(|line| line.contains("died")), "{lines:?}");
}

#[test]
fn a_program_whose_seat_was_removed_and_that_stops_in_order_has_not_died() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let mut program = Program::lead(&world, &redis.url());
    assert!(world.output(&["forget", "--yes", "jobs"]).status.success());
    for word in ["await the end of the term", "stop"] {
        program.order(word);
        program.await_line(&format!("done {word}"));
    }
    program.order("exit");
    program.child.wait().unwrap();
    drop(program);
    world.eventually_empty();
    let lines = world.lines("errors");
    assert!(!lines.iter().any(|line| line.contains("died")), "{lines:?}");
}

#[test]
fn a_companion_that_cannot_be_started_is_an_error_that_says_how_to_get_it() {
    for program in ["no-such-program", "true", "cat"] {
        let error = tenure::connect_with_last_will("memory:", program).err().unwrap().to_string();
        assert!(error.starts_with(&format!("last_will: cannot start {program:?} as companion: ")), "{error}");
        assert!(error.ends_with("install the command tenure, or name its path"), "{error}");
    }
}

#[test]
fn a_companion_without_the_store_of_its_program_is_an_error_that_says_how_to_get_one_with_it() {
    let error =
        LastWills::start(Memory::new().store(), "oracle://user:hunter2@localhost", TENURE).unwrap_err().to_string();
    let begins = format!("last_will: companion {TENURE:?} answers: unknown store \"oracle\"");
    assert!(error.starts_with(&begins) && !error.contains("hunter2"), "{error}");
    assert!(error.ends_with("; \"cargo install --path crates/tenure-cli --features full\" builds one with all stores"));
}

#[test]
fn a_companion_that_was_killed_is_reported_once_and_the_next_one_knows_the_seats() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let program = Program::lead(&world, &redis.url());
    let first = program.companion();
    send(first, Signal::KILL);
    let warnings = || {
        let is_warning = |line: &String| line.contains("the companion has ended; started another one");
        world.lines("errors").iter().filter(|line| is_warning(line)).count()
    };
    // It is reported after the next one was told.
    world.eventually("the warning", || warnings() == 1);
    assert_ne!(program.companion(), first);
    assert_eq!(status(&world)["leader"]["candidate"], "program");
    send(program.pid(), Signal::KILL);
    world.eventually("the seat to be free", || is_freed(&world));
    assert_eq!(warnings(), 1);
    drop(program);
    world.eventually_empty();
}

#[test]
fn a_write_to_a_dead_companion_raises_no_signal() {
    let is_raised = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGPIPE, is_raised.clone()).unwrap();
    let world = World::alone();
    let script = world.path("companion");
    // This companion reports that it is ready, ends at the first message about a seat, and cannot be started again.
    let companion = "#!/bin/sh\nrm \"$0\"; read -r store; echo ready; read -r arm";
    fs::write(&script, companion).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let store = LastWills::start(Memory::new().store(), "memory:", script.to_str().unwrap()).unwrap();
    let elections = Elections::new(store);
    let lead = |name: &str| {
        let election = elections.election(name).start().unwrap();
        election.elected_blocking().unwrap();
        election
    };
    let first = lead("first");
    let line = |pid: Pid| fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let is_companion = |pid: Pid| line(pid).contains(script.to_str().unwrap());
    world.eventually("the companion to end", || !children(getpid()).into_iter().any(is_companion));
    let second = lead("second");
    assert!(!is_raised.load(Ordering::SeqCst));
    drop((first, second));
}

#[test]
fn a_companion_without_a_program_says_what_it_is() {
    let world = World::alone();
    for input in ["", "{}\n", "{\"store\":\"memory:\",\"parent\":1}\n"] {
        let mut will = world.tenure(&["will"]);
        let mut child = will.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let expected = "tenure: tenure will is started by programs that use the library, see docs/last-will.md\n";
        assert_eq!(text(&output.stderr), expected, "{input:?}");
    }
}

#[test]
fn a_store_with_a_lifeline_needs_no_will_and_keeps_the_seat_while_a_child_has_the_lifeline() {
    let world = World::shared();
    let url = format!("sqlite:{}", world.path("seats.db").display());
    let mut program = Program::lead(&world, &url);
    let companion = program.companion();
    program.order("lifeline");
    program.await_line("done lifeline");
    send(program.pid(), Signal::KILL);
    program.child.wait().unwrap();
    // The companion has nothing to do, and the child of the program still has the lock of the seat.
    world.eventually("the companion to end", || !is_alive(companion));
    assert_eq!(status(&world)["leader"]["candidate"], "program");
}

#[test]
fn a_companion_of_many_seats_gives_up_when_their_lease_has_passed_and_says_so_once() {
    let world = World::alone();
    let closed = format!("redis://127.0.0.1:{}", tenure_testkit::servers::free_port());
    // A shell is the program: it starts the companion, arms it, and dies.
    let arm = "i=0; while [ $i -lt 200 ]; do i=$((i + 1))
        echo \"{\\\"arm\\\":{\\\"election\\\":\\\"jobs-$i\\\",\\\"candidate\\\":\\\"a\\\",\\\"incarnation\\\":\\\"7\\\",\\\"token\\\":1,\\\"lease_ms\\\":1000}}\"; done";
    let script = format!(
        "mkfifo pipe ready; {TENURE} will < pipe > ready 2> errors & exec 3> pipe
         echo \"{{\\\"store\\\":\\\"{closed}\\\",\\\"parent\\\":$$}}\" >&3
         read -r line < ready; ({arm}) >&3; kill -9 $$"
    );
    let mut shell = world.run_in_shell(&script);
    shell.wait(&world);
    world.eventually_empty();
    let errors = world.lines("errors");
    let [line] = &errors[..] else { panic!("{errors:?}") };
    assert!(
        line.starts_with("tenure: cannot free the seat of jobs-") && line.contains(" and 199 more after "),
        "{line}"
    );
}
