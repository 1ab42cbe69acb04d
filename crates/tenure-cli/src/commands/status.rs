//! `tenure status`: prints the leader of an election, or lists all elections of the store.

use std::time::SystemTime;

use serde_json::{Value, json};
use tenure::{ListedElection, SeatStatus};

use super::{leader_json, leader_words, print, printable};
use crate::args::{Global, Status};
use crate::failure::Failure;
use crate::json::{self, ms, versioned};
use crate::screen::{Paint, ago, span, width};
use crate::setup::Setup;
use crate::stderr;
use crate::table::{self, Align, Column, Row, Tone};

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Status) -> Result<u8, Failure> {
    match &args.election {
        Some(election) => one(global, setup, election).await,
        None => all(global, setup).await,
    }
}

async fn one(global: &Global, setup: &Setup, election: &str) -> Result<u8, Failure> {
    let look = setup.elections_read_only()?.look(election).await?;
    if global.json {
        print(versioned(as_json(setup, election, &look)))?;
    } else if !global.quiet {
        let paint = Paint::for_stream(&std::io::stdout());
        match &look.leader {
            None if look.token.get() == 0 => {
                print(paint.yellow(format!("vacant: no candidate has led yet{}", missing(setup))))?;
            }
            None => {
                let crash = look.crash.as_ref().filter(|crash| crash.token == look.token);
                let died = crash.map(|crash| {
                    format!("; {} died, and {} freed the seat", printable(&crash.of.id), printable(&crash.by))
                });
                let died = died.unwrap_or_default();
                print(paint.yellow(format!("vacant: no leader (last term: {}{died})", look.token)))?;
            }
            Some(leader) => {
                let elected =
                    leader.since.map(|since| format!(", elected {} ago", span(ago(since, SystemTime::now()))));
                let expires = look.expires_in.map(|left| format!(", its lease expires in {}", span(left)));
                let unsure =
                    (!look.vouched).then_some(" (as last recorded: the store does not know whether it is alive)");
                print(format!(
                    "{} leads{}{}{}",
                    paint.green(leader_words(leader)),
                    elected.unwrap_or_default(),
                    paint.dim(expires.unwrap_or_default()),
                    paint.dim(unsure.unwrap_or_default()),
                ))?;
            }
        }
        setup.announce_named(global);
    }
    Ok(if look.leader.is_some() { 0 } else { 1 })
}

/// Lists all elections. A record that cannot be read does not hide the others.
async fn all(global: &Global, setup: &Setup) -> Result<u8, Failure> {
    let listed = setup.elections_read_only()?.list().await?;
    if global.json {
        let elections: Vec<Value> = listed.iter().map(|election| listed_json(setup, election)).collect();
        print(versioned(json!({ "store": setup.shown(), "elections": elections })))?;
    } else if !global.quiet {
        let paint = Paint::for_stream(&std::io::stdout());
        match listed.is_empty() {
            true => print(paint.yellow(format!("no elections{}", missing(setup))))?,
            false => {
                rows(&listed, SystemTime::now(), width(&std::io::stdout()), paint).into_iter().try_for_each(print)?
            }
        }
        setup.announce_named(global);
    }
    let failed = listed.iter().filter_map(|election| Some((&election.name, election.status.as_ref().err()?)));
    let mut code = 0;
    for (name, error) in failed {
        if !global.json {
            stderr::line(format!("tenure: cannot read {}: {error}", printable(name.as_str())));
        }
        code = 2;
    }
    Ok(code)
}

/// Returns a remark about a database that no candidate has created yet.
fn missing(setup: &Setup) -> String {
    setup.missing().map(|database| format!(" ({} does not exist)", database.display())).unwrap_or_default()
}

fn as_json(setup: &Setup, election: &str, look: &SeatStatus) -> Value {
    let leader = look.leader.as_ref().map(|leader| {
        let mut value = leader_json(leader);
        value["expires_in_ms"] = json!(look.expires_in.map(ms));
        value
    });
    json!({
        "election": election,
        "store": setup.shown(),
        "leader": leader,
        "vouched": look.vouched,
        "token": look.token.get(),
        "crash": look.crash.as_deref().map(json::crash),
    })
}

fn listed_json(setup: &Setup, ListedElection { name, status, .. }: &ListedElection) -> Value {
    match status {
        Ok(status) => as_json(setup, name.as_str(), status),
        Err(error) => json!({ "election": name.as_str(), "store": setup.shown(), "error": error.to_string() }),
    }
}

const COLUMNS: [Column; 5] = [
    ("ELECTION", Align::Left),
    ("LEADER", Align::Left),
    ("TERM", Align::Right),
    ("ELECTED", Align::Left),
    ("EXPIRES", Align::Left),
];

/// Formats the lines of the table of elections.
pub(super) fn rows(listed: &[ListedElection], now: SystemTime, width: Option<usize>, paint: Paint) -> Vec<String> {
    let nothing = || "-".to_owned();
    let row = |ListedElection { name, status, .. }: &ListedElection| {
        let (tone, leader, term, elected, expires) = match status {
            Err(_) => (Tone::Warning, "?".to_owned(), "?".to_owned(), nothing(), nothing()),
            Ok(status) => {
                let elected = status.leader.as_ref().and_then(|leader| leader.since);
                let expires = match (status.expires_in, status.vouched) {
                    (Some(left), _) => format!("in {}", span(left)),
                    (None, true) => nothing(),
                    (None, false) => "unknown".to_owned(),
                };
                (
                    if status.leader.is_some() { Tone::Good } else { Tone::Warning },
                    status.leader.as_ref().map_or_else(nothing, |leader| printable(&leader.candidate.id)),
                    status.token.to_string(),
                    elected.map_or_else(nothing, |since| format!("{} ago", span(ago(since, now)))),
                    expires,
                )
            }
        };
        Row { cells: vec![printable(name.as_str()), leader, term, elected, expires], tone }
    };
    let rows: Vec<_> = listed.iter().map(row).collect();
    table::lines(&COLUMNS, &rows, width, paint)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::Elections;
    use tenure::testing::Memory;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_table_of_elections_is_aligned_and_shows_vacant_ones() {
        let elections = Elections::new(Memory::new().store());
        for name in ["nightly-jobs", "a"] {
            elections.election(name).candidate("web-1").start().unwrap().elected().await.unwrap();
        }
        let vacant = elections.find("a").unwrap();
        vacant.shutdown(Duration::from_secs(60)).await.unwrap();
        let mut listed = elections.list().await.unwrap();
        for election in &mut listed {
            let status = election.status.as_mut().unwrap();
            status.expires_in = status.expires_in.map(|_| Duration::from_secs(61));
            status.leader.iter_mut().for_each(|leader| leader.since = Some(SystemTime::UNIX_EPOCH));
        }
        let table = |width| rows(&listed, SystemTime::UNIX_EPOCH + Duration::from_secs(7), width, Paint::plain());
        assert_eq!(
            table(None),
            [
                "ELECTION      LEADER  TERM  ELECTED    EXPIRES",
                "a             -          1  -          -",
                "nightly-jobs  web-1      1  7.0 s ago  in 1 min 1 s",
            ]
        );
        assert!(table(Some(20)).iter().all(|line| line.chars().count() <= 20));
    }
}
