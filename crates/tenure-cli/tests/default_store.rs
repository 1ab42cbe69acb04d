//! The default store and relative paths: `tenure` prints which store it uses, because candidates that use different
//! stores by mistake would all lead.

#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{World, json_of, text};

/// Returns `tenure` without a store, with these variables in place of `HOME` and `XDG_STATE_HOME`.
fn tenure(world: &World, args: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut tenure = world.tenure(args);
    tenure.env_remove("TENURE_STORE").env_remove("HOME").env_remove("XDG_STATE_HOME");
    tenure.envs(variables.iter().copied());
    tenure
}

fn assert_refused(output: &Output, expected: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("tenure: ") && error.lines().count() == 1, "{error}");
    for words in expected {
        assert!(error.contains(words), "{words:?} is not in {error}");
    }
}

#[test]
fn the_memory_store_is_refused_because_processes_cannot_share_it() {
    let world = World::on("memory:");
    for args in [&["run", "jobs", "--", "true"][..], &["status", "jobs"], &["watch", "jobs"], &["candidates", "jobs"]] {
        assert_refused(&world.output(args), &["memory", "sqlite:"]);
    }
    assert_refused(&world.output(&["run", "jobs", "--store", "memory:?kind=lock", "--", "true"]), &["memory"]);
    assert!(!text(&world.output(&["stores"]).stdout).contains("memory:"));
}

#[test]
fn without_a_home_folder_there_is_no_default_store() {
    let world = World::shared();
    for variables in [
        &[][..],
        &[("HOME", "")],
        &[("HOME", "here")],
        &[("XDG_STATE_HOME", "here")],
        &[("HOME", ""), ("XDG_STATE_HOME", "")],
    ] {
        for args in [&["run", "jobs", "--", "true"][..], &["status", "jobs"]] {
            let output = world.output_of(tenure(&world, args, variables));
            assert_refused(&output, &["HOME", "--store"]);
        }
    }
    assert_eq!(std::fs::read_dir(world.path(".")).unwrap().count(), 0, "something was made in the current folder");
}

#[test]
fn run_prints_the_location_of_the_default_store() {
    let world = World::shared();
    let state = world.path("state");
    std::fs::create_dir(&state).unwrap();
    let database = state.join("tenure/tenure.db");
    let variables = [("XDG_STATE_HOME", state.to_str().unwrap())];
    let run = |args: &[&str]| world.output_of(tenure(&world, args, &variables));
    let output = text(&run(&["run", "jobs", "--", "true"]).stderr);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 2, "{output}");
    assert!(lines[0].starts_with(&format!("tenure: store: sqlite:{} (", database.display())), "{output}");
    assert!(lines[0].contains("other users and machines"), "{output}");
    assert!(database.exists());
    assert_eq!(text(&run(&["run", "--quiet", "jobs", "--", "true"]).stderr), "");
    let status = run(&["status", "--json", "jobs"]);
    assert_eq!(json_of(&status)["store"], format!("sqlite:{}", database.display()));
}

#[test]
fn commands_that_only_read_print_the_location_of_the_default_store() {
    let world = World::shared();
    let state = world.path("state");
    std::fs::create_dir(&state).unwrap();
    let variables = [("XDG_STATE_HOME", state.to_str().unwrap())];
    let default = |args: &[&str]| tenure(&world, args, &variables);
    let location = text(&world.output_of(default(&["run", "jobs", "--", "true"])).stderr);
    let location = location.lines().next().unwrap().to_owned() + "\n";
    let commands =
        [&["status", "jobs"][..], &["candidates", "jobs"], &["step-down", "jobs"], &["forget", "--yes", "jobs"]];
    for args in commands {
        let output = world.output_of(default(args));
        assert_eq!(text(&output.stderr), location, "{args:?}");
        assert!(!text(&output.stdout).contains("store:"), "{args:?}");
        let output = world.output_of(default(&[args, &["--json"]].concat()));
        let store = format!("tenure: store: {} ", json_of(&output)["store"].as_str().unwrap());
        assert!(text(&output.stderr).is_empty() && location.starts_with(&store), "{args:?}: {store}");
        assert_eq!(text(&world.output_of(default(&[args, &["--quiet"]].concat())).stderr), "", "{args:?}");
        let named = format!("tenure: store: sqlite:{}\n", world.path("seats.db").display());
        let expected = if args[0] == "status" { named } else { String::new() };
        assert_eq!(text(&world.output(args).stderr), expected, "{args:?}: the store was named");
    }
    let mut watch = default(&["watch", "jobs"]);
    let mut watch = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(line, location);
}

#[test]
fn a_relative_path_is_printed_as_an_absolute_one() {
    let world = World::on("sqlite:here.db");
    let absolute = format!("sqlite:{}", world.path("here.db").display());
    let output = text(&world.output(&["run", "jobs", "--", "true"]).stderr);
    assert_eq!(output, format!("tenure: store: {absolute}\ntenure: leading jobs (term 1)\n"));
    assert_eq!(json_of(&world.output(&["status", "--json", "jobs"]))["store"], absolute);
    assert!(Path::new(&world.path("here.db")).exists());
}
