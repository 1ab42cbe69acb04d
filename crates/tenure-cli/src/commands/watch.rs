//! `tenure watch`: prints the leader, and every change, or shows them in a live view.

mod all;
#[cfg(target_os = "linux")]
mod live;
#[cfg(target_os = "linux")]
mod view;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tenure::{Candidate, Crash, EventKind, Leader, Token};

use super::{leader_json, leader_words, print, printable};
use crate::args::{Global, Watch};
use crate::failure::{Failure, error_words};
use crate::json::{self, versioned};
use crate::screen::{Paint, timestamp};
use crate::setup::Setup;
use crate::stderr;

/// How often to check whether the database has been created.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A change of an election.
enum Change {
    Leader(Option<Leader>),
    Crash(Arc<Crash>),
}

impl Change {
    /// Formats the change for people, with the name of the election if there are several.
    #[cfg(target_os = "linux")]
    fn line(&self, at: SystemTime, election: Option<&str>, paint: Paint) -> String {
        match self {
            Self::Leader(leader) => change(at, election, leader.as_ref(), paint),
            Self::Crash(crash) => death(at, election, crash, paint),
        }
    }
}

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Watch) -> Result<u8, Failure> {
    tokio::select! {
        result = show(global, setup, args) => result,
        () = reader_gone() => Ok(0),
    }
}

async fn show(global: &Global, setup: &Setup, args: &Watch) -> Result<u8, Failure> {
    #[cfg(target_os = "linux")]
    if !global.json && !global.quiet && !args.lines && view::is_supported() {
        return match &args.election {
            Some(election) => live::run(setup, election).await,
            None => live::run_all(setup).await,
        };
    }
    match &args.election {
        Some(election) => print_changes(global, setup, election).await,
        None => all::print_changes(global, setup).await,
    }
}

async fn print_changes(global: &Global, setup: &Setup, election: &str) -> Result<u8, Failure> {
    // This first look reports errors at once, and prints a vacant seat, for which there is no event.
    let mut last = setup.elections_read_only()?.look(election).await?.leader;
    print_leader(global, setup, election, last.as_ref(), false)?;
    while setup.missing().is_some() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let elections = setup.elections_to_watch()?;
    let observer = elections.observe(election)?;
    let mut events = observer.events();
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::LeaderChanged { leader, .. } => {
                if key(leader.as_ref()) != key(last.as_ref()) {
                    print_leader(global, setup, election, leader.as_ref(), false)?;
                }
                last = leader;
            }
            EventKind::LeaderCrashed { crash } => print_crash(global, setup, election, &crash, false)?,
            EventKind::Error { error } => report_failing(global, error_words(&error)),
            EventKind::Recovered => report_working(global),
            _ => {}
        }
    }
    Ok(0)
}

/// Resolves when the reader of standard output has gone. Otherwise a watch would notice only at the next change.
#[cfg(target_os = "linux")]
async fn reader_gone() {
    use rustix::event::{PollFd, PollFlags, poll};
    let (sender, gone) = tokio::sync::oneshot::channel();
    let wait = move || {
        let stdout = std::io::stdout();
        let mut stdout = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut stdout, None) == Err(rustix::io::Errno::INTR) {}
        if stdout[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            let _ = sender.send(());
        }
    };
    let waits = std::thread::Builder::new().name("stdout".to_owned()).spawn(wait);
    if waits.is_err() || gone.await.is_err() {
        std::future::pending().await
    }
}

#[cfg(not(target_os = "linux"))]
async fn reader_gone() {
    std::future::pending().await
}

/// Prints a change of leader; for people, with the name of the election if `named`.
fn print_leader(
    global: &Global,
    setup: &Setup,
    election: &str,
    leader: Option<&Leader>,
    named: bool,
) -> Result<(), Failure> {
    let at = SystemTime::now();
    if global.json {
        let (store, at, leader) = (setup.shown(), timestamp(at), leader.map(leader_json));
        return print(versioned(json!({ "election": election, "store": store, "at": at, "leader": leader })));
    }
    print(change(at, named.then_some(election), leader, Paint::for_stream(&std::io::stdout())))
}

/// Prints that a leader crashed; for people, with the name of the election if `named`.
fn print_crash(global: &Global, setup: &Setup, election: &str, crash: &Crash, named: bool) -> Result<(), Failure> {
    let at = SystemTime::now();
    if global.json {
        let (store, at, crash) = (setup.shown(), timestamp(at), json::crash(crash));
        return print(versioned(json!({ "election": election, "store": store, "at": at, "crash": crash })));
    }
    print(death(at, named.then_some(election), crash, Paint::for_stream(&std::io::stdout())))
}

/// Formats the crash of a leader for people, with the name of the election if there are several.
fn death(at: SystemTime, election: Option<&str>, Crash { of, token, by }: &Crash, paint: Paint) -> String {
    let died = paint.red(format!("{} (term {token}) died", printable(&of.id)));
    format!("{}  {}{died}; {} has freed the seat", paint.dim(timestamp(at)), prefix(election), printable(by))
}

/// Returns the beginning of a line about one of several elections.
fn prefix(election: Option<&str>) -> String {
    election.map(|election| format!("{}: ", printable(election))).unwrap_or_default()
}

/// Formats a change of leader for people, with the name of the election if there are several.
fn change(at: SystemTime, election: Option<&str>, leader: Option<&Leader>, paint: Paint) -> String {
    let words = match leader {
        Some(leader) => format!("{} leads", paint.green(leader_words(leader))),
        None => paint.yellow("vacant"),
    };
    format!("{}  {}{words}", paint.dim(timestamp(at)), prefix(election))
}

fn report_failing(global: &Global, error: impl Display) {
    report_error(global, &format!("store error, retrying: {error}"));
}

/// Reports an election whose seat cannot be read, while others can.
fn report_unreadable(global: &Global, election: &str, error: impl Display) {
    report_error(global, &format!("cannot read {}: {error}", printable(election)));
}

fn report_error(global: &Global, message: &str) {
    stderr::line(if global.json { json::error(message, None).to_string() } else { format!("tenure: {message}") });
}

fn report_working(global: &Global) {
    let message = "the store is available again";
    stderr::line(if global.json { json::notice(message).to_string() } else { format!("tenure: {message}") });
}

/// Returns what tells one leader from another.
fn key(leader: Option<&Leader>) -> Option<(Candidate, Token)> {
    leader.map(|leader| (leader.candidate.clone(), leader.token))
}
