//! When every handle of an `Elections` is gone, what runs there is stopped in good order, and the
//! next candidate need not wait for a lapse.
//!
//! Protects from: an engine that goes on renewing for nobody.

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
        .until("that the seat is given up once every handle is gone", || async {
            Ok(bench.read(&store, &seat).await?.record.is_vacant())
        })
        .await
}
