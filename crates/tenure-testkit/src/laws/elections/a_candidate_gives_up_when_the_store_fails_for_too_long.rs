//! With `give_up_after`, a store that fails for that long ends the election in this process, and everything that
//! waits for a term gets the reason. Without it, the candidate keeps trying, and leads once the store works again.
//! Both emit events.
//!
//! Protects from: waiting forever for a store that is gone, and giving up on a store that recovers.

use tenure_core::{Ended, EventKind};
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
    // A handler, because it gets all events from the start.
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let other = bench.stand_behind(refuse, &seat, "other", |election| {
        election.on_event(move |event| drop(sender.send(event.kind)))
    })?;

    let ended = one.stopped().await;
    ensure!(
        matches!(ended, Ended::GaveUp { after } if after >= bench.lease()),
        "the election ended as {ended:?}, not as given up"
    );
    let waited = bench.within("an answer to a caller that waits", one.election.elected()).await?;
    ensure!(matches!(waited, Err(Ended::GaveUp { .. })), "a caller that waits for a term got {waited:?}");

    wait_for_event(&bench, &mut events, "an event that the store fails", |event| {
        matches!(event, EventKind::Error { .. })
    })
    .await?;
    other.wire.set(Traffic::Pass);
    wait_for_event(&bench, &mut events, "an event that the store works again", |event| {
        matches!(event, EventKind::Recovered)
    })
    .await?;
    other.term().await;
    Ok(())
}

async fn wait_for_event(
    bench: &Bench,
    events: &mut UnboundedReceiver<EventKind>,
    what: &str,
    is_it: impl Fn(&EventKind) -> bool,
) -> Verdict {
    bench
        .within(what, async {
            loop {
                match events.recv().await {
                    Some(event) if is_it(&event) => return Ok(()),
                    Some(_) => {}
                    None => return Err(Failure::new(format!("the handlers ended, expected: {what}"))),
                }
            }
        })
        .await?
}
