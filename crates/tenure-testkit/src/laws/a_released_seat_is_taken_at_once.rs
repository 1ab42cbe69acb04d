//! A released seat reads as vacant and keeps its token, and the next bid takes it at once.
//!
//! Protects from: lock delays, and a token that restarts because the release deletes the record.

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("released");
    let (one, other) = (bench.connect(), bench.connect());
    let held = bench.write(&one, &seat, None, &bench.held(&candidate("one"), 1)).await?;
    let vacant = bench.write(&one, &seat, Some(&held.version), &bench.vacant(1)).await?;

    let seen = bench.read(&other, &seat).await?;
    ensure!(seen.record.is_vacant(), "a released seat reads as held by {:?}", seen.record.holder);
    ensure!(
        seen.record.token.get() == 1,
        "a released seat has token {}, which is not the token of its last term",
        seen.record.token
    );
    ensure!(
        seen.version == vacant.version,
        "the version of a released seat differs from the one that the release returned"
    );

    let next = candidate("other");
    bench.write(&other, &seat, Some(&seen.version), &bench.held(&next, 2)).await?;
    let seen = bench.read(&one, &seat).await?;
    ensure!(seen.record.is_held_by(next.incarnation), "the seat does not name the candidate that took it: {seen:?}");
    Ok(())
}
