//! The failure of a command: one line that says what to do, and an exit code.

use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;

use tenure::{ConfigError, Error, StoreError};

/// The exit code for bad usage, and for every question that a command cannot answer.
pub(crate) const FAILED: u8 = 2;

/// The reason why a command failed or ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: FAILED }
    }

    /// The reader of standard output has gone. This ends the command without a message and with exit code 0.
    pub(crate) fn reader_gone() -> Self {
        Self { message: String::new(), code: 0 }
    }

    /// Turns the error of the command-line parser into one line that says what to type instead.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        Self::new(crate::args::answer(error, &words))
    }

    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Returns whether there is a message to print.
    pub(crate) fn has_message(&self) -> bool {
        !self.message.is_empty()
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Always one line, also if the message of a store has several.
        for (at, line) in self.message.lines().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { " " }, line.trim())?;
        }
        Ok(())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // Only with -v: the message says what to do, and most people need no more.
        if let Some(detail) = error.detail() {
            tracing::info!(detail, "the reason for the error");
        }
        Self::new(error_words(&error))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Formats an error together with its causes, in one line.
pub(crate) fn error_words(error: &Error) -> String {
    error.store_error().map_or_else(|| error.to_string(), |error| store_error(error))
}

/// Formats an error of a store together with its causes.
pub(crate) fn store_error(error: &StoreError) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Some errors both print their cause and return it.
        let text = cause.to_string();
        if !message.contains(&text) {
            message += &format!(": {text}");
        }
        source = cause.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_printed_in_one_line() {
        assert_eq!(Failure::new("first\n  second").to_string(), "first second");
    }

    #[test]
    fn a_store_error_is_printed_with_its_causes() {
        let error = StoreError::denied("cannot open the database").because(std::io::Error::other("no permission"));
        assert_eq!(store_error(&error), "cannot open the database: no permission");
    }
}
