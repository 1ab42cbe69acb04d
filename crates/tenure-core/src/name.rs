//! The names of elections.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// The name of an election, and so of its seat in the store.
///
/// Any text will do, with spaces, slashes and every script there is, as long as it is not empty,
/// not longer than [`SeatName::LONGEST`] bytes and free of control characters. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatName(Arc<str>);

impl SeatName {
    /// The most bytes that a name may have.
    pub const LONGEST: usize = 512;

    /// Checks a name.
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

    /// How many clones there are.
    #[cfg(test)]
    pub(crate) fn clones(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// The name as text.
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
    fn odd_names_are_fine_and_impossible_ones_are_refused_with_what_to_do() {
        for good in ["a", "jobs/nightly run", "выборы-选举", &"x".repeat(512)] {
            assert_eq!(SeatName::new(good).unwrap().as_str(), good);
        }
        let refused = |name: &str| SeatName::new(name).unwrap_err().to_string();
        assert!(refused("").contains("give the election a name"));
        assert!(refused(&"x".repeat(513)).contains("at most 512 bytes"));
        assert!(refused("a\nb").contains("control character"));
    }
}
