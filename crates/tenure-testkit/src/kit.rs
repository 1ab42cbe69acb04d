//! Runs the laws as tests.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Bench, Failure, Law, Subject, Verdict, laws};

/// Holds one store to every law, and ends the process with the outcome: all that `main` of a
/// store's `tests/conformance.rs` has to do.
pub fn conformance(subject: impl Subject) {
    let name = subject.open().as_ref().promises().store;
    Kit::new().subject(name, subject).run();
}

/// Holds several subjects to every law in one program, such as the modes of a store.
#[derive(Default)]
pub struct Kit {
    subjects: Vec<(String, Arc<dyn Subject>)>,
}

impl Kit {
    /// Without subjects yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a subject. Its name comes before those of the laws.
    #[must_use]
    pub fn subject(mut self, name: impl Into<String>, subject: impl Subject) -> Self {
        self.subjects.push((name.into(), Arc::new(subject)));
        self
    }

    /// The tests, one for each law and subject.
    pub fn trials(&self) -> Vec<Trial> {
        self.subjects
            .iter()
            .flat_map(|(name, subject)| laws::all().into_iter().map(move |law| trial(name, subject.clone(), law)))
            .collect()
    }

    /// Runs the tests that the arguments of this process ask for, and ends it with the outcome.
    /// Subjects are dropped before that, so they can clear away what they have made.
    pub fn run(self) {
        let mut arguments = Arguments::from_args();
        // Laws mostly wait, so more of them can run at once than there are cores.
        arguments.test_threads.get_or_insert(AT_ONCE);
        let conclusion = libtest_mimic::run(&arguments, self.trials());
        drop(self);
        conclusion.exit();
    }
}

const AT_ONCE: usize = 12;

impl std::fmt::Debug for Kit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.subjects.iter().map(|(name, _)| name)).finish()
    }
}

fn trial(name: &str, subject: Arc<dyn Subject>, law: Law) -> Trial {
    match law.does_not_apply(&*subject) {
        // Listed all the same: what a store is not held to should be seen.
        Some(why) => Trial::test(format!("{name}::{}::does_not_apply_as_{why}", law.name), || Ok(())),
        None => Trial::test(format!("{name}::{}", law.name), move || {
            check(law, subject).map_err(|f| Failed::from(f.to_string()))
        }),
    }
}

/// Holds a subject to a law, on a runtime of its own.
pub(crate) fn check(law: Law, subject: Arc<dyn Subject>) -> Verdict {
    // Every wait in a law has a deadline of its own; this one is for calls that never return.
    let longest = subject.patience() * 6;
    judge(longest, law.check(Bench::new(subject)))
}

/// Comes to a verdict on a runtime made for it, within this time. A panic is a failure, too: candidates panic when
/// they wait in vain.
pub(crate) fn judge(longest: Duration, check: impl Future<Output = Verdict>) -> Verdict {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    let verdict = runtime.block_on(async {
        let check = AssertUnwindSafe(check).catch_unwind();
        match tokio::time::timeout(longest, check).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => Err(Failure::of_panic(&*panic)),
            Err(_) => {
                Err(Failure::new(format!("it did not come to an end within {longest:?}: some call never returns")))
            }
        }
    });
    // Work that does not return must not keep the test from ending.
    runtime.shutdown_timeout(Duration::from_millis(100));
    verdict
}

impl Law {
    /// Holds a subject to the law, on a runtime made for it.
    ///
    /// # Errors
    /// How the law was broken.
    pub fn check_on(&self, subject: Arc<dyn Subject>) -> Verdict {
        check(*self, subject)
    }
}
