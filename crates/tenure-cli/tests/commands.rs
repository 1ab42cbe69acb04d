//! The commands besides `run`, and their reaction to bad input: one line that says what to do, and exit code 2.

#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use common::{PROBE, World, json_of, text};
use rustix::process::Signal;
use serde_json::{Value, json};

fn assert_refused(output: &Output, expected: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("tenure: ") && error.lines().count() == 1, "{error}");
    assert!(output.stdout.is_empty());
    for words in expected {
        assert!(error.contains(words), "{words:?} is not in {error}");
    }
}

#[test]
fn commands_that_only_read_create_no_database() {
    let world = World::shared();
    let database = world.path("seats.db");
    let status = world.output(&["status", "jobs"]);
    let expected = format!("vacant: no candidate has led yet ({} does not exist)\n", database.display());
    assert_eq!((status.status.code(), text(&status.stdout)), (Some(1), expected));
    let status = world.output(&["status", "--json", "jobs"]);
    assert_eq!((status.status.code(), &json_of(&status)["token"]), (Some(1), &0.into()));
    for (args, code) in [(["candidates", "jobs"], 1), (["step-down", "jobs"], 1), (["forget", "jobs"], 0)] {
        assert_eq!(world.output(&args).status.code(), Some(code), "{args:?}");
    }
    assert_eq!(std::fs::read_dir(world.path(".")).unwrap().count(), 0, "something was created");
}

#[test]
fn an_unreadable_seat_can_be_removed_and_led_again() {
    let world = World::shared();
    world.output(&["run", "jobs", "--", "true"]);
    let database = rusqlite::Connection::open(world.path("seats.db")).unwrap();
    let edit = "UPDATE seats SET record = replace(record, '\"lease_ms\":', '\"lease_ms\":99999999999')";
    assert_eq!(database.execute(edit, []).unwrap(), 1);
    drop(database);
    assert_refused(&world.output(&["status", "jobs"]), &["a lease of more than a week"]);
    assert_refused(&world.output(&["forget", "jobs"]), &["cannot read the seat of jobs", "pass --yes to remove it"]);
    assert!(world.output(&["forget", "--yes", "jobs"]).status.success());
    assert!(world.output(&["run", "jobs", "--", "true"]).status.success());
}

#[test]
fn a_seat_with_the_highest_token_can_be_removed_and_led_again() {
    let world = World::shared();
    world.output(&["run", "jobs", "--", "true"]);
    let database = rusqlite::Connection::open(world.path("seats.db")).unwrap();
    let edit = "UPDATE seats SET record = replace(record, '\"token\":1,', '\"token\":9223372036854775807,')";
    assert_eq!(database.execute(edit, []).unwrap(), 1);
    drop(database);
    let forgotten = world.output(&["forget", "jobs"]);
    assert_eq!((forgotten.status.code(), text(&forgotten.stdout).as_str()), (Some(0), "removed jobs\n"));
    assert!(world.output(&["run", "jobs", "--", "true"]).status.success());
}

#[test]
fn an_election_without_any_candidate_so_far_is_vacant() {
    let world = World::shared();
    world.output(&["run", "other-jobs", "--", "true"]);
    let status = world.output(&["status", "jobs"]);
    assert_eq!((status.status.code(), text(&status.stdout).as_str()), (Some(1), "vacant: no candidate has led yet\n"));
    let status = world.output(&["status", "--json", "jobs"]);
    assert_eq!(status.status.code(), Some(1));
    assert_eq!(json_of(&status)["leader"], Value::Null);
}

#[test]
fn status_shows_the_leader() {
    let world = World::shared();
    let tenure = world.run(&["--candidate", "alice", "--metadata", "zone=a"], PROBE);
    world.start_number(1);
    let status = world.output(&["status", "--json", "jobs"]);
    assert_eq!(status.status.code(), Some(0));
    let json = json_of(&status);
    assert_eq!(json["election"], "jobs");
    assert_eq!(json["leader"]["candidate"], "alice");
    assert_eq!(json["leader"]["token"], 1);
    assert_eq!(json["leader"]["metadata"], json!({ "zone": "a" }));
    assert!(json["leader"]["since"].as_str().unwrap().ends_with('Z'));
    assert!((1..=15_000).contains(&json["leader"]["expires_in_ms"].as_u64().unwrap()));
    let status = world.output(&["status", "jobs"]);
    assert_eq!(status.status.code(), Some(0));
    assert!(text(&status.stdout).starts_with("alice (term 1, zone=a) leads, elected "), "{}", text(&status.stdout));
    // No colours, because standard output is not a terminal.
    assert!(!text(&status.stdout).contains('\x1b'));
    drop(tenure);
}

#[test]
fn watch_prints_every_change() {
    let world = World::shared();
    let mut watch = world.tenure(&["watch", "--json", "jobs"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut leader = || -> Value {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["election"], "jobs");
        line["leader"]["candidate"].clone()
    };
    assert_eq!(leader(), Value::Null);
    let mut alice = world.run(&["--candidate", "alice"], PROBE);
    assert_eq!(leader(), "alice");
    alice.signal(Signal::TERM);
    alice.wait(&world);
    assert_eq!(leader(), Value::Null);
    let bob = world.run(&["--candidate", "bob"], PROBE);
    assert_eq!(leader(), "bob");
    drop(bob);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn step_down_in_a_vacant_election_exits_with_1() {
    let world = World::shared();
    let asked = world.output(&["step-down", "jobs"]);
    assert_eq!((asked.status.code(), text(&asked.stdout).as_str()), (Some(1), "no leader\n"));
}

#[test]
fn the_tokens_of_a_removed_election_continue_to_rise() {
    let world = World::shared();
    assert!(world.output(&["run", "jobs", "--", "true"]).status.success());
    let forgotten = world.output(&["forget", "jobs"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
    assert_eq!(text(&world.output(&["status", "jobs"]).stdout), "vacant: no candidate has led yet\n");
    let next = world.output(&["run", "jobs", "--", "sh", "-c", "echo $TENURE_TERM"]);
    assert_eq!(text(&next.stdout), "2\n");
}

#[test]
fn an_election_with_a_leader_is_removed_only_with_yes() {
    let world = World::shared();
    let tenure = world.run(&["--candidate", "alice"], PROBE);
    world.start_number(1);
    assert_refused(&world.output(&["forget", "jobs"]), &["alice (term 1) leads jobs", "--yes"]);
    assert!(world.output(&["forget", "--yes", "jobs"]).status.success());
    drop(tenure);
}

/// For each store and mode, words of everything that breaks its promises.
const WHAT_BREAKS: [(&str, &str, &[&str]); 15] = [
    ("sqlite", "", &["FILE.d", "restore", "-wal", "wall clock", "Network and FUSE", "lock file it inherited"]),
    ("redis", "", &["appendfsync", "min_replicas", "across a loss of data", "clock_trust=never", "proxy"]),
    (
        "postgres",
        "",
        &["asynchronous replication", "fsync=off", "pg_upgrade", "timeline", "clock_trust=never", "dropped"],
    ),
    ("postgres", "session", &["pg_terminate_backend", "asynchronous replication", "fsync=off", "dropped", "pooler"]),
    ("mysql", "", &["replica", "sync_binlog", "server_uuid", "across a loss of data", "forward again", "dropped"]),
    ("mysql", "session", &["KILL", "replica", "sync_binlog", "server_uuid", "across a loss of data", "proxy"]),
    ("sqlserver", "", &["forced failover", "DELAYED_DURABILITY", "across a loss of data", "forward again", "dropped"]),
    ("sqlserver", "session", &["KILL", "forced failover", "DELAYED_DURABILITY", "across a loss of data", "paused"]),
    ("etcd", "", &["lease revoke", "drift", "--force-new-cluster", "by hand", "--unsafe-no-fsync", "fifth of a lease"]),
    ("consul", "", &["session destroy", "snapshot", "by hand", "datacenters", "raft_multiplier", "fifth of a lease"]),
    (
        "kubernetes",
        "",
        &["restored from a backup", "deleted by hand", "edited by hand", "tenure forget", "Other clients"],
    ),
    ("memcached", "", &["flush_all", "clock that is behind", "tenure forget", "proxy"]),
    ("s3", "", &["conditions", "lifecycle", "regions"]),
    ("gs", "", &["conditions", "lifecycle", "regions"]),
    ("azblob", "", &["break period", "lease id"]),
];

#[test]
fn every_store_lists_what_breaks_its_promises() {
    let world = World::shared();
    let stores = world.output(&["stores", "--json"]);
    let json = json_of(&stores);
    for store in json["stores"].as_array().unwrap() {
        let (url, breaches) = (store["url"].as_str().unwrap(), store["broken_by"].as_array().unwrap());
        let mode = if url.ends_with("mode=session") { "session" } else { "" };
        let scheme = url.split(':').next().unwrap();
        let known = WHAT_BREAKS.iter().find(|(store, of, _)| (*store, *of) == (scheme, mode));
        let (_, _, words) = known.unwrap_or_else(|| panic!("{url} is not in this test"));
        for word in *words {
            let is_listed = breaches.iter().any(|breach| breach.as_str().unwrap().contains(word));
            assert!(is_listed, "{url} does not list {word:?}: {breaches:#?}");
        }
    }
    assert!(text(&world.output(&["stores"]).stdout).starts_with("sqlite:\n"));
}

#[cfg(feature = "object-store")]
#[test]
fn stores_print_what_an_election_costs_on_a_bucket() {
    let world = World::alone();
    let shown = text(&world.output(&["stores", "--cost"]).stdout);
    assert!(shown.contains("720 that write or list, 1440 that read") && shown.contains("$3.05"), "{shown}");
    assert!(shown.contains("polls every         5s;"), "{shown}");
    let args = ["stores", "--cost", "--json", "--lease", "60s", "--candidates", "10", "--write-price", "0.01"];
    let cost = json_of(&world.output(&args));
    assert_eq!((&cost["writes_per_hour"], &cost["reads_per_hour"]), (&180.into(), &1620.into()));
    assert_eq!((&cost["usd_per_month"], &cost["poll_every_ms"]), (&1.79.into(), &20_000.into()));
    assert_refused(&world.output(&["stores", "--cost", "--lease", "0s"]), &["--lease must not be 0"]);
}

#[cfg(feature = "azure-blob")]
#[test]
fn a_lease_of_another_program_is_named_and_broken_only_if_asked_to() {
    let (world, server) = (World::alone(), tenure_testkit::servers::Azurite::start());
    let url = server.url();
    let on = |args: &[&str]| world.output(&[args, &["--store", &url]].concat());
    assert_eq!(server.ask("PUT", "/jobs?restype=container", &[], "").0, 201);
    let blob = "/jobs/tenure/seats/nightly";
    assert_eq!(server.ask("PUT", blob, &[("x-ms-blob-type", "BlockBlob")], "forgotten 00000000000000000007 0").0, 201);
    assert_refused(&on(&["break-lease", "nightly"]), &["no candidate leads nightly", "pass --yes to break a lease"]);
    let nothing = on(&["break-lease", "--yes", "nightly"]);
    assert!(text(&nothing.stdout).contains("nothing to break"), "{nothing:?}");
    assert_eq!(server.lease("tenure/seats/nightly", "acquire", &[("x-ms-lease-duration", "-1")]), 201);
    let named = ["another program holds a lease on the blob azblob://devstoreaccount1/jobs/tenure/seats/nightly"];
    assert_refused(&on(&["status", "nightly"]), &named);
    assert_refused(&on(&["break-lease", "nightly"]), &[named[0], "if that program is gone, pass --yes"]);
    assert_refused(&on(&["forget", "--yes", "nightly"]), &named);
    let other_key = server.url().replace("account_key=", "account_key=aHVu");
    let forbidden = world.output(&["break-lease", "nightly", "--store", &other_key]);
    assert_refused(&forbidden, &["rejected the credentials"]);
    assert!(!text(&forbidden.stderr).contains("--yes"), "nothing is known about a lease: {forbidden:?}");
    assert_eq!(json_of(&on(&["break-lease", "--yes", "--json", "nightly"]))["broken"], true);
    assert_eq!(on(&["status", "nightly"]).status.code(), Some(1), "the seat is vacant");
    assert_refused(&world.output(&["break-lease", "--yes", "jobs"]), &["has no leases to break"]);
}

#[cfg(feature = "azure-blob")]
#[test]
fn stores_print_what_an_election_costs_on_azure() {
    let world = World::alone();
    let shown = text(&world.output(&["stores", "--cost"]).stdout);
    assert!(
        shown.contains("720 that renew, 1440 that read, 0 that write or list") && shown.contains("$0.79"),
        "{shown}"
    );
    let args = ["stores", "--cost", "--json", "--lease", "60s", "--read-price", "0.001"];
    let cost = &json_of(&world.output(&args))["azblob"];
    assert_eq!((&cost["renewals_per_hour"], &cost["reads_per_hour"]), (&180.into(), &360.into()));
    assert_eq!(cost["usd_per_month"], 0.39);
}

#[cfg(feature = "memcached")]
#[test]
fn a_list_of_candidates_or_elections_on_memcached_is_refused_in_plain_words() {
    let (world, server) = (World::alone(), tenure_testkit::servers::Memcached::start());
    let url = server.url();
    let candidates = world.output(&["candidates", "jobs", "--store", &url]);
    assert_refused(&candidates, &["keeps no notes, so it has no list of candidates"]);
    assert_refused(&world.output(&["status", "--store", &url]), &["memcached cannot list its keys; name the election"]);
}

#[test]
fn schema_prints_the_sql_of_a_stores_tables() {
    let world = World::alone();
    let plain = text(&world.output(&["schema", "postgres"]).stdout);
    assert!(plain.contains("CREATE TABLE IF NOT EXISTS \"tenure\".seats") && !plain.contains("GRANT"), "{plain}");
    let named = world.output(&["schema", "postgresql", "--schema", "my \"own\"", "--role", "app"]);
    let named = text(&named.stdout);
    assert!(named.contains("CREATE SCHEMA IF NOT EXISTS \"my \"\"own\"\"\";"), "{named}");
    assert!(named.contains("TO \"app\";") && !named.contains("\"tenure\""), "{named}");
    let json = json_of(&world.output(&["schema", "--json", "postgres"]));
    assert_eq!((json["store"].as_str(), json["sql"].as_str()), (Some("postgres"), Some(plain.as_str())));
}

#[test]
fn schema_refuses_stores_without_tables_and_invalid_names() {
    let world = World::alone();
    for (args, expected) in [
        (&["schema", "redis"][..], "no tables"),
        (&["schema", "memory"], "no tables"),
        (&["schema", "sqlite"], "creates its tables itself"),
        (&["schema", "postgers"], "postgres"),
        (&["schema", "oracle"], "postgres"),
        (&["schema", "postgres://app:hunter2@db/app"], "the name of the store"),
        (&["schema", "postgres", "--schema", ""], "schema must have 1 to 63 bytes"),
        (&["schema", "postgres", "--schema", "pg_mine"], "schema must have 1 to 63 bytes"),
        (&["schema", "postgres", "--role", ""], "role"),
        (&["schema"], "write: tenure schema "),
        #[cfg(feature = "mysql")]
        (&["schema", "mysql", "--role", "app"], "pass --schema DATABASE"),
    ] {
        let output = world.output(args);
        assert_refused(&output, &[expected]);
        assert!(!text(&output.stderr).contains("hunter2"));
    }
}

#[test]
fn an_unknown_store_is_refused_without_printing_its_password() {
    let world = World::shared();
    for args in [
        &["status", "jobs", "--store", "nosuch://user:hunter2@host/x"][..],
        &["run", "jobs", "--store", "nosuch://user:hunter2@host/x", "--", "true"],
        &["watch", "jobs", "--store", "hunter2"],
        &["status", "jobs", "-vv", "--store", "nosuch://user:hunter2@host/x"],
    ] {
        let output = world.output(args);
        assert_refused(&output, &["this program has"]);
        assert!(!text(&output.stderr).contains("hunter2"));
    }
    for url in ["redis://user:hunter2@host", "consul://hunter2@host", "redis://user:x?hunter2&hunter2@host"] {
        let output = world.output(&["status", "jobs", url]);
        assert_refused(&output, &["a store is an option"]);
        assert!(!text(&output.stderr).contains("hunter2"), "{}", text(&output.stderr));
    }
    // Help shows the values of variables, but not of this one.
    let mut help = world.tenure(&["run", "--help"]);
    help.env("TENURE_STORE", "redis://user:hunter2@host");
    let help = world.output_of(help);
    assert!(help.status.success() && !text(&help.stdout).contains("hunter2"));
}

#[test]
fn a_missing_folder_and_a_folder_without_permission_are_reported() {
    let world = World::shared();
    assert_refused(&world.output(&["status", "jobs", "--store", "sqlite:missing/seats.db"]), &["mkdir -p"]);
    assert_refused(&world.output(&["run", "jobs", "--store", "sqlite:missing/seats.db", "--", "true"]), &["mkdir -p"]);
    // Not even root can create files in these folders.
    for store in ["sqlite:/proc/seats.db", "sqlite:/proc/1/seats.db"] {
        assert_eq!(world.output(&["status", "jobs", "--store", store]).status.code(), Some(1));
        assert_refused(&world.output(&["run", "jobs", "--store", store, "--", "true"]), &["/proc"]);
    }
    world.eventually_empty();
}

#[test]
fn invalid_options_are_refused() {
    let world = World::shared();
    for (args, expected) in [
        (&["status", ""][..], "election name"),
        (&["run", "jobs", "--lease", "15s", "--renew-every", "10s", "--", "true"], "lease"),
        (&["run", "--candidate", "", "jobs", "--", "true"], "candidate"),
        (&["status", "jobs", "--config", "nosuch.toml"], "nosuch.toml"),
    ] {
        assert_refused(&world.output(args), &[expected]);
    }
    for (args, expected) in [
        (&["run", "jobs"][..], "no command; write: tenure run jobs -- CMD"),
        (&["run", "--", "true"], "no election; write: tenure run ELECTION -- true"),
        (&["once", "--for", "1h", "jobs"], "no command; write: tenure once --for 1h jobs -- CMD"),
        (&["once", "jobs", "--", "true"], "no occasion; add --slot with the schedule of the crontab"),
        (&["once", "--for", "0s", "jobs", "--", "true"], "must be longer than 0s, because each machine would run CMD"),
        (&["once", "--for", "1h", "-E", "abc", "jobs", "--", "true"], "must be a number from 0 to 255"),
        (&["run", "-E", "-1", "jobs", "--", "true"], "must be a number from 0 to 255"),
        (&["run", "--ready-fd", "x", "jobs", "--", "true"], "must be the number of an open file descriptor"),
        (&["once", "--slot", "soon", "jobs", "--", "true"], "write it like '0 3 * * *'"),
        (&["run", "jobs", "--lease", "15", "--", "true"], "15s"),
        (&["run", "jobs", "--laese", "15s", "--", "true"], "--lease"),
        (&["statsu", "jobs"], "status"),
        (&["run", "jobs", "true", "--json"], "write: tenure run jobs -- true --json;"),
    ] {
        assert_refused(&world.output(args), &[expected]);
    }
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    let world = World::shared();
    let candidate = |args: &[&str], variable: Option<&str>| {
        let mut command = world.tenure(args);
        if let Some(variable) = variable {
            command.env("TENURE_CANDIDATE", variable);
        }
        text(&world.output_of(command).stdout)
    };
    let script = ["run", "-q", "jobs", "--", "sh", "-c", "echo $TENURE_CANDIDATE"];
    std::fs::write(world.path("tenure.toml"), "candidate = \"file\"\n").unwrap();
    assert_eq!(candidate(&script, None), "file\n");
    assert_eq!(candidate(&script, Some("variable")), "variable\n");
    let flag = [&["run", "--candidate", "flag"], &script[1..]].concat();
    assert_eq!(candidate(&flag, Some("variable")), "flag\n");
    std::fs::write(world.path("tenure.toml"), "candidaet = \"file\"\n").unwrap();
    assert_refused(&world.output(&["status", "jobs"]), &["tenure.toml", "did you mean `candidate`?"]);
}

#[test]
fn the_log_can_be_written_as_json() {
    let world = World::shared();
    let output = world.output(&["run", "--log-format", "json", "jobs", "--", "true"]);
    let lines: Vec<Value> = text(&output.stderr).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        lines.iter().any(|line| line["message"] == "this candidate leads" && line["election"] == "jobs"),
        "{lines:?}"
    );
}
