//! Writes that run to their end, and reads that wait for them.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_core::{Answers, SeatName, StoreError};
use tokio::sync::watch;

use crate::lock;

/// The writes of a store that are in flight, by seat.
///
/// The engine drops a write that takes too long. Then it reads the seat, to find out whether the write took effect. The
/// answer is right only if the write cannot take effect after the read. That is so if both use one connection, whose server
/// processes them in order. Otherwise a dropped write may still be on its way, and the store runs its writes with
/// [`run`](Self::run) or [`run_alone`](Self::run_alone), and its reads with [`read`](Self::read).
///
/// Without this rule, an election that stops during its bid could read that its seat is free, and hold it afterwards.
#[derive(Debug, Default)]
pub struct PendingWrites(Mutex<HashMap<SeatName, Vec<Pending>>>);

/// Notices the end of a write: its task drops the sender.
type Pending = watch::Receiver<()>;

impl PendingWrites {
    /// Runs a write of these seats in a task that continues if this call is dropped. The write needs a time-out of its
    /// own, because reads wait for it.
    ///
    /// # Errors
    /// The error of the write, or that its outcome is unknown because its task panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        seats: impl IntoIterator<Item = SeatName>,
        write: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (running, pending) = watch::channel(());
        let task = tokio::spawn(async move {
            let result = write.await;
            drop(running);
            result
        });
        {
            let mut writes = lock(&self.0);
            writes.retain(|_, pending| {
                pending.retain(is_running);
                !pending.is_empty()
            });
            seats.into_iter().for_each(|seat| writes.entry(seat).or_default().push(pending.clone()));
        }
        task.await.unwrap_or_else(|_| Err(StoreError::unknown("the write was interrupted before its answer arrived")))
    }

    /// Runs a write like [`run`](Self::run), once no other write to the seat is pending. If this call is dropped before
    /// that, nothing is written. For servers that can process two writes of one client in any order.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run).
    pub async fn run_alone<T: Send + 'static>(
        &self,
        seat: &SeatName,
        write: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.settle(seat).await;
        self.run([seat.clone()], write).await
    }

    /// Reads seats with `read`, each after the writes to it that are pending now. The other seats do not wait for it: `read`
    /// is called for all of them first, and later for those whose writes have ended.
    ///
    /// # Errors
    /// The first error of `read`. It concerns the seats that have no answer.
    pub async fn read<T: 'static, F: Future<Output = Result<(), StoreError>>>(
        &self,
        seats: &[SeatName],
        to: &Answers<T>,
        read: impl Fn(Vec<SeatName>, Answers<T>) -> F,
    ) -> Result<(), StoreError> {
        if seats.iter().all(|seat| self.pending(seat).is_none()) {
            return read(seats.to_vec(), to.clone()).await;
        }
        let settled = seats.iter().enumerate().map(async |(place, seat)| {
            self.settle(seat).await;
            place
        });
        let groups = settled.collect::<FuturesUnordered<_>>().ready_chunks(seats.len());
        let reads = groups.map(|places| {
            let (part, to) = (places.iter().map(|place| seats[*place].clone()).collect(), to.clone());
            let place = move |at: usize| places.get(at).copied().unwrap_or(usize::MAX);
            read(part, Answers::new(move |at, answer| to.set(place(at), answer)))
        });
        let all = |all: Result<(), StoreError>, one| std::future::ready(all.and(one));
        reads.buffer_unordered(seats.len()).fold(Ok(()), all).await
    }

    /// Waits until no write to a seat is pending. For stores whose calls concern one seat each: wait before each read.
    pub async fn settle(&self, seat: &SeatName) {
        while let Some(mut pending) = self.pending(seat) {
            let _ = pending.changed().await;
        }
    }

    fn pending(&self, seat: &SeatName) -> Option<Pending> {
        lock(&self.0).get(seat)?.iter().find(|pending| is_running(pending)).cloned()
    }
}

fn is_running(pending: &Pending) -> bool {
    pending.has_changed().is_ok()
}

/// Limits the time of a write. When it is over, the outcome of the write is unknown. For writes that continue when their
/// call was dropped, because reads wait for them.
///
/// # Errors
/// The error of the write, or that the server did not answer in time.
pub async fn in_time<T>(limit: Duration, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::unknown("the server did not answer in time"));
    tokio::time::timeout(limit, write).await.unwrap_or_else(late)
}
