//! A terminal of a test: a pseudo-terminal, and what its screen shows.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::common::{Running, World};

pub(crate) struct Terminal {
    pub(crate) process: Running,
    keyboard: File,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts `tenure` at a terminal with this many columns, and 30 rows.
    pub(crate) fn start(world: &World, columns: u16, term: &str, args: &[&str]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap().into_string().unwrap();
        let keyboard = File::from(keyboard);
        tcsetwinsize(&keyboard, size(columns)).unwrap();
        let terminal = || File::options().read(true).write(true).open(&name).unwrap();
        let tenure = world.tenure(args);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "env", "--default-signal=INT"]).arg(tenure.get_program()).args(tenure.get_args());
        command.current_dir(world.path("")).envs(tenure.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("TERM", term).stdin(terminal()).stdout(terminal()).stderr(terminal());
        let process = Running { child: command.spawn().unwrap() };
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, written) = (keyboard.try_clone().unwrap(), output.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = screen.read(&mut bytes)
                && count > 0
            {
                written.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { process, keyboard, output }
    }

    pub(crate) fn press(&mut self, key: u8) {
        self.keyboard.write_all(&[key]).unwrap();
    }

    pub(crate) fn resize(&self, columns: u16) {
        tcsetwinsize(&self.keyboard, size(columns)).unwrap();
    }

    /// Returns everything that was written to the terminal.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Returns the lines on the screen.
    pub(crate) fn lines(&self) -> Vec<String> {
        let (mut screen, mut row, mut column) = (vec![String::new()], 0, 0);
        let output = self.output();
        let mut rest = output.chars();
        while let Some(c) = rest.next() {
            match c {
                '\r' => column = 0,
                '\n' => {
                    row += 1;
                    screen.resize(screen.len().max(row + 1), String::new());
                }
                '\x1b' => {
                    let mut sequence = String::new();
                    while !sequence.ends_with(|c: char| c.is_ascii_alphabetic())
                        && let Some(c) = rest.next()
                    {
                        sequence.push(c);
                    }
                    match sequence.trim_start_matches('[') {
                        "K" => screen[row] = screen[row].chars().take(column).collect(),
                        "J" => screen.truncate(row + 1),
                        "2J" => screen = vec![String::new()],
                        "H" => (row, column) = (0, 0),
                        "?7l" | "?7h" => {}
                        up if up.ends_with('A') => row -= up.trim_end_matches('A').parse::<usize>().unwrap(),
                        // The rest of it is not written yet.
                        part if !part.ends_with(|c: char| c.is_ascii_alphabetic()) => {}
                        other => panic!("the terminal does not know {other:?}"),
                    }
                }
                c => {
                    let mut line: Vec<char> = screen[row].chars().collect();
                    line.resize(line.len().max(column + 1), ' ');
                    line[column] = c;
                    screen[row] = line.into_iter().collect();
                    column += 1;
                }
            }
        }
        screen
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the screen: {:#?}", self.lines());
        }
    }
}

fn size(columns: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: 30, ws_xpixel: 0, ws_ypixel: 0 }
}
