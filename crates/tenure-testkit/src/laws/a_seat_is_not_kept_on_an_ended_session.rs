//! When the server has ended the holder's session, the seat reads as over, the holder's renewals
//! are lost, and another can take it.
//!
//! Protects from: a leader that goes on as if its session still lived, and from a client that opens
//! a new session by itself and never says so.

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
        bench.within("that the session is ended", end).await?;
    }
    bench
        .until("that a seat reads as over once its session was ended", || async {
            Ok(bench.read(&other, &seat).await?.life == Life::Over)
        })
        .await?;
    let answer = bench.within("an answer", one.renew(&seat, &held.version, &bench.held(&me, 1))).await?;
    ensure!(
        !matches!(answer, Ok(Swap::Done { .. })),
        "a renewal was done though the session that the seat was won on is over: {answer:?}"
    );
    let seen = bench.read(&other, &seat).await?;
    bench.write(&other, &seat, Some(&seen.version), &bench.held(&next, 2)).await?;
    Ok(())
}
