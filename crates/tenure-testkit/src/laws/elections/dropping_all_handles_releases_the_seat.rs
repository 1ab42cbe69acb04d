//! When every handle of an `Elections` is dropped, its elections stop in an orderly way, and the next candidate
//! does not have to wait until the seat expires.
//!
//! Protects from: an engine that keeps renewing although no handle is left.

use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("dropped");
    let one = bench.stand(&seat, "one")?;
    one.term().await;
    drop(one);
    let store = bench.connect();
    bench
        .until("the seat is released after every handle was dropped", || async {
            Ok(bench.read(&store, &seat).await?.record.is_vacant())
        })
        .await
}
