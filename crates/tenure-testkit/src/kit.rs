//! Runs the laws as the tests of a program.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Bench, Failure, Law, Subject, Verdict, faults, laws};

/// Checks one store against every law, and exits the process with the result. This is all that `main` of a store's
/// `tests/conformance.rs` has to call.
pub fn conformance(subject: impl Subject) {
    let name = subject.open().as_ref().promises().store;
    Kit::new().subject(name, subject).run();
}

/// Checks several subjects, such as the modes of a store, against every law in one program.
#[derive(Default)]
pub struct Kit {
    subjects: Vec<(String, Arc<dyn Subject>)>,
    tests: Vec<(String, Arc<dyn Fn() + Send + Sync>)>,
    threads: Option<usize>,
}

impl Kit {
    /// Creates a kit without subjects. Add them with [`Kit::subject`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a subject. Its name is the prefix of its tests: `name::law`.
    #[must_use]
    pub fn subject(mut self, name: impl Into<String>, subject: impl Subject) -> Self {
        self.subjects.push((name.into(), Arc::new(subject)));
        self
    }

    /// Adds a test of the store's own, which panics if it fails. For slow stores: all tests of a kit run concurrently.
    #[must_use]
    pub fn test(mut self, name: impl Into<String>, test: impl Fn() + Send + Sync + 'static) -> Self {
        self.tests.push((name.into(), Arc::new(test)));
        self
    }

    /// Adds each law about networks and servers that fail as a test. In contrast to [`faults!`](crate::faults!), they run
    /// concurrently with all tests of the kit. For slow stores.
    #[must_use]
    pub fn faults<S: faults::Server>(self) -> Self {
        let laws = faults::all().into_iter();
        laws.fold(self, |kit, law| kit.test(format!("faults::{}", law.name), move || faults::hold::<S>(law.name)))
    }

    /// Runs this many tests concurrently. The default is enough for stores with short leases.
    #[must_use]
    pub fn concurrently(mut self, tests: usize) -> Self {
        self.threads = Some(tests);
        self
    }

    /// Returns the tests, one for each subject and law, for a program that adds tests of its own.
    pub fn trials(&self) -> Vec<Trial> {
        let laws = self
            .subjects
            .iter()
            .flat_map(|(name, subject)| laws::all().into_iter().map(move |law| trial(name, subject.clone(), law)));
        let tests = self.tests.iter().cloned().map(|(name, test)| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
        });
        // Tests of a store are slower than most laws, so they begin first.
        tests.chain(laws).collect()
    }

    /// Runs the tests that the arguments of this process select, and exits the process with the result. Subjects are
    /// dropped before the exit, so that they can clean up.
    pub fn run(self) {
        let mut arguments = Arguments::from_args();
        // Laws mostly wait, so more of them can run concurrently than there are cores.
        arguments.test_threads.get_or_insert(self.threads.unwrap_or(CONCURRENT_LAWS));
        let conclusion = libtest_mimic::run(&arguments, self.trials());
        drop(self);
        conclusion.exit();
    }
}

const CONCURRENT_LAWS: usize = 12;

impl std::fmt::Debug for Kit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.subjects.iter().map(|(name, _)| name)).finish()
    }
}

fn trial(name: &str, subject: Arc<dyn Subject>, law: Law) -> Trial {
    match law.does_not_apply(&*subject) {
        // It is still listed, so that readers see which laws do not apply to the store.
        Some(why) => Trial::test(format!("{name}::{}::does_not_apply_as_{why}", law.name), || Ok(())),
        None => Trial::test(format!("{name}::{}", law.name), move || {
            check(law, subject).map_err(|f| Failed::from(f.to_string()))
        }),
    }
}

/// Checks a subject against a law, on a runtime of its own.
pub(crate) fn check(law: Law, subject: Arc<dyn Subject>) -> Verdict {
    // Every wait in a law has a time-out of its own. This one is for calls that never return.
    let timeout = subject.patience() * 6;
    run_check(timeout, law.check(Bench::new(subject)))
}

/// Runs a check on a runtime of its own, with a time-out. A panic is a failure, too: candidates panic when a wait times
/// out.
pub(crate) fn run_check(timeout: Duration, check: impl Future<Output = Verdict>) -> Verdict {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start a tokio runtime: {error}")))?;
    let verdict = runtime.block_on(async {
        let check = AssertUnwindSafe(check).catch_unwind();
        match tokio::time::timeout(timeout, check).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => Err(Failure::of_panic(&*panic)),
            Err(_) => Err(Failure::new(format!("the law did not finish within {timeout:?}: a call never returns"))),
        }
    });
    // Work that does not return must not delay the end of the test.
    runtime.shutdown_timeout(Duration::from_millis(100));
    verdict
}

impl Law {
    /// Checks a subject against the law, on a tokio runtime of its own. Blocks the thread until the check has finished.
    ///
    /// # Errors
    /// If the store breaks the law: what was expected, and what happened instead.
    pub fn check_on(&self, subject: Arc<dyn Subject>) -> Verdict {
        check(*self, subject)
    }
}
