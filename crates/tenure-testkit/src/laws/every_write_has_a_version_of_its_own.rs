//! No two writes of a seat ever have the same version, also if they say the same, and also if one
//! says again what one before the last has said. (Every write carries a new nonce, which a store
//! without versions of its own may use.)
//!
//! Protects from: a bid based on a sight of the seat from before another has held it.

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
            bench.lose("a swap on the version of an older write that said the same", &store, &seat, Some(old), &record).await?;
        }
        versions.insert(version.clone());
        last = Some(version);
    }
    if let Some(delete) = bench.subject.delete(&seat) {
        delete.await;
        let version = bench.write(&store, &seat, None, &bench.vacant(1)).await?.version;
        ensure!(!versions.contains(&version), "a seat that was deleted and written anew has a version that it had before");
    }
    Ok(())
}
