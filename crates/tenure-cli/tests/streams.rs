//! Standard streams that block or fail do not delay or end an election or its command.

#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::Stdio;

use common::{PROBE, Running, World, candidates, text};
use rustix::process::Signal;

/// Returns the write end of a full pipe. The read end keeps it open.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'x'; 1024]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer.into())
}

fn stand(world: &World, id: &str, options: &[&str], stderr: Stdio) -> Running {
    let options = [options, &["--candidate", id, "--lease", "3s"]].concat();
    world.run_with_stderr(&options, PROBE, stderr)
}

/// Checks that a leader and a follower with this standard error start their commands and leave when asked to.
fn elections_work_with(mut stderr: impl FnMut() -> Stdio) {
    for options in [&[][..], &["-vv"], &["--log-format", "json", "--verbose"]] {
        let world = World::shared();
        let first = stand(&world, "first", options, stderr());
        world.start_number(1);
        let mut second = stand(&world, "second", options, stderr());
        world.eventually("the follower to be listed", || candidates(&world).len() == 2);
        first.signal(Signal::KILL);
        assert_eq!(world.start_number(2).candidate, "second");
        second.signal(Signal::TERM);
        assert_eq!(second.code(&world), 143);
        world.eventually_empty();
    }
}

#[test]
fn elections_work_while_standard_error_blocks() {
    let mut readers = Vec::new();
    elections_work_with(|| {
        let (reader, writer) = full_pipe();
        readers.push(reader);
        writer
    });
}

#[test]
fn elections_work_while_standard_error_is_out_of_space() {
    elections_work_with(|| File::options().write(true).open("/dev/full").unwrap().into());
}

#[test]
fn elections_work_after_the_reader_of_standard_error_has_gone() {
    elections_work_with(|| std::io::pipe().unwrap().1.into());
}

#[test]
fn queued_lines_are_written_once_standard_error_accepts_them() {
    let world = World::shared();
    let (reader, writer) = full_pipe();
    let mut tenure = stand(&world, "first", &[], writer);
    world.start_number(1);
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().ends_with("xtenure: leading jobs (term 1)"));
    tenure.signal(Signal::TERM);
    assert_eq!(lines.next().unwrap(), "tenure: received SIGTERM, leaving jobs");
    assert_eq!(tenure.code(&world), 143);
}

#[test]
fn a_command_exits_silently_when_the_reader_of_its_output_has_gone() {
    let world = World::shared();
    for args in [&["stores"][..], &["stores", "--json"], &["completions", "bash"], &["watch", "jobs"]] {
        let mut tenure = world.tenure(args);
        tenure.stdout(std::io::pipe().unwrap().1).stderr(Stdio::piped());
        let child = tenure.spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_watch_ends_when_its_reader_has_gone_even_without_a_change() {
    let world = World::shared();
    let watch = |world: &World| {
        let (reader, writer) = std::io::pipe().unwrap();
        let watch = Running { child: world.tenure(&["watch", "jobs"]).stdout(writer).spawn().unwrap() };
        let mut reader = BufReader::new(reader);
        reader.read_line(&mut String::new()).unwrap();
        (watch, reader)
    };
    // Before the database exists, and after.
    let (mut before, reader) = watch(&world);
    drop(reader);
    assert_eq!(before.code(&world), 0);
    world.run(&[], "true").code(&world);
    let (mut after, reader) = watch(&world);
    drop(reader);
    assert_eq!(after.code(&world), 0);
}

#[test]
fn standard_output_that_is_out_of_space_is_an_error() {
    let world = World::shared();
    for args in [&["stores"][..], &["completions", "bash"], &["watch", "jobs"], &["status", "jobs"]] {
        let mut tenure = world.tenure(args);
        tenure.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
        let output = tenure.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = text(&output.stderr);
        let one_line = error.starts_with("tenure: ") && error.lines().count() == 1;
        assert!(one_line && error.contains("No space left"), "{error}");
    }
}
