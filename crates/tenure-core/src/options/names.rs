//! The names of options, and what to say to one that is not among them.

/// Variables that begin with `TENURE_` but are no options of an election.
pub(super) const OTHER_VARIABLES: &[&str] = &["store", "config", "election", "term", "log", "log_", "test_", "bench_"];

/// What a file may have at its top.
pub(super) const FILE_FIELDS: &[&str] = &[
    "store",
    "elections",
    "lease",
    "renew_every",
    "attempt",
    "retry_every",
    "retry_max",
    "drain",
    "stop_grace",
    "drift",
    "judge",
    "takeover",
    "candidate",
    "metadata",
    "release_on_stop",
    "give_up_after",
    "priority",
    "preempt",
    "min_health",
    "step_down_when_unhealthy",
    "health_cmd",
    "health_every",
    "health_timeout",
    "on_overrun",
];

/// The options of an election: all of these but the first two.
pub(super) const FIELDS: &[&str] = FILE_FIELDS.split_at(2).1;

pub(super) fn unknown(path: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("unknown option `{path}{name}`: did you mean `{near}`?"),
        None => format!("unknown option `{path}{name}`: the options are {}", known.join(", ")),
    }
}

/// The name most like this one, if any is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let (distance, best) = known.iter().map(|known| (edits(&name, known), *known)).min()?;
    (distance <= 2 + name.len() / 4).then_some(best)
}

/// How many letters must be added, dropped or exchanged to turn one word into the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
