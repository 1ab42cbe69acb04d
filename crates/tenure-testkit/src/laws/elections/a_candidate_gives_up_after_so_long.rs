//! With `give_up_after`, a store that fails for so long ends the election here, and everything that waits for a term
//! gets the reason. Without it, the candidate goes on, and leads once the store works again. Both emit events.
//!
//! Protects from: waiting for ever on a store that is gone, and from giving up on one that is not.

use tenure_core::{Ended, Event};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::failure::ensure;
use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("gives-up");
    let refuse = |wire: &crate::wrap::Wire| wire.set(Traffic::Refuse);
    let one = bench.stand_behind(refuse, &seat, "one", |election| election.give_up_after(bench.lease()))?;
    // A handler, as it hears of everything from the start.
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let other = bench.stand_behind(refuse, &seat, "other", |election| {
        election.on_event(move |event| drop(tell.send(event)))
    })?;

    let ended = one.stopped().await;
    ensure!(matches!(ended, Ended::GaveUp { after } if after >= bench.lease()), "it ended as {ended:?}, not as having given up");
    let waited = bench.within("an answer to who waits", one.election.elected()).await?;
    ensure!(matches!(waited, Err(Ended::GaveUp { .. })), "who waits for a term is told {waited:?}");

    hears(&bench, &mut told, "that the store fails", |event| matches!(event, Event::Error { .. })).await?;
    other.wire.set(Traffic::Pass);
    hears(&bench, &mut told, "that the store works again", |event| matches!(event, Event::Recovered)).await?;
    other.term().await;
    Ok(())
}

async fn hears(
    bench: &Bench,
    told: &mut UnboundedReceiver<Event>,
    what: &str,
    is_it: impl Fn(&Event) -> bool,
) -> Verdict {
    bench
        .within(what, async {
            loop {
                match told.recv().await {
                    Some(event) if is_it(&event) => return Ok(()),
                    Some(_) => {}
                    None => return Err(Failure::new(format!("the handlers are gone before this was told: {what}"))),
                }
            }
        })
        .await?
}
