//! The result of a law.

use std::any::Any;
use std::fmt;

use tenure_core::{Ended, Error, StoreError};

/// The result of a law: `Ok`, or a description of how the store broke it.
pub type Verdict = Result<(), Failure>;

/// A broken law: a message that says what was expected and what happened instead.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl Failure {
    /// Creates a failure with this message, which is one line and starts with a lower-case letter.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Creates a failure with the message of a panic.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Self::new(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let cause = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        Self(format!("a call failed unexpectedly ({:?}): {error}{cause}", error.fault()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("the election failed: {error}"))
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        Self(format!("the election or its term ended too early: {ended}"))
    }
}

/// Returns a failure with this message unless the condition is true.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($message)+)));
        }
    };
}

pub(crate) use ensure;
