//! How a law was broken, in words.

use std::any::Any;
use std::fmt;

use tenure_core::{Ended, Error, StoreError};

/// What a law comes to.
pub type Verdict = Result<(), Failure>;

/// How a law was broken, in words that say what was expected and what was seen.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// What a panic said.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Self::new(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked without a word"))
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
        Self(format!("a call failed that should not ({:?}): {error}{cause}", error.fault()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("the election failed: {error}"))
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        Self(format!("the election ended, or its term did, too soon: {ended}"))
    }
}

/// Breaks the law with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($message)+)));
        }
    };
}

pub(crate) use ensure;
