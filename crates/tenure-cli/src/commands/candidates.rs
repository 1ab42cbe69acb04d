//! `tenure candidates`: lists the candidates.

use std::time::SystemTime;

use serde_json::{Value, json};
use tenure::CandidateStatus;

use super::{print, printable};
use crate::args::{Candidates, Global};
use crate::failure::Failure;
use crate::json::{self, versioned};
use crate::screen::{self, Paint, span, width};
use crate::setup::Setup;
use crate::table::{self, Align, Column, Row, Tone};

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Candidates) -> Result<u8, Failure> {
    let candidates = setup.elections_read_only()?.candidates(&args.election).await?;
    if global.json {
        let listed: Vec<Value> = candidates.iter().map(json::candidate).collect();
        print(versioned(json!({ "election": args.election, "store": setup.shown(), "candidates": listed })))?;
    } else if !global.quiet && candidates.is_empty() {
        let paint = Paint::for_stream(&std::io::stdout());
        print(paint.yellow(format!("{} has no candidates", printable(&args.election))))?;
    } else if !global.quiet {
        let paint = Paint::for_stream(&std::io::stdout());
        table(&candidates, SystemTime::now(), width(&std::io::stdout()), paint).into_iter().try_for_each(print)?;
    }
    Ok(if candidates.is_empty() { 1 } else { 0 })
}

const COLUMNS: [Column; 8] = [
    ("CANDIDATE", Align::Left),
    ("LEADS", Align::Left),
    ("SCORE", Align::Right),
    ("HEALTHY", Align::Left),
    ("PRIORITY", Align::Right),
    ("AGE", Align::Left),
    ("UPDATED", Align::Left),
    ("METADATA", Align::Left),
];

/// Formats the lines of the table, cut to the width of the terminal, if there is one.
pub(super) fn table(
    candidates: &[CandidateStatus],
    now: SystemTime,
    width: Option<usize>,
    paint: Paint,
) -> Vec<String> {
    let row = |status: &CandidateStatus| {
        let tone = match (status.healthy, status.is_leader) {
            (false, _) => Tone::Warning,
            (true, true) => Tone::Good,
            (true, false) => Tone::Neutral,
        };
        Row { cells: cells(status, candidates, now), tone }
    };
    let rows: Vec<_> = candidates.iter().map(row).collect();
    table::lines(&COLUMNS, &rows, width, paint)
}

fn cells(status: &CandidateStatus, all: &[CandidateStatus], now: SystemTime) -> Vec<String> {
    let ago = |time: Option<SystemTime>, word: &str| {
        time.map_or("-".to_owned(), |time| format!("{}{word}", span(screen::ago(time, now))))
    };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let id = printable(&status.candidate.id);
    let has_twin = all.iter().filter(|other| other.candidate.id == status.candidate.id).count() > 1;
    let metadata: Vec<String> = status.metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
    vec![
        if has_twin { format!("{id} ({})", status.candidate.incarnation) } else { id },
        yes(status.is_leader),
        format!("{:.2}", status.score),
        yes(status.healthy),
        status.priority.to_string(),
        ago(status.since, ""),
        ago(status.updated, " ago"),
        printable(&metadata.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::Elections;
    use tenure::testing::Memory;

    use super::*;

    /// Returns two candidates, read from a store: this crate cannot construct a `CandidateStatus`.
    async fn two() -> Vec<CandidateStatus> {
        let memory = Memory::new();
        let (one, other) = (Elections::new(memory.store()), Elections::new(memory.store()));
        let alice = one.election("jobs").candidate("alice").metadata("zone", "a").start().unwrap();
        alice.elected().await.unwrap();
        let bob = other.election("jobs").candidate("bob").priority(10).start().unwrap();
        bob.report_health(0.25, [("error", "no\ndisk")]).unwrap();
        loop {
            let candidates = one.candidates("jobs").await.unwrap();
            if candidates.len() == 2 && candidates[0].is_leader && !candidates[1].healthy {
                return candidates;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_columns_of_the_table_are_aligned_and_have_no_control_characters() {
        let mut candidates = two().await;
        for status in &mut candidates {
            (status.since, status.updated) = (Some(SystemTime::UNIX_EPOCH), None);
        }
        let table = table(&candidates, SystemTime::UNIX_EPOCH + Duration::from_secs(61), None, Paint::plain());
        assert_eq!(
            table,
            [
                "CANDIDATE  LEADS  SCORE  HEALTHY  PRIORITY  AGE        UPDATED  METADATA",
                "alice      yes     1.00  yes             0  1 min 1 s  -        zone=a",
                "bob        no      0.25  no             10  1 min 1 s  -        error=no\u{fffd}disk",
            ]
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_table_fits_the_terminal_and_shows_the_incarnations_of_equal_ids() {
        let mut candidates = two().await;
        candidates[1].candidate.id = "alice".into();
        let all = table(&candidates, SystemTime::UNIX_EPOCH, None, Paint::plain());
        for (line, status) in all[1..].iter().zip(&candidates) {
            assert!(line.starts_with(&format!("alice ({})", status.candidate.incarnation)), "{line}");
        }
        for line in table(&candidates, SystemTime::UNIX_EPOCH, Some(30), Paint::plain()) {
            assert_eq!((line.chars().count(), line.chars().last()), (30, Some('…')), "{line}");
        }
    }
}
