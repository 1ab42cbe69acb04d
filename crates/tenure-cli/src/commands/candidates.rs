//! `tenure candidates`: who stands.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::CandidateStatus;

use super::{print, printable};
use crate::args::{Candidates, Global};
use crate::failure::Failure;
use crate::screen::{Paint, span, timestamp, wall_ms, width};
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Candidates) -> Result<u8, Failure> {
    let candidates = setup.elections_to_read()?.candidates(&args.election).await?;
    if global.json {
        let listed: Vec<Value> = candidates.iter().map(as_json).collect();
        print(json!({ "election": args.election, "store": setup.shown(), "candidates": listed }))?;
    } else if !global.quiet && candidates.is_empty() {
        let paint = Paint::for_stream(&std::io::stdout());
        print(paint.yellow(format!("nobody stands for {}", printable(&args.election))))?;
    } else if !global.quiet {
        let paint = Paint::for_stream(&std::io::stdout());
        table(&candidates, wall_ms(), width(&std::io::stdout()), paint).into_iter().try_for_each(print)?;
    }
    Ok(if candidates.is_empty() { 1 } else { 0 })
}

fn as_json(status: &CandidateStatus) -> Value {
    json!({
        "candidate": &*status.candidate.id,
        "incarnation": status.candidate.incarnation.to_string(),
        "leader": status.is_leader,
        "score": status.score,
        "healthy": status.healthy,
        "priority": status.priority,
        "since": status.since_ms.map(timestamp),
        "updated": status.updated_ms.map(timestamp),
        "metadata": status.metadata,
    })
}

const HEAD: [&str; 8] = ["CANDIDATE", "LEADS", "SCORE", "HEALTHY", "PRIORITY", "STANDS FOR", "LAST TOLD", "METADATA"];

/// Where the numbers are, which stand one below the other.
const TO_THE_RIGHT: [bool; 8] = [false, false, true, false, true, false, false, false];

/// The lines of the table: as wide as they need to be, or cut to fit a terminal of this width.
fn table(candidates: &[CandidateStatus], now: u64, width: Option<usize>, paint: Paint) -> Vec<String> {
    let rows: Vec<[String; 8]> = candidates.iter().map(|status| cells(status, candidates, now)).collect();
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|at| rows.iter().map(|row| length(&row[at])).chain([length(HEAD[at])]).max().unwrap_or(0))
        .collect();
    let line = |row: &[String; 8]| {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let room = " ".repeat(widths[at] - length(cell));
            line += &if TO_THE_RIGHT[at] { format!("{room}{cell}  ") } else { format!("{cell}{room}  ") };
        }
        cut(line.trim_end(), width)
    };
    let painted = rows.iter().zip(candidates).map(|(row, status)| match (status.healthy, status.is_leader) {
        (false, _) => paint.yellow(line(row)),
        (true, true) => paint.green(line(row)),
        (true, false) => line(row),
    });
    std::iter::once(paint.dim(line(&HEAD.map(str::to_owned)))).chain(painted).collect()
}

fn cells(status: &CandidateStatus, all: &[CandidateStatus], now: u64) -> [String; 8] {
    let ago = |ms: Option<u64>, word: &str| {
        ms.map_or("-".to_owned(), |ms| format!("{}{word}", span(Duration::from_millis(now.saturating_sub(ms)))))
    };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let id = printable(&status.candidate.id);
    let has_twin = all.iter().filter(|other| other.candidate.id == status.candidate.id).count() > 1;
    let metadata: Vec<String> = status.metadata.iter().map(|(key, value)| format!("{key}={value}")).collect();
    [
        if has_twin { format!("{id} ({})", status.candidate.incarnation) } else { id },
        yes(status.is_leader),
        format!("{:.2}", status.score),
        yes(status.healthy),
        status.priority.to_string(),
        ago(status.since_ms, ""),
        ago(status.updated_ms, " ago"),
        printable(&metadata.join(", ")),
    ]
}

/// Cuts a line that would not fit.
fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tenure::Elections;
    use tenure::memory::Memory;

    use super::*;

    /// Two candidates as they come from a store: `CandidateStatus` is not for others to make.
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
    async fn a_table_has_its_columns_below_each_other_and_no_control_characters() {
        let mut candidates = two().await;
        for status in &mut candidates {
            (status.since_ms, status.updated_ms) = (Some(1_000), None);
        }
        let table = table(&candidates, 62_000, None, Paint::plain());
        assert_eq!(
            table,
            [
                "CANDIDATE  LEADS  SCORE  HEALTHY  PRIORITY  STANDS FOR  LAST TOLD  METADATA",
                "alice      yes     1.00  yes             0  1 min 1 s   -          zone=a",
                "bob        no      0.25  no             10  1 min 1 s   -          error=no\u{fffd}disk",
            ]
        );
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_table_fits_the_terminal_and_tells_twins_apart() {
        let mut candidates = two().await;
        candidates[1].candidate.id = "alice".into();
        let all = table(&candidates, 0, None, Paint::plain());
        for (line, status) in all[1..].iter().zip(&candidates) {
            assert!(line.starts_with(&format!("alice ({})", status.candidate.incarnation)), "{line}");
        }
        for line in table(&candidates, 0, Some(30), Paint::plain()) {
            assert_eq!((line.chars().count(), line.chars().last()), (30, Some('…')), "{line}");
        }
    }
}
