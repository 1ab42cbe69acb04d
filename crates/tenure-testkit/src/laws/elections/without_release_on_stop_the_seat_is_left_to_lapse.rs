//! With `release_on_stop` off, a leader that stops leaves the seat as it is, to lapse; its work is
//! stopped all the same.
//!
//! Protects from: a release that somebody has asked not to happen, such as in a rolling restart.

use tenure_core::Ended;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("left");
    let one = bench.stand_with(&seat, "one", |election| election.release_on_stop(false))?;
    let term = one.term().await;
    one.election.stop();
    let ended = one.stopped().await;
    ensure!(ended == Ended::Stopped, "stop() must end as stopped, not as: {ended}");
    ensure!(!term.is_current(), "the term of an election that has ended is still current");
    let seen = bench.read(&bench.connect(), &seat).await?;
    ensure!(
        seen.record.is_held_by(one.election.candidate().incarnation),
        "the seat was given up though it was to be left: {seen:?}"
    );
    drop(one);
    let other = bench.stand(&seat, "other")?;
    other.term().await;
    Ok(())
}
