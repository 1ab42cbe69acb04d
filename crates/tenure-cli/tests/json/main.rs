//! The JSON of every command, compared with docs/json.schema.json and docs/json.md.

#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;
mod schema;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Output, Stdio};
use std::time::Duration;

use common::{World, candidate, candidates, stand, text};
use rustix::process::Signal;
use schema::Schema;
use serde_json::Value;
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::{Redis, free_port};

/// Parses each line of a stream.
fn lines(stream: &[u8]) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text(stream).lines().map(parse).collect()
}

/// Checks the only line of standard output, and that standard error is empty.
#[track_caller]
fn answer(schema: &mut Schema, definition: &str, code: i32, output: &Output) -> Value {
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(code), ""));
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 1, "{lines:?}");
    schema.check(definition, &lines[0]);
    lines[0].clone()
}

/// Checks the only line of standard error, and that standard output is empty.
#[track_caller]
fn failure(schema: &mut Schema, code: i32, output: &Output) -> String {
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""));
    let lines = lines(&output.stderr);
    assert_eq!(lines.len(), 1, "{lines:?}");
    schema.check("error", &lines[0]);
    assert_eq!(lines[0]["error"]["exit_code"], code);
    lines[0]["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn every_line_of_json_matches_the_schema_and_every_field_of_the_schema_occurs() {
    let schema = &mut Schema::load();
    an_election_from_its_first_candidate_to_its_end(schema);
    commands_without_an_election(schema);
    failures(schema);
    a_watch_over_a_store_that_fails(schema);
    a_leader_that_is_killed(schema);
    logs(schema);
    // The other values of these fields are checked where they are made: see `findings_tests.rs`.
    let mut unseen = schema.unseen();
    unseen.retain(|field| {
        let is_azure = field.starts_with("/$defs/break_lease/") || field.contains("/azblob");
        (cfg!(feature = "azure-blob") || !is_azure)
            && (cfg!(feature = "object-store") || !field.starts_with("/$defs/cost/"))
    });
    assert_eq!(unseen, Vec::<String>::new(), "no output has these fields");
}

fn an_election_from_its_first_candidate_to_its_end(schema: &mut Schema) {
    let world = World::shared();
    let run = |args: &[&str]| world.output(&[args, &["--json"]].concat());
    assert_eq!(answer(schema, "elections", 0, &run(&["status"]))["elections"], Value::Array(Vec::new()));
    // Neither the database nor a candidate exists.
    assert_eq!(answer(schema, "status", 1, &run(&["status", "jobs"]))["leader"], Value::Null);
    assert_eq!(answer(schema, "candidates", 1, &run(&["candidates", "jobs"]))["candidates"], Value::Array(Vec::new()));
    assert_eq!(answer(schema, "explain", 1, &run(&["explain", "jobs"]))["findings"][0]["code"], "no_database");
    assert_eq!(answer(schema, "step_down", 1, &run(&["step-down", "jobs"]))["asked"], Value::Null);
    assert_eq!(answer(schema, "forget", 0, &run(&["forget", "jobs"]))["token"], 0);
    let mut watch = Watch::start(&world);
    assert_eq!(watch.next(schema)["leader"], Value::Null);

    // One leads, one waits, and one is unhealthy.
    let alice = stand(&world, "alice", &["--metadata", "zone=a"]);
    world.start_number(1);
    assert_eq!(watch.next(schema)["leader"]["candidate"], "alice");
    let _others =
        [stand(&world, "bob", &["--priority", "3"]), stand(&world, "ill", &["--health-cmd", "echo bad; false"])];
    world.eventually("all to be listed", || candidates(&world).len() == 3);
    world.eventually("the error to be listed", || {
        candidate(&world, "ill").is_some_and(|status| status["metadata"]["error"].is_string())
    });
    let status = answer(schema, "status", 0, &run(&["status", "jobs"]));
    assert_eq!((&status["token"], &status["leader"]["token"]), (&1.into(), &1.into()));
    world.output(&["run", "-q", "bad", "--", "true"]);
    let database = rusqlite::Connection::open(world.path("seats.db")).unwrap();
    assert_eq!(database.execute("UPDATE seats SET record = '{}' WHERE name = 'bad'", []).unwrap(), 1);
    drop(database);
    let listed = answer(schema, "elections", 2, &run(&["status"]));
    assert!(listed["elections"][0]["error"].is_string() && listed["elections"][1]["leader"]["candidate"] == "alice");
    let listed = answer(schema, "candidates", 0, &run(&["candidates", "jobs"]));
    assert_eq!(listed["candidates"][1]["lease_ms"], 15_000);
    for (id, code) in [("bob", "candidate_waits"), ("ill", "candidate_unhealthy"), ("carol", "not_listed")] {
        let explained = answer(schema, "explain", 0, &run(&["explain", "jobs", "--candidate", id]));
        assert_eq!((&explained["candidate"], &explained["findings"][1]["code"]), (&id.into(), &code.into()));
    }
    assert_eq!(answer(schema, "step_down", 0, &run(&["step-down", "jobs"]))["handed_over"], false);
    world.start_number(2);
    while watch.next(schema)["leader"]["candidate"] != "bob" {}
    let handed_over = answer(schema, "step_down", 0, &run(&["step-down", "jobs", "--to", "alice"]));
    assert_eq!(handed_over["leader"]["candidate"], "alice");
    world.start_number(3);
    // Bob has stepped down.
    world.eventually("the hold-back to be listed", || {
        candidate(&world, "bob").is_some_and(|status| status["held_back_until"].is_string())
    });
    answer(schema, "candidates", 0, &run(&["candidates", "jobs"]));
    assert!(failure(schema, 2, &run(&["forget", "jobs"])).contains("stop it first"));
    assert_eq!(answer(schema, "forget", 0, &run(&["forget", "--yes", "jobs"]))["forgotten"], true);
    alice.signal(Signal::KILL);
}

fn commands_without_an_election(schema: &mut Schema) {
    let world = World::alone();
    answer(schema, "stores", 0, &world.output(&["stores", "--json"]));
    #[cfg(feature = "azure-blob")]
    {
        let azurite = tenure_testkit::servers::Azurite::start();
        assert_eq!(azurite.ask("PUT", "/jobs?restype=container", &[], "").0, 201);
        let broken = World::on(&azurite.url()).output(&["break-lease", "--yes", "--json", "jobs"]);
        assert_eq!(answer(schema, "break_lease", 0, &broken)["broken"], false);
    }
    #[cfg(feature = "object-store")]
    answer(schema, "cost", 0, &world.output(&["stores", "--cost", "--json"]));
    answer(schema, "schema", 0, &world.output(&["schema", "--json", "postgres"]));
    let demo = world.output(&["demo", "--json", "--rounds", "1", "--lease", "1s"]);
    let lines = lines(&demo.stdout);
    assert_eq!(lines.len(), 2, "{}", text(&demo.stderr));
    schema.check("demo_round", &lines[0]);
    schema.check("demo_summary", &lines[1]);
}

fn failures(schema: &mut Schema) {
    let world = World::alone();
    // Bad usage, found by the parser and after it.
    for args in [
        &["candidates", "--json"][..],
        &["--json", "statsu", "jobs"],
        &["run", "jobs", "--lease", "soon", "--json", "--", "true"],
        &["schema", "--json", "nothing"],
        &["status", "--json", ""],
        &["run", "--json", "--lease", "1ms", "jobs", "--", "true"],
    ] {
        assert!(!failure(schema, 2, &world.output(args)).is_empty(), "{args:?}");
    }
    failure(schema, 127, &world.output(&["run", "--json", "jobs", "--", "no-such-program"]));
    // The words after the dashes are not options of tenure.
    let refused = world.output(&["run", "jobs", "--lease", "soon", "--", "x", "--json"]);
    assert!(text(&refused.stderr).starts_with("tenure: "), "{}", text(&refused.stderr));
    let closed = format!("redis://:hunter2@127.0.0.1:{}", free_port());
    for command in ["status", "candidates", "explain", "watch", "step-down", "forget"] {
        let message = failure(schema, 2, &World::on(&closed).output(&[command, "--json", "jobs"]));
        assert!(message.contains("connection refused") && !message.contains("hunter2"), "{message}");
    }
    let message = failure(schema, 2, &World::on(&closed).output(&["explain", "--json", "jobs"]));
    assert!(message.contains("check host and port") && message.contains(&closed[16..]), "{message}");
}

fn a_watch_over_a_store_that_fails(schema: &mut Schema) {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let world = World::on(&format!("redis://{}", proxy.address()));
    let mut watch = Watch::start(&world);
    watch.next(schema);
    proxy.refuse();
    let error = std::thread::scope(|scope| {
        let error = scope.spawn(|| watch.next_error());
        while !error.is_finished() {
            // Again and again, because a connection that is just being opened escapes a reset.
            proxy.reset();
            std::thread::sleep(Duration::from_millis(2));
        }
        error.join().unwrap()
    });
    schema.check("error", &error);
    assert_eq!(error["error"]["exit_code"], Value::Null);
    proxy.pass();
    loop {
        let line = watch.next_error();
        let is_notice = line.get("notice").is_some();
        schema.check(if is_notice { "notice" } else { "error" }, &line);
        if is_notice {
            break;
        }
    }
    proxy.refuse();
}

fn a_leader_that_is_killed(schema: &mut Schema) {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    let mut watch = Watch::start(&world);
    watch.next(schema);
    let leader = stand(&world, "alice", &["--json"]);
    assert_eq!(watch.next(schema)["leader"]["candidate"], "alice");
    world.start_number(1);
    leader.signal(Signal::KILL);
    let crash = watch.next_of(schema, "leader_crash");
    assert_eq!(crash["crash"]["candidate"], "alice");
    assert_eq!(watch.next(schema)["leader"], Value::Null);
    let status = world.output(&["status", "--json", "jobs"]);
    assert_eq!(answer(schema, "status", 1, &status)["crash"], crash["crash"]);
    world.eventually("the guard to report", || world.lines("errors").iter().any(|line| line.contains("died")));
    let line = world.lines("errors").into_iter().find(|line| line.contains("died")).unwrap();
    schema.check("notice", &serde_json::from_str(&line).unwrap());
}

fn logs(schema: &mut Schema) {
    let world = World::shared();
    for args in [&["run", "--log-format", "json"][..], &["run", "--json"], &["once", "--json", "--for", "1h"]] {
        let output = world.output(&[args, &["jobs", "--", "true"]].concat());
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), ""), "{args:?}");
        let lines = lines(&output.stderr);
        lines.iter().for_each(|line| schema.check("log", line));
        assert!(
            lines.iter().any(|line| line["message"] == "this candidate leads" && line["token"].is_u64()),
            "{lines:?}"
        );
    }
    let refused = world.output(&["status", "--log-format", "json", ""]);
    let line = lines(&refused.stderr).pop().unwrap();
    schema.check("log", &line);
    assert_eq!((&line["level"], &line["exit_code"]), (&"ERROR".into(), &2.into()));
    let closed = World::on(&format!("redis://127.0.0.1:{}", free_port()));
    let failing = closed.output(&["run", "--json", "--give-up-after", "1s", "--lease", "1s", "jobs", "--", "true"]);
    let mut lines = lines(&failing.stderr);
    schema.check("error", &lines.pop().unwrap());
    lines.iter().for_each(|line| schema.check("log", line));
}

#[test]
fn the_page_names_every_field_and_every_code() {
    let page = include_str!("../../../../docs/json.md");
    let section = |name: &str| {
        let start =
            page.find(&format!("\n## `{name}`\n")).unwrap_or_else(|| panic!("docs/json.md has no section {name:?}"));
        let rest = &page[start + 1..];
        &rest[..rest.find("\n## ").unwrap_or(rest.len())]
    };
    let fields = Schema::load().fields();
    assert!(fields.len() > 60);
    for (place, name) in fields {
        let definition = place.split('/').nth(2).unwrap();
        assert!(
            section(definition).contains(&format!("`{name}`")),
            "docs/json.md does not name {name:?} of {definition}"
        );
    }
    let schema: Value = serde_json::from_str(include_str!("../../../../docs/json.schema.json")).unwrap();
    let codes = schema.pointer("/$defs/finding/properties/code/enum").and_then(Value::as_array).unwrap();
    for code in codes.iter().map(|code| code.as_str().unwrap()) {
        assert!(section("finding").contains(&format!("`{code}`")), "docs/json.md does not name the code {code:?}");
    }
}

#[test]
fn every_code_of_a_finding_is_in_the_schema() {
    let source = include_str!("../../src/commands/explain/findings.rs");
    let schema: Value = serde_json::from_str(include_str!("../../../../docs/json.schema.json")).unwrap();
    let listed = schema.pointer("/$defs/finding/properties/code/enum").and_then(Value::as_array).unwrap();
    let listed: Vec<&str> = listed.iter().map(|code| code.as_str().unwrap()).collect();
    for code in &listed {
        assert!(source.contains(&format!("\"{code}\"")), "{code} is in the schema, but not in the source");
    }
    let calls =
        source.split("finding(").skip(1).filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
    for code in calls {
        assert!(listed.contains(&code), "{code} is not in the schema");
    }
}

/// A running `tenure watch --json`.
struct Watch {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    errors: Lines<BufReader<ChildStderr>>,
}

impl Watch {
    fn start(world: &World) -> Self {
        let mut watch = world.tenure(&["watch", "--json", "jobs"]);
        let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let errors = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines, errors }
    }

    fn next(&mut self, schema: &mut Schema) -> Value {
        self.next_of(schema, "watch")
    }

    fn next_of(&mut self, schema: &mut Schema, definition: &str) -> Value {
        let line = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        schema.check(definition, &line);
        line
    }

    fn next_error(&mut self) -> Value {
        serde_json::from_str(&self.errors.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
