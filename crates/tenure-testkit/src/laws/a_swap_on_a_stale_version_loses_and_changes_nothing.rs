//! A swap is lost and changes nothing if the seat does not have the expected version: if the swap expects an older
//! version, a version that never existed, no seat where there is one, or a seat where there is none.
//!
//! Protects from: writes without a condition, and servers that ignore the condition. With these, two candidates
//! take over one expired seat.

use tenure_core::Version;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("stale");
    let store = bench.connect();
    let (me, thief) = (candidate("me"), candidate("thief"));
    let steal = bench.held(&thief, 9);

    let stale = bench.write(&store, &seat, None, &bench.vacant(1)).await?.version;
    let empty = bench.seat("empty");
    bench.lose("a swap that expects a version where there is no seat", &store, &empty, Some(&stale), &steal).await?;
    let reading = bench.within("a reading", store.read(&empty)).await??;
    ensure!(reading.seat.is_none(), "a lost swap has created a seat: {:?}", reading.seat);

    let current = bench.write(&store, &seat, Some(&stale), &bench.held(&me, 2)).await?.version;
    let before = bench.read(&store, &seat).await?;
    // From the holder's connection, whose session does not prevent the swap, and from another one.
    for store in [store, bench.connect()] {
        let never = Version::new(format!("{}0", current.as_str()));
        bench.lose("a swap on an older version", &store, &seat, Some(&stale), &steal).await?;
        bench.lose("a swap on a version that never existed", &store, &seat, Some(&never), &steal).await?;
        bench.lose("a swap that expects no seat where there is one", &store, &seat, None, &steal).await?;
        let after = bench.read(&store, &seat).await?;
        ensure!(
            (&after.record, &after.version) == (&before.record, &before.version),
            "a lost swap has changed the seat from {before:?} to {after:?}"
        );
    }
    Ok(())
}
