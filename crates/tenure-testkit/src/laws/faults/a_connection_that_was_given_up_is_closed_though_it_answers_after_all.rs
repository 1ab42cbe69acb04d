//! Calls that are given up on a slow connection make a store open another one. When the slow one answers after all, a
//! call that still waits on it has its answer, where the store waits for it, and one of the two connections is closed.
//!
//! Protects from: connections that nobody uses and nobody closes.

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
    // Given up before anything comes back.
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
    // The other connection may take a moment until it is open, and is closed by whatever is asked next.
    let most = rig.server.connections(1);
    rig.within("that only the connections that are used are left", async {
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
