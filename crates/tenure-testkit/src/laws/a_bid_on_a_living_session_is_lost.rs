//! A bid from another connection on a seat whose holder's session is alive is lost and changes nothing, even with
//! the right version. The holder's own connection can write the seat.
//!
//! Protects from: several winners of one session lock, and a follower that takes the seat of a living holder
//! because it misjudged the time.

use tenure_core::Life;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Sessions];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("living");
    let (one, other) = (bench.connect(), bench.connect());
    let (me, thief) = (candidate("one"), candidate("thief"));
    let held = bench.write(&one, &seat, None, &bench.held(&me, 1)).await?;

    let seen = bench.read(&other, &seat).await?;
    ensure!(seen.life == Life::Held, "the holder's session is alive, but its seat reads as {:?}", seen.life);
    for record in [bench.held(&thief, 2), bench.vacant(1)] {
        bench
            .lose(
                "a swap of another candidate while the holder's session is alive",
                &other,
                &seat,
                Some(&seen.version),
                &record,
            )
            .await?;
    }
    let after = bench.read(&other, &seat).await?;
    ensure!(after.record == seen.record, "a lost swap has changed the seat from {seen:?} to {after:?}");

    let again = bench.write(&one, &seat, Some(&held.version), &bench.held(&me, 2)).await?;
    bench.write(&one, &seat, Some(&again.version), &bench.vacant(2)).await?;
    Ok(())
}
