//! When calls on a slow connection time out, a store opens another connection. If the slow connection answers
//! later, a call that still waits on it gets its answer, where the store waits for slow answers, and one of the two
//! connections is closed.
//!
//! Protects from: unused connections that are never closed.

use std::time::Duration;

use tenure_core::Board;

use super::{Need, Rig};
use crate::proxy::Way;
use crate::servers::connections;
use crate::{Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(rig: Rig) -> Verdict {
    let store = rig.connect(&rig.faulty);
    rig.within("a reading", store.read(&rig.seat)).await??;
    rig.faulty.delay(Way::Down, Duration::from_secs(2));
    let (slow, seat) = (store.clone(), rig.seat.clone());
    let answered = tokio::spawn(async move { slow.read(&seat).await });
    // These calls time out before any reply arrives.
    for _ in 0..4 {
        let call = async {
            match store.notes() {
                Some(notes) => notes.list_one(&Board::Candidates(rig.seat.clone())).await.map(drop),
                None => store.read(&rig.seat).await.map(drop),
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(200), call).await;
    }
    let answer = rig.within("the slow answer", answered).await?;
    let answer = answer.map_err(|error| Failure::new(format!("the slow call panicked: {error}")))?;
    if rig.server.waits_for_slow_answers() {
        answer?;
    }
    rig.faulty.pass();
    // The other connection may still be opening, and the next call closes one of the two.
    let most = rig.server.connections(1);
    rig.within("only connections in use are left", async {
        let mut settled = 0;
        while settled < 20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            store.read(&rig.seat).await?;
            settled = if connections(rig.faulty.address().port()) <= most { settled + 1 } else { 0 };
        }
        Ok::<_, Failure>(())
    })
    .await?
}
