//! Without a server, or without permission, every call returns an error that says whether the call took effect. It
//! does not report a vacant seat, a lost swap or an empty list, and it does not panic. A watch does not panic, either.
//!
//! Protects from: errors that look like "not the leader" forever.

use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tenure_core::{Board, Clock, Fault, Seen, SingleSeat, StoreError, Version};

use crate::bench::{Connection, candidate};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Broken];

pub(super) async fn check(bench: Bench) -> Verdict {
    let Some(store) = bench.subject.broken().map(SingleSeat::new) else { return Ok(()) };
    let store: Connection = Arc::new(store);
    store.attach(&Clock::system());
    let seat = bench.seat("broken");
    let held = bench.held(&candidate("me"), 1);
    let version = Version::new("1");

    let read = fails(&bench, "a read", store.read(&seat)).await?;
    ensure!(read.to_string() != "", "the error of a read has no message");
    let swap = fails(&bench, "a swap", store.swap(&seat, None, &held)).await?;
    let renewal = fails(&bench, "a renewal", store.renew(&seat, &version, &held)).await?;
    for error in [&swap, &renewal] {
        ensure!(
            read.fault() != Fault::Denied || error.fault() != Fault::Refused,
            "a read is denied, but a write is only refused, so that it is retried: {error}"
        );
    }
    if let Some(notes) = store.notes() {
        fails(&bench, "a list of notes", notes.list_one(&Board::Requests(seat.clone()))).await?;
    }
    fails(&bench, "a list of seats", store.list_seats()).await?;
    let seen = Seen { seat: None, requests: false };
    let watch = AssertUnwindSafe(store.changed(&seat, &seen)).catch_unwind();
    // The watch may resolve, because it is not served, or wait.
    let watched = tokio::time::timeout(bench.lease() / 4, watch).await;
    ensure!(!matches!(watched, Ok(Err(_))), "a watch panicked");
    Ok(())
}

async fn fails<T: std::fmt::Debug>(
    bench: &Bench,
    what: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<StoreError, Failure> {
    let answer =
        bench.within(&format!("{what} on a broken connection fails"), AssertUnwindSafe(call).catch_unwind()).await?;
    match answer {
        Err(_) => Err(Failure::new(format!("{what} on a broken connection panicked"))),
        Ok(Ok(answer)) => Err(Failure::new(format!("{what} on a broken connection was answered with {answer:?}"))),
        Ok(Err(error)) => Ok(error),
    }
}
