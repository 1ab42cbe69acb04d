//! Where many seats stand on one heartbeat, an answer tells when that heartbeat was sent, and not
//! when it was asked: no session is over before its holder's hold, counted from what it was told.
//!
//! Protects from: a leader that won a seat on an ageing session, and counts a whole lease from then.

use tenure_core::Life;

use crate::bench::{candidate, now};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Sessions, Need::SharedHeartbeat];

pub(super) async fn check(bench: Bench) -> Verdict {
    let lease = bench.lease();
    let watcher = bench.connect();
    // Several ages, as we cannot know when a heartbeat is sent.
    for part in 1..=3 {
        let one = bench.connect();
        let (early, late) = (bench.seat(&format!("early-{part}")), bench.seat(&format!("late-{part}")));
        let me = candidate("one");
        let first = bench.write(&one, &early, None, &bench.held(&me, 1)).await?;
        tokio::time::sleep(lease * part / 14).await;
        let mut last = bench.write(&one, &late, None, &bench.held(&me, 1)).await?;
        // Not the last time: what a bid says must be true also if no renewal follows that makes it so.
        if part != 3 {
            let kept = bench.renew(&one, &early, &first.version, &bench.held(&me, 1)).await?;
            if kept.since > last.since {
                last = kept;
            }
        }
        ensure!(last.since <= last.answered, "an answer stands on a heartbeat that is still to be sent");
        let silent = bench.subject.ends_with_its_connection().then_some(one);

        let counted = last.granted.unwrap_or(lease).min(lease) * 98 / 100;
        bench
            .until("that the seats of a holder that is gone read as over", || async {
                let over = bench.read(&watcher, &late).await?.life == Life::Over;
                let age = now().since(last.since);
                ensure!(
                    !over || age >= counted,
                    "a session was over {age:?} after the heartbeat that its holder was told of, which counts on {counted:?}"
                );
                Ok(over)
            })
            .await?;
        drop(silent);
    }
    Ok(())
}
