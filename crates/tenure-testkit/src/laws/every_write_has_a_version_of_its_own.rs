//! No two writes of a seat ever have the same version, not even two writes of the same content, with or without
//! another write in between. (Every write carries a new nonce, which a store without versions of its own can use.)
//!
//! Protects from: a bid that is based on a view of the seat from before another candidate held it.

use std::collections::BTreeSet;

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("versions");
    let store = bench.connect();
    let me = candidate("me");
    let mut versions = BTreeSet::new();
    let mut last = None;
    for record in [
        bench.vacant(1),
        bench.vacant(1),
        bench.held(&me, 2),
        bench.held(&me, 2),
        bench.vacant(1),
        bench.held(&me, 2),
        bench.vacant(1),
    ] {
        let version = bench.write(&store, &seat, last.as_ref(), &record).await?.version;
        ensure!(!versions.contains(&version), "two writes have the same version {:?}", version.as_str());
        for old in &versions {
            bench
                .lose(
                    "a swap on the version of an older write with the same content",
                    &store,
                    &seat,
                    Some(old),
                    &record,
                )
                .await?;
        }
        versions.insert(version.clone());
        last = Some(version);
    }
    if let Some(delete) = bench.subject.delete(&seat) {
        delete.await;
        // As every bid, this one has a token above the floor: one, if the store has none.
        let floor = bench.within("a reading", store.read(&seat)).await??.floor.get();
        let version = bench.write(&store, &seat, None, &bench.vacant(floor + 1)).await?.version;
        ensure!(
            !versions.contains(&version),
            "a seat that was deleted and written again has a version that it had before"
        );
    }
    Ok(())
}
