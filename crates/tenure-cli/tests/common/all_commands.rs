//! One test of all commands, from the first candidate to the last, which runs over every store.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use super::{World, candidate, json_of, stand, text};

/// Short, but long enough for a busy machine.
pub(crate) const LEASE: [&str; 2] = ["--lease", "5s"];

pub(crate) fn all_commands_work_over(url: &str) {
    let world = World::on(url);
    let vacant = world.output(&["status", "jobs"]);
    assert_eq!((vacant.status.code(), text(&vacant.stdout).as_str()), (Some(1), "vacant: no candidate has led yet\n"));
    let mut watch = world.tenure(&["watch", "--json", "jobs"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut leader = || -> Value {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["leader"]["candidate"].clone()
    };
    assert_eq!(leader(), Value::Null);

    let alice = stand(&world, "alice", &LEASE);
    assert_eq!(world.start_number(1).candidate, "alice");
    assert_eq!(leader(), "alice");
    let mut bob = stand(&world, "bob", &LEASE);
    world.eventually("bob to stand", || candidate(&world, "bob").is_some());
    let status = world.output(&["status", "--json", "jobs"]);
    assert_eq!((status.status.code(), &json_of(&status)["leader"]["candidate"]), (Some(0), &Value::from("alice")));

    let listed = json_of(&world.output(&["status", "--json"]));
    assert_eq!(listed["elections"].as_array().map(Vec::len), Some(1), "{listed}");
    let first = &listed["elections"][0];
    assert_eq!((&first["election"], &first["leader"]["candidate"]), (&"jobs".into(), &"alice".into()), "{listed}");

    let asked = world.output(&["step-down", "jobs", "--to", "bob"]);
    assert!(asked.status.success(), "{}", text(&asked.stderr));
    assert_eq!(world.start_number(2).candidate, "bob");
    while leader() != "bob" {}

    // A killed leader cannot notify anyone.
    bob.signal(Signal::KILL);
    bob.wait(&world);
    assert_eq!(world.start_number(3).candidate, "alice");
    while leader() != "alice" {}

    // The guard of a stopped leader kills the command before another candidate's command starts.
    let carol = stand(&world, "carol", &LEASE);
    world.eventually("carol to stand", || candidate(&world, "carol").is_some());
    alice.signal(Signal::STOP);
    assert_eq!(world.start_number(4).candidate, "carol");
    alice.signal(Signal::CONT);
    drop((alice, carol));
    watch.kill().unwrap();
    watch.wait().unwrap();
    // All candidates must be gone before the seat is removed: later ones know nothing of them.
    world.eventually_empty();

    let forgotten = world.output(&["forget", "--yes", "jobs"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
    assert_eq!(json_of(&world.output(&["status", "--json"]))["elections"], Value::Array(Vec::new()));
    // `World::start_number` checks that the token rises, although the seat was removed.
    let _dave = stand(&world, "dave", &LEASE);
    assert_eq!(world.start_number(5).candidate, "dave");
    assert!(!world.lines("errors").iter().any(|line| line.contains("panicked")), "{:?}", world.lines("errors"));
}
