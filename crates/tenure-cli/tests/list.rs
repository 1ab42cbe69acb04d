//! `tenure status` without a name lists all elections, and `status` needs only the right to read.

#![cfg(target_os = "linux")]

mod common;

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{PROBE, World, json_of, text};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Makes an election that was led once and is vacant.
fn led_once(world: &World, election: &str) {
    let ran = world.output(&["run", "-q", "--candidate", "once", election, "--", "true"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
}

fn store_line(world: &World) -> String {
    format!("tenure: store: sqlite:{}\n", world.path("seats.db").display())
}

#[test]
fn all_elections_are_listed_with_their_leaders_and_the_place_of_the_store() {
    let world = World::shared();
    let leader = world.run(&["--candidate", "alice", "--metadata", "zone=a"], PROBE);
    world.start_number(1);
    for election in ["команда/ночные jobs", "forgotten", "100 %"] {
        led_once(&world, election);
    }
    assert!(world.output(&["forget", "forgotten"]).status.success());

    let listed = world.output(&["status"]);
    let (table, stderr) = (text(&listed.stdout), text(&listed.stderr));
    assert_eq!((listed.status.code(), &stderr), (Some(0), &store_line(&world)));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[0].starts_with("ELECTION             LEADER  TERM  ELECTED "), "{table}");
    assert!(lines[1].starts_with("100 %                -          1  -  "), "{table}");
    assert!(lines[2].starts_with("jobs                 alice      1  ") && lines[2].contains(" ago "), "{table}");
    assert!(lines[2].contains("  in 1"), "{table}");
    assert!(lines[3].starts_with("команда/ночные jobs  -          1  "), "{table}");
    assert!(!table.contains('\x1b'));

    let json = json_of(&world.output(&["status", "--json"]));
    assert_eq!(json["store"], format!("sqlite:{}", world.path("seats.db").display()));
    let names: Vec<_> = json["elections"].as_array().unwrap().iter().map(|item| item["election"].clone()).collect();
    assert_eq!(names, ["100 %", "jobs", "команда/ночные jobs"]);
    // Each item has the form of `status ELECTION`.
    for item in json["elections"].as_array().unwrap() {
        let mut alone = json_of(&world.output(&["status", "--json", item["election"].as_str().unwrap()]));
        let mut item = item.clone();
        item["version"] = 1.into();
        for status in [&mut alone, &mut item] {
            if let Some(left) = status.pointer_mut("/leader/expires_in_ms") {
                *left = json!(0);
            }
        }
        assert_eq!(item, alone);
    }
    assert_eq!(text(&world.output(&["status", "jobs"]).stderr), store_line(&world));
    for args in [&["status", "--quiet"][..], &["status", "-q", "jobs"]] {
        let quiet = world.output(args);
        assert_eq!((quiet.status.code(), quiet.stdout.len() + quiet.stderr.len()), (Some(0), 0));
    }
    drop(leader);
}

#[test]
fn a_store_without_elections_is_an_empty_list_and_is_not_created() {
    let world = World::shared();
    let listed = world.output(&["status"]);
    let expected = format!("no elections ({} does not exist)\n", world.path("seats.db").display());
    assert_eq!((listed.status.code(), text(&listed.stdout)), (Some(0), expected));
    let json = json_of(&world.output(&["status", "--json"]));
    assert_eq!(json["elections"], Value::Array(Vec::new()));
    assert_eq!(std::fs::read_dir(world.path(".")).unwrap().count(), 0, "something was created");
    led_once(&world, "jobs");
    assert!(world.output(&["forget", "jobs"]).status.success());
    assert_eq!(text(&world.output(&["status"]).stdout), "no elections\n");
}

#[test]
fn a_record_that_cannot_be_read_does_not_hide_the_others() {
    let world = World::shared();
    led_once(&world, "bad");
    led_once(&world, "good");
    let database = rusqlite::Connection::open(world.path("seats.db")).unwrap();
    assert_eq!(database.execute("UPDATE seats SET record = '{}' WHERE name = 'bad'", []).unwrap(), 1);
    drop(database);
    let listed = world.output(&["status"]);
    let (table, stderr) = (text(&listed.stdout), text(&listed.stderr));
    assert_eq!(listed.status.code(), Some(2), "{stderr}");
    assert!(table.lines().any(|line| line.starts_with("bad       ?          ?  -")), "{table}");
    assert!(table.lines().any(|line| line.starts_with("good      -          1  -")), "{table}");
    assert!(stderr.contains("tenure: cannot read bad: ") && stderr.lines().count() == 2, "{stderr}");
    let json = json_of(&world.output(&["status", "--json"]));
    assert!(json["elections"][0]["error"].is_string() && json["elections"][1]["token"] == 1, "{json}");
    // A watch says so, too.
    let said = File::create(world.path("said")).unwrap();
    let mut watch = world.tenure(&["watch", "--lines"]).stdout(Stdio::null()).stderr(said).spawn().unwrap();
    let cannot_read = || world.lines("said").iter().any(|line| line.starts_with("tenure: cannot read bad: "));
    world.eventually("the watch to say so", cannot_read);
    watch.kill().unwrap();
    watch.wait().unwrap();
    // A command that is proposed is about the same store.
    let store = format!("sqlite:{}", world.path("seats.db").display());
    let explained = text(&world.output(&["explain", "--store", &store, "never-led"]).stdout);
    assert!(explained.contains(&format!("try: tenure --store {store} run never-led -- CMD")), "{explained}");
}

#[test]
fn a_store_that_cannot_be_reached_is_one_line() {
    let world = World::on("sqlite:missing/seats.db");
    let listed = world.output(&["status"]);
    let error = text(&listed.stderr);
    assert_eq!((listed.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("mkdir -p") && listed.stdout.is_empty(), "{error}");
}

/// Runs `tenure` as a user that may write nothing in the folder of this world.
fn as_a_reader(world: &World, args: &[&str]) -> Output {
    let tenure = world.tenure(args);
    let mut reader = Command::new(if rustix::process::geteuid().is_root() { "setpriv" } else { "env" });
    if rustix::process::geteuid().is_root() {
        reader.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    reader.arg(tenure.get_program()).args(tenure.get_args()).current_dir(world.path(""));
    reader.envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?))));
    world.output_of(reader)
}

/// Returns the names and the times of all files in a folder.
fn files(folder: &Path) -> BTreeMap<String, std::time::SystemTime> {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    files.map(|file| (file.path().display().to_string(), file.metadata().unwrap().modified().unwrap())).collect()
}

#[test]
fn a_user_that_can_only_read_a_database_sees_its_elections() {
    let world = World::shared();
    let database = world.path("seats.db");
    // `tenure` would create it for its user alone.
    std::fs::write(&database, "").unwrap();
    std::fs::set_permissions(&database, Permissions::from_mode(0o644)).unwrap();
    let sees = |leader: Value| {
        let is_root = rustix::process::geteuid().is_root();
        std::fs::set_permissions(world.path(""), Permissions::from_mode(if is_root { 0o755 } else { 0o555 })).unwrap();
        let before = files(&world.path(""));
        let alone = as_a_reader(&world, &["status", "--json", "jobs"]);
        assert_eq!(json_of(&alone)["leader"]["candidate"], leader, "{}", text(&alone.stderr));
        let listed = as_a_reader(&world, &["status", "--json"]);
        assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
        let candidates = as_a_reader(&world, &["candidates", "--json", "jobs"]);
        assert!(matches!(candidates.status.code(), Some(0 | 1)), "{}", text(&candidates.stderr));
        let refused = as_a_reader(&world, &["run", "-q", "jobs", "--", "true"]);
        assert_eq!(refused.status.code(), Some(2), "the reader could lead: it can write");
        assert_eq!(files(&world.path("")), before, "a file was created or changed");
        std::fs::set_permissions(world.path(""), Permissions::from_mode(0o755)).unwrap();
        json_of(&listed)["elections"].as_array().unwrap().len()
    };
    assert_eq!(sees(Value::Null), 0, "the file is empty");

    // The leader writes to the log of its world, so it must not change while the reader looks.
    let mut leader = world.run(&["--candidate", "alice", "--lease", "1h"], PROBE);
    world.start_number(1);
    world.eventually("the line about the term", || !world.lines("errors").is_empty());
    assert_eq!(sees("alice".into()), 1, "the database is open");
    leader.signal(Signal::TERM);
    leader.wait(&world);
    assert_eq!(sees(Value::Null), 1, "the leader has released the seat");
    // The last connection that is closed in good order removes the other files of the database.
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.query_row("SELECT count(*) FROM seats", [], |_| Ok(())).unwrap();
    drop(connection);
    assert!(!world.path("seats.db-wal").exists());
    assert_eq!(sees(Value::Null), 1, "the database was closed");

    let mut leader = world.run(&["--candidate", "bob", "--lease", "1h"], PROBE);
    world.start_number(2);
    leader.signal(Signal::KILL);
    leader.wait(&world);
    world.eventually_empty();
    assert!(world.path("seats.db-wal").exists());
    // The reader cannot see the locks of the candidates, so the lease of the killed leader counts.
    assert_eq!(sees("bob".into()), 1, "the leader was killed");
}
