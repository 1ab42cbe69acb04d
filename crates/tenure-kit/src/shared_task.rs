//! Tasks whose result several calls share.

use std::future::Future;
use std::sync::Mutex;

use tenure_core::StoreError;
use tokio::sync::watch;

use crate::lock;

/// A task whose result several calls share.
///
/// The engine drops calls that take too long. Work that such a call has started continues in a task of its own,
/// and the next call waits for the same result. All clones refer to the same task.
#[derive(Debug)]
pub struct SharedTask<T>(watch::Receiver<Option<Result<T, StoreError>>>);

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    /// Starts a task that runs to its end, even if no call waits for its result.
    pub fn start(work: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        let (sender, outcome) = watch::channel(None);
        tokio::spawn(async move {
            let _ = sender.send(Some(work.await));
        });
        Self(outcome)
    }

    /// Starts a task that is cancelled once all clones of this handle are dropped.
    pub fn start_while_wanted(work: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        let (sender, outcome) = watch::channel(None);
        tokio::spawn(async move {
            let result = tokio::select! {
                result = work => result,
                () = sender.closed() => return,
            };
            let _ = sender.send(Some(result));
        });
        Self(outcome)
    }

    /// Returns whether the task is still running. A task that panicked, or whose runtime is gone, is not.
    pub fn is_running(&self) -> bool {
        self.0.borrow().is_none() && self.0.has_changed().is_ok()
    }

    /// Returns the result, if the task has finished. Never waits.
    pub fn result(&self) -> Option<Result<T, StoreError>> {
        self.0.borrow().clone()
    }

    /// Waits for the result of the task.
    ///
    /// # Errors
    /// The task's own error, or `cut_off` if the task panicked or its runtime is gone.
    pub async fn wait(mut self, cut_off: StoreError) -> Result<T, StoreError> {
        let outcome = self.0.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or(Err(cut_off))
    }

    /// Returns whether both handles refer to the same task.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl<T> Clone for SharedTask<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Work that must succeed once before other calls, such as the check of a server before the first write.
#[derive(Debug, Default)]
pub struct Preparation(Mutex<Option<SharedTask<()>>>);

impl Preparation {
    /// Waits until the work has succeeded, and starts it if necessary.
    ///
    /// Cancel safe: the work continues if this call is dropped, and the next call waits for it. If it fails, the next call
    /// repeats it. So the work needs a time-out of its own.
    ///
    /// # Errors
    /// The error of the work.
    pub async fn done<F>(&self, work: impl FnOnce() -> F) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let task = {
            let mut task = lock(&self.0);
            task.take_if(|task| !task.is_running() && !matches!(task.result(), Some(Ok(()))));
            task.get_or_insert_with(|| SharedTask::start(work())).clone()
        };
        task.wait(StoreError::refused("the preparation of the store was aborted")).await
    }
}
