//! `tenure watch`: who leads, and every change.

use std::time::Duration;

use serde_json::json;
use tenure::{Event, Leader};

use super::{leader_json, leader_words, print};
use crate::args::{Global, Watch};
use crate::failure::{Failure, store_error};
use crate::say;
use crate::screen::{Paint, timestamp, wall_ms};
use crate::setup::Setup;

/// How often to look whether a database has been created.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Watch) -> Result<u8, Failure> {
    tokio::select! {
        result = watch(global, setup, args) => result,
        () = reader_gone() => Ok(0),
    }
}

async fn watch(global: &Global, setup: &Setup, args: &Watch) -> Result<u8, Failure> {
    // Told at once if there is something wrong, and if there is nobody to wait for.
    let mut last = setup.elections_to_read()?.look(&args.election).await?.leader;
    tell(global, args, last.as_ref())?;
    while setup.missing().is_some() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let elections = setup.elections()?;
    let observer = elections.observe(&args.election)?;
    let mut events = observer.events();
    while let Some(event) = events.next().await {
        match event {
            Event::LeaderChanged { leader } => {
                let key =
                    |leader: &Option<Leader>| leader.as_ref().map(|leader| (leader.candidate.clone(), leader.token));
                if key(&leader) != key(&last) {
                    tell(global, args, leader.as_ref())?;
                }
                last = leader;
            }
            Event::Error { error } => {
                say::line(format!("tenure: the store fails: {}: still trying", store_error(&error)));
            }
            Event::Recovered => say::line("tenure: the store works again"),
            _ => {}
        }
    }
    Ok(0)
}

/// Resolves when the reader of standard output has gone. A watch would otherwise notice at the next change.
#[cfg(target_os = "linux")]
async fn reader_gone() {
    use rustix::event::{PollFd, PollFlags, poll};
    let (tell, gone) = tokio::sync::oneshot::channel();
    let wait = move || {
        let stdout = std::io::stdout();
        let mut stdout = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut stdout, None) == Err(rustix::io::Errno::INTR) {}
        if stdout[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            let _ = tell.send(());
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

fn tell(global: &Global, args: &Watch, leader: Option<&Leader>) -> Result<(), Failure> {
    let at = timestamp(wall_ms());
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
