//! When the server has ended the holder's session, the seat reads as over, the holder's renewals are lost, and
//! another candidate can take the seat.
//!
//! Protects from: a leader that continues as if its session were alive, and a client that silently opens a new
//! session.

use tenure_core::{Life, Swap};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Sessions, Need::EndSession];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("ended");
    let (one, other) = (bench.connect(), bench.connect());
    let (me, next) = (candidate("one"), candidate("other"));
    let held = bench.write(&one, &seat, None, &bench.held(&me, 1)).await?;
    if let Some(end) = bench.subject.end_session(&seat) {
        bench.within("the session is ended", end).await?;
    }
    bench
        .until("the seat reads as over after its session ended", || async {
            Ok(bench.read(&other, &seat).await?.life == Life::Over)
        })
        .await?;
    let answer = bench.within("an answer", one.renew(&seat, &held.version, &bench.held(&me, 1))).await?;
    ensure!(
        !matches!(answer, Ok(Swap::Done { .. })),
        "a renewal succeeded although the seat's session has ended: {answer:?}"
    );
    let seen = bench.read(&other, &seat).await?;
    bench.write(&other, &seat, Some(&seen.version), &bench.held(&next, 2)).await?;
    Ok(())
}
