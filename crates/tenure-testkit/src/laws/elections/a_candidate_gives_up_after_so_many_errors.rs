//! With `give_up_after`, so many store errors in a row end the election here, and whoever waits is
//! told why. Without it, it goes on and leads once the store works again; both are told.
//!
//! Protects from: waiting for ever on a store that is gone, and from giving up on one that is not.

use tenure_core::{Ended, Event};

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("gives-up");
    let refuse = |wire: &crate::wrap::Wire| wire.set(Traffic::Refuse);
    let one = bench.stand_behind(refuse, &seat, "one", |election| election.give_up_after(3))?;
    let other = bench.stand_behind(refuse, &seat, "other", |election| election)?;
    let mut events = other.election.events();

    let ended = bench.stopped(&one).await?;
    ensure!(matches!(ended, Ended::GaveUp { errors } if errors >= 3), "it ended as {ended:?}, not as having given up");
    let waited = bench.within("an answer to who waits", one.election.elected()).await?;
    ensure!(matches!(waited, Err(Ended::GaveUp { .. })), "who waits for a term is told {waited:?}");

    bench.event("that the store fails", &mut events, |event| matches!(event, Event::Error { .. })).await?;
    other.wire.set(Traffic::Pass);
    bench.event("that the store works again", &mut events, |event| matches!(event, Event::Recovered)).await?;
    bench.elected(&other).await?;
    Ok(())
}
