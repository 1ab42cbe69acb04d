//! Where a store puts its answers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use crate::StoreError;

/// Takes the answers to a call, one for each seat in it.
///
/// An answer counts at once, whatever the rest of the call is waiting for, so a slow seat holds up no other. What
/// has no answer when the call returns is told the call's own error, or counts as [unknown](crate::Fault::Unknown)
/// if there was none. A second answer, and one that is too late or to a seat that is not in the call, is ignored.
pub struct Answers<T>(Arc<Put<T>>);

type Put<T> = dyn Fn(usize, Result<T, StoreError>) + Send + Sync;

impl<T> Answers<T> {
    /// Hands each answer to this, with the place of its seat in the call.
    pub fn new(put: impl Fn(usize, Result<T, StoreError>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(put))
    }

    /// The same for a call about so many seats: only the first answer for each counts, and `too_much` is called for every
    /// other.
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

    /// Answers for the seat at this place in the call.
    pub fn set(&self, place: usize, answer: Result<T, StoreError>) {
        (self.0)(place, answer);
    }
}

impl<T: Send + 'static> Answers<T> {
    /// Makes a call about one seat, and waits for its answer.
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

/// What is said of a seat that a store has not answered for.
pub(crate) const UNANSWERED: &str = "the store has left a seat without an answer, which is a bug in it";

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
