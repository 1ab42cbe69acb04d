//! The names of options, and suggestions for unknown names.

use super::FIELDS;

/// Variables that begin with `TENURE_` and are not options of an election.
pub(super) const OTHER_VARIABLES: &[&str] = &["store", "config", "election", "term", "log", "log_", "test_", "bench_"];

/// The names of options in other leader elections, without underscores, and the options that replace them.
const NAMES_ELSEWHERE: &[(&str, &str)] = &[
    ("leaseduration", "lease"),
    ("lockexpiry", "lease"),
    ("ttl", "lease"),
    ("renewinterval", "renew_every"),
    ("retryinterval", "retry_every"),
    ("retryperiod", "retry_every"),
    ("maxretryinterval", "retry_max"),
    ("maxretryattempts", "give_up_after"),
    ("graceperiod", "drain"),
    ("releaseoncancel", "release_on_stop"),
    ("enablegracefulshutdown", "release_on_stop"),
    ("instanceid", "candidate"),
    ("candidateid", "candidate"),
    ("candidatemetadata", "metadata"),
    ("minimumhealthscore", "min_health"),
];

pub(super) fn unknown(path: &str, name: &str, known: &[&str]) -> String {
    let plain = name.to_ascii_lowercase().replace(['-', '_'], "");
    let elsewhere = NAMES_ELSEWHERE.iter().find(|(other, _)| *other == plain).map(|(_, ours)| *ours);
    match elsewhere.or_else(|| nearest(name, known)) {
        Some(near) => format!("unknown option `{path}{name}`: did you mean `{near}`?"),
        None => format!("unknown option `{path}{name}`: the options are {}", known.join(", ")),
    }
}

/// Returns the known name that is most similar, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let (distance, best) = known.iter().map(|known| (edits(&name, known), *known)).min()?;
    (distance <= 2 + name.len() / 4).then_some(best)
}

/// Returns the option that a variable probably misspells: one or two letters differ, or the first word is the same.
///
/// Other programs set variables with the prefix `TENURE_`, too, and these must not be errors. Kubernetes sets some in
/// every pod if there is a service named `tenure`, always with the word `PORT` or `SERVICE`, which no option has:
/// `TENURE_PORT`, `TENURE_SERVICE_HOST`.
pub(super) fn near_miss(name: &str) -> Option<&'static str> {
    if name.split('_').any(|word| word == "port" || word == "service") {
        return None;
    }
    let first_word = |name: &str| name.split('_').next().map(str::to_owned);
    let known = FIELDS.iter().chain(&["store", "config"]).copied();
    let limit = if name.len() <= 6 { 1 } else { 2 };
    let alike = |known: &str| first_word(name) == first_word(known);
    let near = known.map(|known| (edits(name, known), known));
    near.filter(|(edits, known)| *edits <= limit || alike(known)).min().map(|(_, near)| near)
}

/// Returns the number of letters to add, remove or replace to turn one word into the other.
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
