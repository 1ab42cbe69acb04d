//! A renewal succeeds only for the holder of the seat. Once another candidate holds the seat, the renewal is lost
//! and changes nothing.
//!
//! Protects from: a heartbeat that does not check the holder of the seat, so that a leader that was replaced takes
//! the seat back silently.

use tenure_core::Swap;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("renewed");
    let (one, other) = (bench.connect(), bench.connect());
    let (first, next) = (candidate("one"), candidate("other"));
    let mut held = bench.write(&one, &seat, None, &bench.held(&first, 1)).await?;
    for _ in 0..3 {
        held = bench.renew(&one, &seat, &held.version, &bench.held(&first, 1)).await?;
        let seen = bench.read(&other, &seat).await?;
        ensure!(seen.record.is_held_by(first.incarnation), "a renewed seat does not name its holder: {seen:?}");
        ensure!(seen.record.token.get() == 1, "a renewal has changed the token to {}", seen.record.token);
    }

    let vacant = bench.write(&one, &seat, Some(&held.version), &bench.vacant(1)).await?;
    let taken = bench.write(&other, &seat, Some(&vacant.version), &bench.held(&next, 2)).await?;
    for stale in [&held.version, &vacant.version] {
        let answer = bench.within("an answer", one.renew(&seat, stale, &bench.held(&first, 1))).await??;
        ensure!(
            answer == Swap::Lost,
            "the renewal of a seat that another candidate holds was answered with {answer:?}"
        );
    }
    let seen = bench.read(&one, &seat).await?;
    ensure!(seen.record.is_held_by(next.incarnation), "a lost renewal has changed the seat: {seen:?}");
    bench.renew(&other, &seat, &taken.version, &bench.held(&next, 2)).await?;
    Ok(())
}
