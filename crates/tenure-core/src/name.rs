//! The names of elections.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// The name of an election, and of its seat in the store.
///
/// Any text is valid, with spaces, slashes and all scripts, if it is not empty, not longer than [`SeatName::LONGEST`]
/// bytes and has no control characters. It is cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatName(Arc<str>);

impl SeatName {
    /// The longest valid name, in bytes of UTF-8.
    pub const LONGEST: usize = 512;

    /// Creates a name from text that it checks.
    ///
    /// # Errors
    /// [`Error::BadName`] if the text is empty, too long or has control characters.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        let problem = if name.is_empty() {
            "is empty: give the election a name"
        } else if name.len() > Self::LONGEST {
            "is too long: use at most 512 bytes"
        } else if name.chars().any(char::is_control) {
            "has a control character in it: use printable text"
        } else {
            return Ok(Self(name.into()));
        };
        let mut shown: String = name.chars().take(40).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        Err(Error::BadName { name: shown, problem })
    }

    /// Returns the number of clones.
    #[cfg(test)]
    pub(crate) fn clones(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Returns the name as text that shares its memory.
    #[cfg(feature = "metrics")]
    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Returns the name as text, exactly as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SeatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_names_are_valid_and_invalid_names_are_refused_with_advice() {
        for good in ["a", "jobs/nightly run", "выборы-选举", &"x".repeat(512)] {
            assert_eq!(SeatName::new(good).unwrap().as_str(), good);
        }
        let refused = |name: &str| SeatName::new(name).unwrap_err().to_string();
        assert!(refused("").contains("give the election a name"));
        assert!(refused(&"x".repeat(513)).contains("at most 512 bytes"));
        assert!(refused("a\nb").contains("control character"));
    }
}
