//! `tenure demo` ends after its rounds or when interrupted, and leaves nothing behind.

#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use common::{World, children, send, text};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Returns the demo, which creates its folder in the folder of the world.
fn demo(world: &World, args: &[&str]) -> std::process::Command {
    let mut command = world.tenure(&[&["demo"], args].concat());
    command.env("TMPDIR", world.path(""));
    command
}

fn assert_nothing_left(world: &World) {
    world.eventually_empty();
    assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
}

#[test]
fn each_way_of_ending_a_leader_is_followed_by_another_leader_without_overlap() {
    let world = World::alone();
    let output = world.output_of(demo(&world, &["--rounds", "3", "--lease", "1s", "--json"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    let mut before = 0;
    for round in &lines[..3] {
        assert_eq!(round["overlap"], false);
        assert_ne!(round["ended"]["candidate"], round["next"]["candidate"]);
        let token = round["next"]["token"].as_u64().unwrap();
        assert!(token > before);
        before = token;
    }
    assert_eq!((&lines[3]["hand_overs"], &lines[3]["overlaps"]), (&3.into(), &0.into()));
    assert_nothing_left(&world);
}

#[test]
fn output_to_a_pipe_has_no_colours_and_an_interrupt_prints_the_summary() {
    let world = World::alone();
    let mut child = demo(&world, &["--rounds", "100", "--lease", "1s"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.contains("killed (-9)")).unwrap();
    send(Pid::from_child(&child), Signal::INT);
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(rest.iter().any(|line| line.contains("never two commands at once")), "{rest:?}");
    assert!(!first.contains('\x1b') && rest.iter().all(|line| !line.contains('\x1b')));
    assert_nothing_left(&world);
}

#[test]
fn the_demo_can_be_interrupted_while_its_output_is_blocked() {
    let world = World::alone();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let room = fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b'x'; room]).unwrap();
    let child = demo(&world, &["--rounds", "100", "--lease", "1s"]).stdout(writer).spawn().unwrap();
    let mut demo = common::Running { child };
    world.eventually("the candidates to stand", || children(demo.pid()).len() == 3);
    demo.signal(Signal::INT);
    assert_eq!(demo.code(&world), 0);
    assert_nothing_left(&world);
    drop(reader);
}

#[test]
fn a_demo_that_is_killed_leaves_no_processes() {
    let world = World::alone();
    let mut child = demo(&world, &["--rounds", "100"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("killed (-9)")).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    world.eventually_empty();
}

#[test]
fn a_demo_whose_reader_has_gone_leaves_nothing_behind() {
    let world = World::alone();
    let mut child = demo(&world, &["--rounds", "100", "--lease", "1s"]).stdout(Stdio::piped()).spawn().unwrap();
    // As `head -n 1` does.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.next().unwrap();
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_nothing_left(&world);
}

#[test]
fn a_lease_too_short_for_a_command_to_wrap_up_is_refused_at_once() {
    let world = World::alone();
    for lease in ["0s", "1ms", "300ms"] {
        let output = world.output_of(demo(&world, &["--lease", lease]));
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{error}");
        assert!(error.starts_with("tenure: ") && error.lines().count() == 1 && error.contains("lease"), "{error}");
    }
    assert_nothing_left(&world);
}

#[test]
fn a_demo_without_rounds_is_refused() {
    let world = World::alone();
    for (rounds, expected) in [("0", "at least 1"), ("-1", "from 1"), ("many", "from 1")] {
        let output = world.output_of(demo(&world, &["--rounds", rounds]));
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("tenure: ") && error.lines().count() == 1 && error.contains(expected), "{error}");
    }
    assert_nothing_left(&world);
}
