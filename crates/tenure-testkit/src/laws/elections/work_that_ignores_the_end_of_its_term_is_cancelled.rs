//! Work that awaits something when its term ends, and ignores the request to wrap up, is dropped there. Its caller
//! gets the reason, and no part of the work runs in the next term.
//!
//! Protects from: work that continues because nothing stops it.

use tenure_core::{Ended, Token};

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("cut");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    let (election, at) = (one.election.clone(), detector.clone());
    let work = tokio::spawn(async move {
        election
            .run_while_leader(async |term| {
                let shift = at.begin(&term);
                loop {
                    shift.act();
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            })
            .await
    });
    let first = bench.within("one works", detector.acted_above(Token::ZERO)).await?;
    one.wire.set(Traffic::Hang);
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    let cut: Result<Result<std::convert::Infallible, Ended>, _> =
        bench.within("work that never returns is cancelled", work).await?;
    ensure!(
        matches!(cut, Ok(Err(Ended::TermEnded { token, .. })) if token == first),
        "the caller of the work got {cut:?}, not that its term had ended"
    );
    bench.within("the other works", detector.acted_above(first)).await?;
    detector.acts_do_not_overlap()
}
