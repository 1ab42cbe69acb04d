//! The threads that handlers run on.
//!
//! A job never waits for another running job: if no thread is idle, one more is started. Idle threads end after a
//! while, except one.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::Error;

/// How long an idle thread waits for a job before it ends, if it is not the last one.
const KEEP: Duration = Duration::from_secs(10);

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The threads that handlers run on. They end when all clones of this are dropped and all jobs are done.
#[derive(Clone)]
pub(crate) struct HandlerThreads(Arc<Closer>);

struct Closer(Arc<Pool>);

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl HandlerThreads {
    /// Starts the first thread, so that jobs run even if no other thread can be started later.
    pub(crate) fn start() -> Result<Self, Error> {
        let pool = Arc::new(Pool::default());
        pool.lock().threads = 1;
        spawn(&pool).map_err(|error| Error::Engine(error.to_string()))?;
        Ok(Self(Arc::new(Closer(pool))))
    }

    /// Runs a job at once, unless no thread is idle and none can be started. Never blocks.
    pub(super) fn run(&self, job: Job) {
        let pool = &self.0.0;
        let mut state = pool.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            return pool.changed.notify_one();
        }
        state.threads += 1;
        drop(state);
        if spawn(pool).is_err() {
            // The job waits for a busy thread.
            pool.lock().threads -= 1;
        }
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Pool {
    /// Runs jobs until the pool is closed, or there has been no job for a while.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.lock();
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout_while(state, KEEP, |state| state.jobs.is_empty() && !state.closed);
            let timed_out;
            (state, timed_out) = waited.map(|(s, t)| (s, t.timed_out())).unwrap_or_else(|poisoned| {
                let (state, timeout) = poisoned.into_inner();
                (state, timeout.timed_out())
            });
            state.idle -= 1;
            if timed_out && state.jobs.is_empty() && state.threads > 1 {
                break;
            }
        }
        state.threads -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn spawn(pool: &Arc<Pool>) -> std::io::Result<()> {
    let pool = pool.clone();
    std::thread::Builder::new().name("tenure-handlers".to_owned()).spawn(move || pool.work()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_job_does_not_wait_for_another_job_that_blocks() {
        let threads = HandlerThreads::start().unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        threads.run(Box::new(move || _ = blocked.recv()));
        for job in 0..3 {
            let done = done.clone();
            threads.run(Box::new(move || done.send(job).unwrap()));
            assert_eq!(is_done.recv(), Ok(job));
        }
        drop(release);
    }

    #[test]
    fn waiting_jobs_run_after_the_last_handle_was_dropped() {
        let threads = HandlerThreads::start().unwrap();
        let (done, is_done) = mpsc::channel();
        for job in 0..10 {
            let done = done.clone();
            threads.run(Box::new(move || done.send(job).unwrap()));
        }
        drop((threads, done));
        let mut jobs: Vec<_> = is_done.iter().collect();
        jobs.sort_unstable();
        assert_eq!(jobs, (0..10).collect::<Vec<_>>());
    }
}
