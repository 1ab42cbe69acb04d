//! The names of options, and suggestions for unknown names.

use super::FIELDS;

/// Variables that begin with `TENURE_` and are not options of an election.
pub(super) const OTHER_VARIABLES: &[&str] =
    &["store", "last_will", "config", "election", "term", "log", "log_", "test_", "bench_"];

/// The names of options in other leader elections, and the options that replace them, both without underscores.
const NAMES_ELSEWHERE: &[(&str, &str)] = &[
    ("leaseduration", "lease"),
    ("lockexpiry", "lease"),
    ("ttl", "lease"),
    ("renewinterval", "renewevery"),
    ("retryinterval", "retryevery"),
    ("retryperiod", "retryevery"),
    ("maxretryinterval", "retrymax"),
    ("maxretryattempts", "giveupafter"),
    ("graceperiod", "drain"),
    ("releaseoncancel", "releaseonstop"),
    ("enablegracefulshutdown", "releaseonstop"),
    ("instanceid", "candidate"),
    ("candidateid", "candidate"),
    ("candidatemetadata", "metadata"),
    ("minimumhealthscore", "minhealth"),
];

pub(super) fn unknown(path: &str, name: &str, known: &[&str]) -> String {
    match did_you_mean(name, known).as_slice() {
        [] => format!("unknown option `{path}{name}`: the options are {}", known.join(", ")),
        near => format!("unknown option `{path}{name}`: did you mean `{}`?", near.join("` or `")),
    }
}

/// Returns the names that a misspelt name most likely stands for: the one that another leader election calls so, or
/// those that differ in the fewest letters, or those that begin alike. Empty if none is similar. Case, dashes and
/// underscores do not count.
///
/// Stores use it for the options of their URLs, and the command for its own words.
///
/// ```
/// # use tenure_core::did_you_mean;
/// assert_eq!(did_you_mean("laese", &["lease", "drain"]), ["lease"]);
/// assert_eq!(did_you_mean("ttl", &["lease", "drain"]), ["lease"]);
/// assert!(did_you_mean("bananas", &["lease", "drain"]).is_empty());
/// ```
pub fn did_you_mean<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
    let name = plain(name);
    let known: Vec<(String, &'a str)> = known.iter().map(|known| (plain(known), *known)).collect();
    let those = |is_meant: &dyn Fn(&str) -> bool| -> Vec<&'a str> {
        known.iter().filter(|(plain, _)| is_meant(plain)).map(|(_, known)| *known).collect()
    };
    let elsewhere = those(&|known| NAMES_ELSEWHERE.contains(&(name.as_str(), known)));
    if !elsewhere.is_empty() {
        return elsewhere;
    }
    let most = name.chars().count().div_ceil(3);
    match known.iter().map(|(plain, _)| edits(&name, plain)).min().filter(|least| *least <= most) {
        Some(least) => those(&|known| edits(&name, known) == least),
        None if name.len() < 3 => Vec::new(),
        None => those(&|known| known.starts_with(&name) || (known.len() >= 3 && name.starts_with(known))),
    }
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

/// Returns the number of letters to add, remove, replace or swap with the next one, to turn one word into the other.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // `rows[i][j]` is the number for the first `i` letters of `a` and the first `j` of `b`.
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchanged = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = exchanged.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_of_two_letters_is_one_edit() {
        for (a, b, expected) in
            [("lease", "lease", 0), ("laese", "lease", 1), ("lese", "lease", 1), ("", "ab", 2), ("abcd", "badc", 2)]
        {
            assert_eq!(edits(a, b), expected, "{a} {b}");
            assert_eq!(edits(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn names_that_are_equally_near_are_all_returned() {
        assert_eq!(did_you_mean("c", &["ca", "dc", "prefix"]), ["ca", "dc"]);
        assert_eq!(did_you_mean("health", &["lease", "health_cmd", "health_every"]), ["health_cmd", "health_every"]);
        assert_eq!(did_you_mean("store_url", &["lease", "store"]), ["store"]);
        assert_eq!(did_you_mean("RENEW-EVRY", &["retry_every", "renew_every"]), ["renew_every"]);
    }
}
