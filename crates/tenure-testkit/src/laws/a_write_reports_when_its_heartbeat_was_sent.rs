//! Where one heartbeat keeps many seats, the answer to a write reports when that heartbeat was sent, not when the
//! write was. So no session ends before its holder's hold, counted from the reported moment.
//!
//! Protects from: a leader that wins a seat on an old session and counts a whole lease from the win.

use tenure_core::Life;

use crate::bench::{candidate, now};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Sessions, Need::SharedHeartbeat];

pub(super) async fn check(bench: Bench) -> Verdict {
    let lease = bench.lease();
    let watcher = bench.connect();
    // Several ages of the session, because the law cannot know when a heartbeat is sent.
    for part in 1..=3 {
        let one = bench.connect();
        let (early, late) = (bench.seat(&format!("early-{part}")), bench.seat(&format!("late-{part}")));
        let me = candidate("one");
        let first = bench.write(&one, &early, None, &bench.held(&me, 1)).await?;
        tokio::time::sleep(lease * part / 14).await;
        let mut last = bench.write(&one, &late, None, &bench.held(&me, 1)).await?;
        // Not in the last round: the answer to a bid must be right even without a renewal after it.
        if part != 3 {
            let kept = bench.renew(&one, &early, &first.version, &bench.held(&me, 1)).await?;
            if kept.since > last.since {
                last = kept;
            }
        }
        ensure!(last.since <= last.answered, "an answer reports a heartbeat that is sent in the future");
        let silent = bench.subject.ends_with_its_connection().then_some(one);

        let counted = last.granted.unwrap_or(lease).min(lease) * 98 / 100;
        bench
            .until("the seats of a dead holder read as over", || async {
                let over = bench.read(&watcher, &late).await?.life == Life::Over;
                let age = now().since(last.since);
                ensure!(
                    !over || age >= counted,
                    "a session ended {age:?} after the reported heartbeat, but its holder counts on it for {counted:?}"
                );
                Ok(over)
            })
            .await?;
        drop(silent);
    }
    Ok(())
}
