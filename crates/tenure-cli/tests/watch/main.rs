//! The live view of `tenure watch`, at a terminal.

#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod terminal;

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use common::{Running, World, stand};
use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::Redis;
use terminal::Terminal;

const CTRL_C: u8 = 3;

/// Waits until a line of the screen contains this text.
fn eventually_shows(world: &World, terminal: &Terminal, text: &str) {
    world.eventually(&format!("{text:?} on the screen"), || terminal.lines().iter().any(|line| line.contains(text)));
}

/// Returns how many lines of the screen begin with this text.
fn count(terminal: &Terminal, start: &str) -> usize {
    terminal.lines().iter().filter(|line| line.starts_with(start)).count()
}

#[test]
fn the_view_shows_the_leader_the_candidates_and_the_changes_in_place() {
    let world = World::shared();
    let mut terminal = Terminal::start(&world, 120, "xterm", &["watch", "jobs"]);
    eventually_shows(&world, &terminal, "jobs is vacant (no candidate has led yet)");
    eventually_shows(&world, &terminal, "no candidates");
    assert!(!world.path("seats.db").exists());

    let mut alice = stand(&world, "alice", &["--metadata", "zone=a"]);
    eventually_shows(&world, &terminal, "alice (term 1, zone=a) leads jobs, elected ");
    eventually_shows(&world, &terminal, "its lease expires in 1");
    let _bob = stand(&world, "bob", &["--priority", "3"]);
    eventually_shows(&world, &terminal, "bob        no ");
    // Each part is there once, however often it was drawn.
    let lines = terminal.lines();
    let counts = (count(&terminal, "CANDIDATE  LEADS"), count(&terminal, "alice      yes"));
    assert_eq!(counts, (1, 1), "{lines:#?}");
    let changes: Vec<&str> = lines.iter().filter_map(|line| line.split_once("Z  ").map(|(_, change)| change)).collect();
    assert_eq!(changes, ["alice (term 1, zone=a) leads", "vacant"], "{lines:#?}");

    alice.signal(Signal::TERM);
    alice.wait(&world);
    eventually_shows(&world, &terminal, "bob (term 2) leads jobs, elected ");
    world.eventually("alice to be removed", || count(&terminal, "alice ") == 0);

    terminal.resize(40);
    world.eventually("a narrow table", || {
        terminal
            .lines()
            .iter()
            .any(|line| line.starts_with("bob ") && line.ends_with('…') && line.chars().count() == 40)
    });
    assert_eq!(count(&terminal, "CANDIDATE  LEADS"), 1);

    terminal.press(CTRL_C);
    let status = terminal.process.wait(&world);
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status:?}");
    // The cursor was never hidden, and lines are wrapped again.
    let output = terminal.output();
    assert!(!output.contains("\x1b[?25l") && output.rfind("\x1b[?7h") > output.rfind("\x1b[?7l"));
}

#[test]
fn the_view_shows_the_death_of_a_leader_and_who_freed_its_seat() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let terminal = Terminal::start(&world, 120, "xterm", &["watch", "jobs"]);
    let alice = stand(&world, "alice", &[]);
    world.start_number(1);
    eventually_shows(&world, &terminal, " leads jobs, elected ");
    let guard = alice.guard(&world).as_raw_nonzero();
    alice.signal(Signal::KILL);
    eventually_shows(&world, &terminal, &format!(" died; guard {guard} on "));
}

#[test]
fn without_a_name_the_view_shows_all_elections() {
    let world = World::shared();
    let terminal = Terminal::start(&world, 120, "xterm", &["watch"]);
    eventually_shows(&world, &terminal, "no elections");
    assert!(!world.path("seats.db").exists());
    let mut alice = stand(&world, "alice", &[]);
    eventually_shows(&world, &terminal, "jobs      alice      1  ");
    world.output(&["run", "-q", "other", "--", "true"]);
    eventually_shows(&world, &terminal, "other     -          1  -");
    alice.signal(Signal::TERM);
    alice.wait(&world);
    eventually_shows(&world, &terminal, "jobs      -          1  -");
    assert_eq!((count(&terminal, "ELECTION  LEADER"), count(&terminal, "jobs  ")), (1, 1));
    let changes = terminal.lines().into_iter().filter_map(|line| Some(line.split_once("Z  ")?.1.to_owned()));
    assert_eq!(changes.collect::<Vec<_>>(), ["jobs: vacant", "other: vacant", "jobs: alice (term 1) leads"]);
}

#[test]
fn without_a_name_the_changes_of_all_elections_are_printed_into_a_pipe() {
    let world = World::shared();
    world.output(&["run", "-q", "other", "--", "true"]);
    let mut watch = world.tenure(&["watch", "--json"]);
    let mut watch = Running { child: watch.stdout(Stdio::piped()).spawn().unwrap() };
    let mut lines = BufReader::new(watch.child.stdout.take().unwrap()).lines();
    let mut change = || {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (line["election"].as_str().unwrap().to_owned(), line["leader"]["candidate"].clone())
    };
    assert_eq!(change(), ("other".to_owned(), Value::Null));
    let alice = stand(&world, "alice", &[]);
    assert_eq!(change(), ("jobs".to_owned(), "alice".into()));
    // The leader of a forgotten election has lost its seat.
    alice.signal(Signal::STOP);
    assert!(world.output(&["forget", "--yes", "jobs"]).status.success());
    assert_eq!(change(), ("jobs".to_owned(), Value::Null));
}

#[test]
fn lines_are_printed_if_asked_for_and_on_a_terminal_without_a_cursor() {
    let world = World::shared();
    for (term, args) in [
        ("xterm", &["watch", "--lines", "jobs"][..]),
        ("dumb", &["watch", "jobs"]),
        ("xterm", &["watch", "--json", "jobs"]),
    ] {
        let terminal = Terminal::start(&world, 80, term, args);
        world.eventually("a line", || terminal.output().contains('\n'));
        let output = terminal.output();
        assert!(!output.contains('\x1b') && output.lines().count() == 1, "{output:?}");
        assert!(output.contains("vacant") || output.contains("\"leader\":null"), "{output:?}");
    }
}

#[test]
fn a_store_that_fails_is_shown_until_it_works_again() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let world = World::on(&format!("redis://{}", proxy.address()));
    let directly = World::on(&redis.url());
    let _alice = stand(&directly, "alice", &[]);
    let terminal = Terminal::start(&world, 120, "xterm", &["watch", "jobs"]);
    eventually_shows(&world, &terminal, "alice      yes");
    proxy.refuse();
    world.eventually("the error on the screen", || {
        // Again and again, because a connection that is just being opened escapes a reset.
        proxy.reset();
        terminal.lines().iter().any(|line| line.contains("store error, retrying: "))
    });
    assert_eq!(count(&terminal, "CANDIDATE  LEADS"), 1);
    proxy.pass();
    world.eventually("the error to go", || count(&terminal, "store error") == 0);
    assert_eq!(count(&terminal, "alice      yes"), 1);
}
