//! A task whose result several calls share.

use std::future::Future;

use tenure_core::StoreError;
use tokio::sync::watch;

/// A task whose result several calls share.
///
/// The engine drops calls that take too long. What a call has begun goes on all the same, in a task of its own, and the
/// next call waits for the same result. Clones are of the same task.
#[derive(Debug)]
pub struct SharedTask<T>(watch::Receiver<Option<Result<T, StoreError>>>);

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    /// Starts a task that runs to its end, also if nobody waits for its result.
    pub fn start(work: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        let (tell, outcome) = watch::channel(None);
        tokio::spawn(async move {
            let _ = tell.send(Some(work.await));
        });
        Self(outcome)
    }

    /// Starts a task that ends early once all clones of this are dropped.
    pub fn start_while_wanted(work: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        let (tell, outcome) = watch::channel(None);
        tokio::spawn(async move {
            let result = tokio::select! {
                result = work => result,
                () = tell.closed() => return,
            };
            let _ = tell.send(Some(result));
        });
        Self(outcome)
    }

    /// Whether the task is still running. A task that panicked, or whose runtime is gone, is not.
    pub fn is_running(&self) -> bool {
        self.0.borrow().is_none() && self.0.has_changed().is_ok()
    }

    /// The result, if there is one already.
    pub fn result(&self) -> Option<Result<T, StoreError>> {
        self.0.borrow().clone()
    }

    /// Waits for the result. `cut_off` is returned if the task panicked or its runtime is gone.
    ///
    /// # Errors
    /// The task's own, or `cut_off`.
    pub async fn wait(mut self, cut_off: StoreError) -> Result<T, StoreError> {
        let outcome = self.0.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or(Err(cut_off))
    }

    /// Whether both are of the same task.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl<T> Clone for SharedTask<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
