//! `tenure status`: prints the leader.

use serde_json::json;
use std::time::SystemTime;

use super::{leader_json, leader_words, print};
use crate::args::{Global, Status};
use crate::failure::Failure;
use crate::screen::{Paint, ago, span};
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Status) -> Result<u8, Failure> {
    let look = setup.elections_to_read()?.look(&args.election).await?;
    if global.json {
        let leader = look.leader.as_ref().map(|leader| {
            let mut value = leader_json(leader);
            value["expires_in_ms"] = json!(look.expires_in.map(|left| left.as_millis() as u64));
            value
        });
        print(json!({
            "election": args.election,
            "store": setup.shown(),
            "leader": leader,
            "vouched": look.vouched,
            "token": look.token.get(),
        }))?;
    } else if !global.quiet {
        let paint = Paint::for_stream(&std::io::stdout());
        match &look.leader {
            None if look.token.get() == 0 => {
                let missing = setup.missing().map(|database| format!(" ({} does not exist)", database.display()));
                print(paint.yellow(format!("vacant: no candidate has led yet{}", missing.unwrap_or_default())))?;
            }
            None => print(paint.yellow(format!("vacant: no leader (last term: {})", look.token)))?,
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
    }
    Ok(if look.leader.is_some() { 0 } else { 1 })
}
