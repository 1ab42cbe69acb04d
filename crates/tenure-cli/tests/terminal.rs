//! `tenure run` in a terminal.

#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::Write;
use std::process::Command;

use common::{Running, World};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Starts a shell in a terminal of its own, and returns the shell and the terminal's keyboard.
fn at_terminal(world: &World, script: &str) -> (Running, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "sh", "-c", script]).current_dir(world.path("")).stdin(terminal);
    shell.envs(world.tenure(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    (Running { child: shell.spawn().unwrap() }, File::from(keyboard))
}

#[test]
fn a_command_in_the_background_does_not_read_the_input_of_the_shell() {
    let world = World::alone();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let run = format!("{tenure} run jobs -- sh -c 'echo up >> log; exec cat >> stolen'");
    // Job control, as in an interactive shell.
    let script = format!("set -m; {run} & wait $!; read line; echo shell $line >> log");
    let (_shell, mut keyboard) = at_terminal(&world, &script);
    world.log_of(1);
    keyboard.write_all(b"hello\n").unwrap();
    world.eventually("the line to be read", || world.log().len() > 1 || !world.lines("stolen").is_empty());
    assert_eq!(world.log(), ["up", "shell hello"]);
    assert!(world.lines("stolen").is_empty());
}

#[test]
fn a_command_in_the_foreground_reads_the_input_of_the_terminal() {
    let world = World::alone();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let script = format!("exec {tenure} run jobs -- sh -c 'echo up >> log; read line; echo command $line >> log'");
    let (mut tenure, mut keyboard) = at_terminal(&world, &script);
    world.log_of(1);
    keyboard.write_all(b"hello\n").unwrap();
    assert_eq!(tenure.code(&world), 0);
    assert_eq!(world.log(), ["up", "command hello"]);
}
