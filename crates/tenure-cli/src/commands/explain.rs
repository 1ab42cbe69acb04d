//! `tenure explain`: says why an election has no leader, or why a candidate does not lead.

mod findings;

use std::time::SystemTime;

use serde_json::{Value, json};
use tenure::Error;

use self::findings::{Facts, Finding, findings};
use super::{leader_json, print};
use crate::args::{Explain, Global, quoted};
use crate::failure::{Failure, error_words};
use crate::json::versioned;
use crate::mask::mask;
use crate::screen::Paint;
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Explain) -> Result<u8, Failure> {
    let elections = setup.elections_read_only()?;
    let failed = |error: Error| unreachable_store(setup, &args.election, &error);
    let seat = elections.look(&args.election).await.map_err(failed)?;
    let candidates = elections.candidates(&args.election).await.map_err(failed)?;
    let store = setup.shown();
    let mut found = findings(&Facts {
        election: &args.election,
        store: &store,
        missing: setup.missing(),
        seat: &seat,
        candidates: &candidates,
        asked: args.candidate.as_deref(),
        now: SystemTime::now(),
    });
    if let Some(url) = &global.store {
        // A command without the option would act on another store. A password is left out.
        let url = if mask(url) == *url { quoted(url) } else { "URL".to_owned() };
        for command in found.iter_mut().filter_map(|finding| finding.command.as_mut()) {
            *command = command.replacen("tenure ", &format!("tenure --store {url} "), 1);
        }
    }
    if global.json {
        print(versioned(json!({
            "election": args.election,
            "store": store,
            "candidate": args.candidate,
            "leader": seat.leader.as_ref().map(leader_json),
            "token": seat.token.get(),
            "findings": found.iter().map(as_json).collect::<Vec<Value>>(),
        })))?;
    } else if !global.quiet {
        let paint = Paint::for_stream(&std::io::stdout());
        for (at, finding) in found.iter().enumerate() {
            let has_leader = seat.leader.is_some();
            print(match at {
                0 if has_leader => paint.green(&finding.text),
                0 => paint.yellow(&finding.text),
                _ => finding.text.clone(),
            })?;
            if let Some(command) = &finding.command {
                print(format!("  {} {command}", paint.dim("try:")))?;
            }
        }
    }
    Ok(if seat.leader.is_some() { 0 } else { 1 })
}

fn as_json(finding: &Finding) -> Value {
    json!({ "code": finding.code, "text": finding.text, "command": finding.command })
}

/// Adds to the error of a store which store it is. The error itself says what to check.
fn unreachable_store(setup: &Setup, election: &str, error: &Error) -> Failure {
    let words = error_words(error);
    Failure::new(match error.store_error() {
        Some(_) => format!("cannot read {election} from {}: {words}", setup.shown()),
        None => words,
    })
}
