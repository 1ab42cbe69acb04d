//! The channel for the answers of a store.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use crate::StoreError;

/// Receives the answers to a call, one for each seat of the call.
///
/// The engine processes an answer immediately, so a slow seat does not delay the others. A seat without an answer when
/// the call returns gets the error of the call, or counts as [unknown](crate::Fault::Unknown) if the call returned
/// none. The engine ignores a second answer for a seat, an answer after the time-out, and an answer for a seat that is
/// not in the call.
pub struct Answers<T>(Arc<Put<T>>);

type Put<T> = dyn Fn(usize, Result<T, StoreError>) + Send + Sync;

impl<T> Answers<T> {
    /// Creates a channel that calls `put` for each answer, with the place of the seat in the call. For tests of stores.
    pub fn new(put: impl Fn(usize, Result<T, StoreError>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(put))
    }

    /// Creates a channel for a call about `count` seats: the first answer for each seat counts, and `too_much` is
    /// called for every other answer.
    pub(crate) fn each_once(
        count: usize,
        too_much: impl Fn() + Send + Sync + 'static,
        put: impl Fn(usize, Result<T, StoreError>) + Send + Sync + 'static,
    ) -> Self {
        let open: Box<[AtomicBool]> = (0..count).map(|_| AtomicBool::new(true)).collect();
        Self::new(move |place, answer| match open.get(place) {
            Some(open) if open.swap(false, Ordering::Relaxed) => put(place, answer),
            _ => too_much(),
        })
    }

    /// Answers for the seat at this place in the call. Never blocks.
    pub fn set(&self, place: usize, answer: Result<T, StoreError>) {
        (self.0)(place, answer);
    }
}

impl<T: Send + 'static> Answers<T> {
    /// Makes a call about one seat, and returns its answer.
    pub(crate) async fn one<F>(call: impl FnOnce(Self) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let (put, mut answer) = mpsc::unbounded_channel();
        let call = call(Self::new(move |_, answer| drop(put.send(answer))));
        let ended = tokio::select! {
            biased;
            Some(answer) = answer.recv() => return answer,
            ended = call => ended,
        };
        match (answer.try_recv(), ended) {
            (Ok(answer), _) => answer,
            (Err(_), Err(error)) => Err(error),
            (Err(_), Ok(())) => Err(StoreError::unknown(UNANSWERED)),
        }
    }
}

/// The error of a seat for which the store has not answered.
pub(crate) const UNANSWERED: &str = "the store left a seat without an answer, which is a bug in the store";

impl<T> Clone for Answers<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Answers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}
