//! A swap that expects another version than the seat has is lost, and changes nothing: an older
//! version, one that never was, none where there is a seat, or one where there is none.
//!
//! Protects from: writes without a condition, and servers that ignore it, with which two take over
//! one lapsed seat.

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
    ensure!(reading.seat.is_none(), "a lost swap has made a seat: {:?}", reading.seat);

    let current = bench.write(&store, &seat, Some(&stale), &bench.held(&me, 2)).await?.version;
    let before = bench.read(&store, &seat).await?;
    // Both from the same connection, which a session would not be in the way of, and from another.
    for store in [store, bench.connect()] {
        let never = Version::new(format!("{}0", current.as_str()));
        bench.lose("a swap on an older version", &store, &seat, Some(&stale), &steal).await?;
        bench.lose("a swap on a version that never was", &store, &seat, Some(&never), &steal).await?;
        bench.lose("a swap that expects no seat where there is one", &store, &seat, None, &steal).await?;
        let after = bench.read(&store, &seat).await?;
        ensure!(
            (&after.record, &after.version) == (&before.record, &before.version),
            "a lost swap has changed the seat from {before:?} to {after:?}"
        );
    }
    Ok(())
}
