//! `tenure will`: the companion of a program that uses the library. It frees the seats of the program when the program
//! dies.
//!
//! The program is the parent of this process, and writes to its standard input which seats it holds, a line of JSON
//! for each change:
//!
//! ```json
//! {"store":"redis://…","parent":4711}
//! {"arm":{"election":"jobs","candidate":"web-1-4711","incarnation":"5f0c…","token":7,"lease_ms":15000,"won":true}}
//! {"disarm":"jobs","token":7}
//! ```
//!
//! Only the death of the program counts, which the kernel reports by a descriptor of the process: no socket that was
//! closed by mistake, and none that a fork of the program keeps open, makes a difference. If it is closed while
//! the program lives, the seats are no longer known, and this process ends when the last of them would have expired.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::process::{Pid, getppid, setsid};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use tenure::{Candidate, Incarnation, Token};

use super::now;
use super::will::{self, Mortal, Report, Will};
use crate::failure::Failure;
use crate::stderr;

/// A companion, and what it knows about its program.
struct Companion {
    program: Mortal,
    store: String,
    /// The seats that the program may hold, each with its last term, and whether that was won.
    armed: BTreeMap<String, (Will, Token, bool)>,
    /// Text from the program that is not a whole line yet.
    rest: Vec<u8>,
}

/// Runs the companion until its program is dead and its seats are free, or the program needs it no more.
pub(crate) fn run() -> Result<u8, Failure> {
    // A signal to the whole group or service of the program, such as Ctrl-C, must not end its companion first.
    let _ = setsid();
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let unfit = || Failure::new("tenure will is started by programs that use the library, see docs/last-will.md");
    let parent = getppid().ok_or_else(unfit)?;
    let program = Mortal::watch(parent).ok_or_else(|| {
        Failure::new("this system cannot watch a process (pidfd_open); seats of a dead process have to expire")
    })?;
    let mut rest = Vec::new();
    let first = loop {
        if let Some(line) = take_line(&mut rest) {
            break serde_json::from_slice::<Value>(&line).map_err(|_| unfit())?;
        }
        if !read_more(&mut rest) {
            return Err(unfit());
        }
    };
    let store = first["store"].as_str().ok_or_else(unfit)?.to_owned();
    let named = first["parent"].as_i64().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    if named != Some(parent) || getppid() != Some(parent) {
        // It was started through another program, whose death means nothing, or its program is dead already.
        return Err(unfit());
    }
    let mut out = std::io::stdout();
    // Nothing is connected before the program dies. But a program must not rely on a companion without its store.
    if let Err(error) = tenure::connect(&store) {
        let _ = writeln!(out, "refused: {error}").and_then(|()| out.flush());
        return Ok(2);
    }
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
    let mut companion = Companion { program, store, armed: BTreeMap::new(), rest };
    let is_done = !companion.outlives_its_program() || companion.execute();
    stderr::flush();
    Ok(u8::from(!is_done))
}

impl Companion {
    /// Follows what the program holds. Returns whether the program is dead.
    fn outlives_its_program(&mut self) -> bool {
        let mut is_open = true;
        let mut closed_at = 0;
        loop {
            let left = (!is_open).then(|| self.longest_lease().saturating_sub(Duration::from_nanos(now() - closed_at)));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            let (stdin, left) = (std::io::stdin(), left.map(timespec));
            let mut sources = vec![PollFd::new(&self.program, PollFlags::IN)];
            if is_open {
                sources.push(PollFd::new(&stdin, PollFlags::IN));
            }
            match poll(&mut sources, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
            let is_dead = sources[0].revents().contains(PollFlags::IN);
            let has_news = is_open && sources.get(1).is_some_and(|source| !source.revents().is_empty());
            if has_news {
                is_open = read_more(&mut self.rest);
                self.take_in();
                closed_at = now();
            } else if is_dead {
                // All that the program has written before its death was read.
                return true;
            }
        }
    }

    fn longest_lease(&self) -> Duration {
        self.armed.values().map(|(will, ..)| will.lease).max().unwrap_or_default()
    }

    /// Processes all whole lines. A line that is not understood changes nothing.
    fn take_in(&mut self) {
        while let Some(line) = take_line(&mut self.rest) {
            let Ok(line) = serde_json::from_slice::<Value>(&line) else { continue };
            // The seat can be armed for the next term already.
            let is_current = |(_, token, _): &(Will, Token, bool)| line["token"] == token.get();
            if let Some(election) = line["disarm"].as_str() {
                if self.armed.get(election).is_some_and(is_current) {
                    self.armed.remove(election);
                }
            } else if let Some((will, token)) = self.will(&line["arm"]) {
                self.armed.insert(will.election.clone(), (will, token, line["arm"]["won"] == true));
            }
        }
    }

    fn will(&self, line: &Value) -> Option<(Will, Token)> {
        let incarnation = u128::from_str_radix(line["incarnation"].as_str()?, 16).ok()?;
        let id = line["candidate"].as_str()?.into();
        let will = Will {
            store: self.store.clone(),
            election: line["election"].as_str()?.to_owned(),
            candidate: Candidate { id, incarnation: Incarnation::from_bits(incarnation) },
            lease: Duration::from_millis(line["lease_ms"].as_u64()?),
            report: Report::Lines,
        };
        Some((will, Token::new(line["token"].as_u64()?)))
    }

    /// Frees the seats of the dead program. Returns whether none has failed.
    fn execute(self) -> bool {
        let died = Instant::now();
        let wills: Vec<_> = self.armed.into_values().map(|(will, _, won)| (will, won)).collect();
        wills.is_empty() || will::execute_all("companion", &self.store, &wills, died)
    }
}

/// Takes the first line from a text, without its end.
fn take_line(text: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let mut line: Vec<u8> = text.drain(..=end).collect();
    line.pop();
    Some(line)
}

/// Reads from standard input. Returns false at its end.
fn read_more(text: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16 * 1024];
    loop {
        match read(std::io::stdin().as_fd(), &mut buffer) {
            Ok(0) => return false,
            Ok(length) => {
                text.extend_from_slice(&buffer[..length]);
                return true;
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: i64::from(span.subsec_nanos()) }
}
