//! Why a command failed: one line that says what to do, and an exit code.

use std::error::Error as _;
use std::fmt;

use tenure::{ConnectError, Error, StoreError};

use crate::mask::mask;

/// The exit code for bad usage, and for everything that could not be found out.
pub(crate) const CANNOT_TELL: u8 = 2;

/// Why a command failed, or ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: CANNOT_TELL }
    }

    /// Whoever was reading has stopped, and wants no more: no failure, but the end.
    pub(crate) fn nobody_reads() -> Self {
        Self { message: String::new(), code: 0 }
    }

    /// From what the parser of the command line has to say, at length.
    pub(crate) fn usage(said: &str) -> Self {
        let said = said.split("\n\nUsage:").next().and_then(|said| said.split("\n\nFor more").next()).unwrap_or(said);
        // A URL in the wrong place is repeated by the parser.
        let shown = |word: &str| if word.contains("://") { mask(word) } else { word.to_owned() };
        let words: Vec<String> = said.trim_start_matches("error: ").split_whitespace().map(shown).collect();
        let said = words.join(" ").replace(" tip: ", "; ");
        Self::new(format!("{}: see `tenure help` or --help", said.trim_end_matches(['.', ':'])))
    }

    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Whether there is something to say about it.
    pub(crate) fn is_told(&self) -> bool {
        !self.message.is_empty()
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever others have put into it.
        for (at, line) in self.message.lines().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { " " }, line.trim())?;
        }
        Ok(())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => Self::new(store_error(&error)),
            error => Self::new(error.to_string()),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// What a store said, with what it said it was caused by.
pub(crate) fn store_error(error: &StoreError) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Some errors print their cause as well as returning it.
        let cause_says = cause.to_string();
        if !message.contains(&cause_says) {
            message += &format!(": {cause_says}");
        }
        source = cause.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_in_one_line() {
        assert_eq!(Failure::new("first\n  second").to_string(), "first second");
    }

    #[test]
    fn a_store_error_tells_its_causes() {
        let error = StoreError::denied("cannot open the database").because(std::io::Error::other("no permission"));
        assert_eq!(store_error(&error), "cannot open the database: no permission");
    }
}
