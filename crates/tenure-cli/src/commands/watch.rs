//! `tenure watch`: prints the leader, and every change.

use std::time::{Duration, SystemTime};

use serde_json::json;
use tenure::{EventKind, Leader};

use super::{leader_json, leader_words, print};
use crate::args::{Global, Watch};
use crate::failure::{Failure, error_words};
use crate::screen::{Paint, timestamp};
use crate::setup::Setup;
use crate::stderr;

/// How often to check whether the database has been created.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Watch) -> Result<u8, Failure> {
    tokio::select! {
        result = watch(global, setup, args) => result,
        () = reader_gone() => Ok(0),
    }
}

async fn watch(global: &Global, setup: &Setup, args: &Watch) -> Result<u8, Failure> {
    // This first look reports errors at once, and prints a vacant seat, for which there is no event.
    let mut last = setup.elections_to_read()?.look(&args.election).await?.leader;
    print_leader(global, args, last.as_ref())?;
    while setup.missing().is_some() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let elections = setup.elections()?;
    let observer = elections.observe(&args.election)?;
    let mut events = observer.events();
    while let Some(event) = events.next().await {
        match event.kind {
            EventKind::LeaderChanged { leader, .. } => {
                let key =
                    |leader: &Option<Leader>| leader.as_ref().map(|leader| (leader.candidate.clone(), leader.token));
                if key(&leader) != key(&last) {
                    print_leader(global, args, leader.as_ref())?;
                }
                last = leader;
            }
            EventKind::Error { error } => {
                stderr::line(format!("tenure: store error, retrying: {}", error_words(&error)));
            }
            EventKind::Recovered => stderr::line("tenure: the store is available again"),
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

fn print_leader(global: &Global, args: &Watch, leader: Option<&Leader>) -> Result<(), Failure> {
    let at = timestamp(SystemTime::now());
    if global.json {
        return print(json!({ "election": args.election, "at": at, "leader": leader.map(leader_json) }));
    }
    let paint = Paint::for_stream(&std::io::stdout());
    let words = match leader {
        Some(leader) => format!("{} leads", paint.green(leader_words(leader))),
        None => paint.yellow("vacant"),
    };
    print(format!("{}  {words}", paint.dim(at)))
}
