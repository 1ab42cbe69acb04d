//! Which store is meant: every candidate must mean the same one, and say which where that is not obvious.

#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{World, json_of, text};

/// `tenure` without a store, and with these variables instead of the usual ones.
fn tenure(world: &World, args: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut tenure = world.tenure(args);
    tenure.env_remove("TENURE_STORE").env_remove("HOME").env_remove("XDG_STATE_HOME");
    tenure.envs(variables.iter().copied());
    tenure
}

fn is_refused(output: &Output, says: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("tenure: ") && said.lines().count() == 1, "{said}");
    for word in says {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

#[test]
fn a_store_in_memory_is_refused_as_no_other_process_sees_it() {
    let world = World::on("memory:");
    for args in [&["run", "jobs", "--", "true"][..], &["status", "jobs"], &["watch", "jobs"], &["candidates", "jobs"]] {
        is_refused(&world.output(args), &["memory", "sqlite:"]);
    }
    is_refused(&world.output(&["run", "jobs", "--store", "memory:?kind=lock", "--", "true"]), &["memory"]);
    assert!(!text(&world.output(&["stores"]).stdout).contains("memory:"));
}

#[test]
fn without_a_home_there_is_no_default_store() {
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
            is_refused(&output, &["HOME", "--store"]);
        }
    }
    assert_eq!(std::fs::read_dir(world.path(".")).unwrap().count(), 0, "something was made in the current folder");
}

#[test]
fn the_default_store_says_where_it_is_and_whose() {
    let world = World::shared();
    let state = world.path("state");
    std::fs::create_dir(&state).unwrap();
    let database = state.join("tenure/tenure.db");
    let variables = [("XDG_STATE_HOME", state.to_str().unwrap())];
    let run = |args: &[&str]| world.output_of(tenure(&world, args, &variables));
    let said = text(&run(&["run", "jobs", "--", "true"]).stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].starts_with(&format!("tenure: store: sqlite:{} (", database.display())), "{said}");
    assert!(lines[0].contains("other users and machines"), "{said}");
    assert!(database.exists());
    assert_eq!(text(&run(&["run", "--quiet", "jobs", "--", "true"]).stderr), "");
    let status = run(&["status", "--json", "jobs"]);
    assert_eq!(json_of(&status)["store"], format!("sqlite:{}", database.display()));
}

#[test]
fn commands_that_look_say_which_default_store_they_read() {
    let world = World::shared();
    let state = world.path("state");
    std::fs::create_dir(&state).unwrap();
    let variables = [("XDG_STATE_HOME", state.to_str().unwrap())];
    let default = |args: &[&str]| tenure(&world, args, &variables);
    let told = text(&world.output_of(default(&["run", "jobs", "--", "true"])).stderr);
    let told = told.lines().next().unwrap().to_owned() + "\n";
    let looks =
        [&["status", "jobs"][..], &["candidates", "jobs"], &["step-down", "jobs"], &["forget", "--yes", "jobs"]];
    for args in looks {
        let output = world.output_of(default(args));
        assert_eq!(text(&output.stderr), told, "{args:?}");
        assert!(!text(&output.stdout).contains("store:"), "{args:?}");
        let output = world.output_of(default(&[args, &["--json"]].concat()));
        assert_eq!((text(&output.stderr), json_of(&output)["election"].as_str()), (told.clone(), Some("jobs")));
        assert_eq!(text(&world.output_of(default(&[args, &["--quiet"]].concat())).stderr), "", "{args:?}");
        assert_eq!(text(&world.output(args).stderr), "", "{args:?}: the store was named");
    }
    let mut watch = default(&["watch", "jobs"]);
    let mut watch = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(line, told);
}

#[test]
fn a_relative_path_is_told_as_an_absolute_one() {
    let world = World::on("sqlite:here.db");
    let absolute = format!("sqlite:{}", world.path("here.db").display());
    let said = text(&world.output(&["run", "jobs", "--", "true"]).stderr);
    assert_eq!(said, format!("tenure: store: {absolute}\ntenure: leads jobs (term 1)\n"));
    assert_eq!(json_of(&world.output(&["status", "--json", "jobs"]))["store"], absolute);
    assert!(Path::new(&world.path("here.db")).exists());
}
