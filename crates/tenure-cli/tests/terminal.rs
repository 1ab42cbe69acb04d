//! `tenure run` in a terminal.

#![cfg(target_os = "linux")]

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Running, World, children, send, text};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Starts a shell in a terminal of its own, and returns the shell and the terminal's keyboard.
fn at_terminal(world: &World, script: &str) -> (Running, File) {
    let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut shell = Command::new("setsid");
    // Tests in the background of a script are started with SIGINT ignored.
    let env = ["--ctty", "env", "--default-signal=INT,QUIT,HUP"];
    shell.args(env).args(["sh", "-c", script]).current_dir(world.path("")).stdin(terminal.try_clone().unwrap());
    shell.stdout(terminal.try_clone().unwrap()).stderr(terminal);
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

#[test]
fn ctrl_z_stops_the_command_too_and_in_the_foreground_it_continues() {
    let world = World::alone();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let run = format!("{tenure} run --lease 60s jobs -- sh -c 'echo up >> log; exec cat >> read'");
    // In the background, the command still reads nothing.
    let script = format!("set -m; {run}; echo stopped >> log; bg; read line; echo shell $line >> log; fg");
    fs::write(world.path("shell"), script).unwrap();
    let (mut shell, mut keyboard) = at_terminal(&world, "exec bash shell");
    world.log_of(1);
    // The guard, which stops the command, is late. The shell must not continue before that.
    let tenure = children(shell.pid())[0];
    let guard = children(tenure)[0];
    send(guard, Signal::STOP);
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        send(guard, Signal::CONT);
    });
    keyboard.write_all(b"\x1a").unwrap();
    world.log_of(2);
    keyboard.write_all(b"hello\n").unwrap();
    assert_eq!(world.log_of(3), ["up", "stopped", "shell hello"]);
    assert!(world.lines("read").is_empty());
    keyboard.write_all(b"again\n").unwrap();
    world.eventually("the command to read", || world.lines("read") == ["again"]);
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(shell.code(&world), 130);
    late.join().unwrap();
}

/// Starts `tenure run --tty jobs -- sh -c SCRIPT` in a terminal.
fn interactive(world: &World, script: &str) -> (Running, File) {
    let run = format!("exec {} run --tty jobs -- sh -c '{script}'", env!("CARGO_BIN_EXE_tenure"));
    at_terminal(world, &run)
}

#[test]
fn a_command_with_its_own_terminal_has_job_control() {
    let world = World::alone();
    // A background job that reads the terminal is stopped by the kernel, which needs a controlling terminal.
    let script = "set -m; cat >> stolen & echo up >> log; read line; echo command $line >> log; kill -9 %1";
    let (mut tenure, mut keyboard) = interactive(&world, script);
    world.log_of(1);
    keyboard.write_all(b"hello\n").unwrap();
    assert_eq!(tenure.code(&world), 0);
    assert_eq!(world.log(), ["up", "command hello"]);
    assert!(world.lines("stolen").is_empty());
}

fn is_raw(keyboard: &File) -> bool {
    !tcgetattr(keyboard).unwrap().local_modes.contains(LocalModes::ICANON)
}

#[test]
fn keys_reach_a_command_with_its_own_terminal_and_the_mode_of_the_users_terminal_is_restored() {
    let world = World::alone();
    let script = "trap \"echo int >> log; exit 5\" INT; echo up >> log; while :; do sleep 0.05; done";
    let (mut tenure, mut keyboard) = interactive(&world, script);
    world.log_of(1);
    world.eventually("the raw mode", || is_raw(&keyboard));
    keyboard.write_all(b"\x03").unwrap();
    // The command chose its exit code when it got Ctrl-C, so tenure did not stop it.
    assert_eq!(tenure.code(&world), 5);
    assert_eq!(world.log(), ["up", "int"]);
    assert!(!is_raw(&keyboard));
}

#[test]
fn keys_reach_a_command_with_its_own_terminal_that_is_brought_from_the_background() {
    let world = World::alone();
    let script = "trap \"echo int >> log; exit 5\" INT; echo up >> log; while :; do sleep 0.05; done";
    let run = format!("{} run --tty jobs -- sh -c '{script}'", env!("CARGO_BIN_EXE_tenure"));
    // A shell that does not send SIGCONT to a job that runs already.
    fs::write(world.path("shell"), format!("set -m; {run} & until [ -s log ]; do sleep 0.01; done; fg")).unwrap();
    let (mut shell, mut keyboard) = at_terminal(&world, "exec bash shell");
    world.log_of(1);
    world.eventually("the raw mode", || is_raw(&keyboard));
    keyboard.write_all(b"\x03").unwrap();
    assert_eq!(shell.code(&world), 5);
    assert_eq!(world.log(), ["up", "int"]);
    assert!(!is_raw(&keyboard));
}

#[test]
fn a_command_with_its_own_terminal_sees_the_size_of_the_window() {
    let world = World::alone();
    let script = "trap \"stty size >> log\" WINCH; stty size >> log; while :; do sleep 0.05; done";
    let (tenure, keyboard) = interactive(&world, script);
    world.log_of(1);
    let size = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&keyboard, size).unwrap();
    world.eventually("the size", || world.log().contains(&"33 77".to_owned()));
    tenure.signal(Signal::TERM);
}

/// Collects what a terminal shows.
fn screen(mut keyboard: File) -> Arc<Mutex<Vec<u8>>> {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let screen = Arc::clone(&shown);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = keyboard.read(&mut bytes) {
            screen.lock().unwrap().extend(&bytes[..length]);
        }
    });
    shown
}

#[test]
fn all_output_of_a_command_with_its_own_terminal_is_shown() {
    let world = World::alone();
    let (mut tenure, keyboard) = interactive(&world, "seq 20000; echo end; exec >&-");
    let shown = screen(keyboard);
    assert_eq!(tenure.code(&world), 0);
    world.eventually("the last line", || text(&shown.lock().unwrap()).contains("20000\r\nend\r\n"));
}

#[test]
fn every_line_begins_at_the_left_when_the_mode_of_the_terminal_changes_meanwhile() {
    let world = World::alone();
    for _ in 0..20 {
        let (mut tenure, keyboard) = interactive(&world, "echo end");
        let shown = screen(keyboard);
        assert_eq!(tenure.code(&world), 0);
        world.eventually("the output", || text(&shown.lock().unwrap()).contains("end\r\n"));
        let shown = text(&shown.lock().unwrap());
        assert!(!shown.replace("\r\n", "").contains('\n'), "{shown:?}");
    }
}

#[test]
fn the_term_of_an_interactive_shell_can_end() {
    let world = World::alone();
    let run = format!("exec {} run --tty jobs -- sh -i", env!("CARGO_BIN_EXE_tenure"));
    let (mut tenure, mut keyboard) = at_terminal(&world, &run);
    keyboard.write_all(b"echo up >> log\n").unwrap();
    world.log_of(1);
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 129);
    world.eventually_empty();
}

#[test]
fn a_terminal_of_its_own_needs_a_terminal() {
    let world = World::alone();
    let output = world.output(&["run", "--tty", "jobs", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--tty needs a terminal"), "{}", text(&output.stderr));
}
