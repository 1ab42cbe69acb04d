//! `tenure demo` ends by itself or when asked to, and leaves nothing behind.

#![cfg(target_os = "linux")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use common::{World, children, send, text};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// The demo's folders are made in the world's own.
fn demo(world: &World, args: &[&str]) -> std::process::Command {
    let mut command = world.tenure(&[&["demo"], args].concat());
    command.env("TMPDIR", world.path(""));
    command
}

fn is_tidy(world: &World) {
    world.eventually_empty();
    assert_eq!(std::fs::read_dir(world.path("")).unwrap().count(), 0);
}

#[test]
fn every_way_to_end_a_leader_leads_to_another_without_overlap() {
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
    is_tidy(&world);
}

#[test]
fn it_is_plain_in_a_pipe_and_ends_with_a_summary_when_interrupted() {
    let world = World::alone();
    let mut child = demo(&world, &["--rounds", "100", "--lease", "1s"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.find(|line| line.contains("killed (-9)")).unwrap();
    send(Pid::from_child(&child), Signal::INT);
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(rest.iter().any(|line| line.contains("never two commands at once")), "{rest:?}");
    assert!(!first.contains('\x1b') && rest.iter().all(|line| !line.contains('\x1b')));
    is_tidy(&world);
}

#[test]
fn it_can_be_interrupted_while_its_output_is_blocked() {
    let world = World::alone();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let room = fcntl_setpipe_size(&writer, 4096).unwrap();
    writer.write_all(&vec![b'x'; room]).unwrap();
    let child = demo(&world, &["--rounds", "100", "--lease", "1s"]).stdout(writer).spawn().unwrap();
    let mut demo = common::Running { child };
    world.eventually("the candidates to stand", || children(demo.pid()).len() == 3);
    demo.signal(Signal::INT);
    assert_eq!(demo.code(&world), 0);
    is_tidy(&world);
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
fn a_demo_that_nobody_reads_any_more_leaves_nothing_behind() {
    let world = World::alone();
    let mut child = demo(&world, &["--rounds", "100", "--lease", "1s"]).stdout(Stdio::piped()).spawn().unwrap();
    // As `head -n 1` does it.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.next().unwrap();
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    is_tidy(&world);
}

#[test]
fn a_demo_with_a_lease_that_no_command_could_wrap_up_in_is_refused_at_once() {
    let world = World::alone();
    for lease in ["0s", "1ms", "300ms"] {
        let output = world.output_of(demo(&world, &["--lease", lease]));
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{said}");
        assert!(said.starts_with("tenure: ") && said.lines().count() == 1 && said.contains("lease"), "{said}");
    }
    is_tidy(&world);
}

#[test]
fn a_demo_without_rounds_is_refused() {
    let world = World::alone();
    for (rounds, says) in [("0", "use 1 or more"), ("-1", "from 1"), ("many", "from 1")] {
        let output = world.output_of(demo(&world, &["--rounds", rounds]));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("tenure: ") && said.lines().count() == 1 && said.contains(says), "{said}");
    }
    is_tidy(&world);
}
