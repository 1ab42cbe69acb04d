//! Every name that an election can have is a seat of its own: with spaces, slashes, quotes, characters with a
//! meaning for a database or a URL, in any script, and of the greatest length. Two names that differ at all are two
//! seats.
//!
//! Protects from: names that are truncated, case-folded or escaped to the same text, so that two elections share a
//! leader, and names that cannot be used at all.

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

/// Names that a store could mix up, or not store at all. The last one is longer than a name can be: [`Bench::seat`]
/// makes it as long as possible.
pub(super) const ODD_NAMES: &[&str] = &[
    "jobs",
    "Jobs",
    "JOBS",
    "jobs ",
    "jobs/",
    "/jobs",
    "//jobs",
    "jobs/a",
    "jobs/A",
    "jobs//a",
    "jobs%2Fa",
    "jobs.a",
    "jobs..a",
    "../jobs",
    "jobs_a",
    "jobs-a",
    "jobs a",
    "jobs+a",
    "jobs:a",
    "jobs{a}",
    "{jobs}a",
    "jobs*",
    "jobs?",
    "jobs#a",
    "jobs&a",
    "jobs=a",
    "jobs;a",
    "jobs'a",
    "jobs\"a",
    "jobs`a",
    "jobs\\a",
    "jobs$1",
    "%",
    "100 %",
    "_",
    "'; DROP TABLE seats; --",
    "выборы",
    "Выборы",
    "选举",
    "🗳",
    "e\u{301}",
    "é",
    "ß",
    "ss",
    LONG_NAME,
];

const LONG_NAME: &str = match std::str::from_utf8(&[b'x'; 600]) {
    Ok(name) => name,
    Err(_) => "",
};

pub(super) async fn check(bench: Bench) -> Verdict {
    let store = bench.connect();
    let holders: Vec<_> = ODD_NAMES.iter().map(|name| (bench.seat(name), candidate(name))).collect();
    for (number, (seat, holder)) in holders.iter().enumerate() {
        let reading = bench.within("a reading", store.read(seat)).await??;
        ensure!(reading.seat.is_none(), "{:?} is the same seat as {:?}", seat.as_str(), reading.seat);
        bench.write(&store, seat, None, &bench.held(holder, number as u64 + 1)).await?;
    }
    let store = bench.connect();
    for (seat, holder) in &holders {
        let seen = bench.read(&store, seat).await?;
        ensure!(
            seen.record.is_held_by(holder.incarnation),
            "the seat {:?} was written by {holder}, but now names {:?}",
            seat.as_str(),
            seen.record.holder
        );
    }
    Ok(())
}
