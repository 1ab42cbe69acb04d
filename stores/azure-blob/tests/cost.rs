//! The figures of the README are those that `cost` computes. That they are right is tested in `conformance`, which counts
//! the requests.

use std::time::Duration;

use tenure_azure_blob::cost::{Load, PRICES};

#[test]
fn the_estimates_of_the_readme_are_right() {
    let readme = include_str!("../README.md");
    for (seconds, candidates) in [(15, 3), (60, 3), (15, 10), (60, 10)] {
        let load = Load { lease: Duration::from_secs(seconds), candidates, notes: false };
        let (hour, price) = (load.per_hour(), load.per_month().price(&PRICES));
        let row = format!("| {seconds} s | {candidates} | {} | {} | ${price:.2} |", hour.renewals, hour.reads);
        assert!(readme.contains(&row), "{row}");
    }
    let load = Load { lease: Duration::from_secs(15), candidates: 3, notes: true };
    let with_notes = load.per_month().price(&PRICES);
    assert!(readme.contains(&format!("${with_notes:.2} per month")), "${with_notes:.2}");
}
