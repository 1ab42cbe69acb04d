//! `tenure watch`: who leads, and every change.

use serde_json::json;
use tenure::{Event, Leader};

use super::{leader_json, leader_words, print};
use crate::args::{Global, Watch};
use crate::failure::{Failure, store_error};
use crate::say;
use crate::screen::{Paint, timestamp, wall_ms};
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Watch) -> Result<u8, Failure> {
    let elections = setup.elections()?;
    // Told at once if there is something wrong, and if there is nobody to wait for.
    let look = elections.look(&args.election).await?;
    let observer = elections.observe(&args.election)?;
    let mut events = observer.events();
    let mut last = look.leader;
    tell(global, args, last.as_ref())?;
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
