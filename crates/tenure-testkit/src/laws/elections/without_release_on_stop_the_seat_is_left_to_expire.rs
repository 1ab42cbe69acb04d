//! With `release_on_stop` off, a leader that stops leaves the seat as it is until the lease expires. Its work is
//! still stopped.
//!
//! Protects from: a release that the user turned off, for example during a rolling restart.

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
        "the seat was released although `release_on_stop` is off: {seen:?}"
    );
    drop(one);
    let other = bench.stand(&seat, "other")?;
    other.term().await;
    Ok(())
}
