//! The content of a version: which write it was, in which data, and on which session the seat is held.

use std::fmt::Display;
use std::str::FromStr;

use tenure_core::{Record, Version};

/// The parts of a version. As text, each part is followed by a slash, and `-` stands for no session:
/// `write/identity/session/`. So no version is the beginning of another one: if the session were the end of the text, a
/// digit more could be the number of another session.
///
/// Each part is a type that a text can be parsed into: a number, or a `String` without a slash. A store names its types
/// once: `type VersionParts = tenure_kit::VersionParts<u64, String, String>`.
///
/// ```
/// use tenure_core::Version;
/// use tenure_kit::VersionParts;
///
/// let parts = VersionParts { write: 7_u64, identity: "c0ffee".to_owned(), session: Some(3_i64) };
/// assert_eq!(parts.version(), Version::new("7/c0ffee/3/"));
/// assert_eq!(VersionParts::parse(&parts.version()), Some(parts));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionParts<W, I, S> {
    /// The write, by a mark that no other write of the data has: a revision, or the nonce of a record.
    pub write: W,
    /// The identity of the data that the version was read from.
    pub identity: I,
    /// The session that the seat has been held on since this write, if it is held on one.
    pub session: Option<S>,
}

impl<W: Display + FromStr, I: Display + FromStr, S: Display + FromStr> VersionParts<W, I, S> {
    /// Returns the version that the engine sees.
    pub fn version(&self) -> Version {
        let Self { write, identity, session } = self;
        Version::new(match session {
            None => format!("{write}/{identity}/-/"),
            Some(session) => format!("{write}/{identity}/{session}/"),
        })
    }

    /// Parses a version. Returns `None` if it does not have the exact form of [`version`](Self::version), or a part of
    /// it is empty: then no seat ever had it, and the answer to a write that expects it is `Lost`.
    pub fn parse(version: &Version) -> Option<Self> {
        fn part<T: FromStr>(text: &str) -> Option<T> {
            text.parse().ok().filter(|_| !text.is_empty())
        }
        let mut texts = version.as_str().split('/');
        let (write, identity) = (part(texts.next()?)?, part(texts.next()?)?);
        let session = match texts.next()? {
            "-" => None,
            text => Some(part(text)?),
        };
        let parts = Self { write, identity, session };
        (parts.version() == *version).then_some(parts)
    }
}

/// Returns the nonce of a record as sixteen hexadecimal digits. For stores that identify a write by its nonce.
pub fn nonce_of(record: &Record) -> String {
    format!("{:016x}", record.nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = VersionParts<u64, String, i64>;

    #[test]
    fn a_version_is_parsed_only_in_its_exact_form() {
        for session in [None, Some(7), Some(i64::MAX), Some(i64::MIN)] {
            let parts = Parts { write: 25, identity: "7708".to_owned(), session };
            let version = parts.version();
            assert_eq!(Parts::parse(&version), Some(parts));
            for end in 0..version.as_str().len() {
                let shorter = &version.as_str()[..end];
                assert_eq!(Parts::parse(&Version::new(shorter)), None, "{shorter}");
            }
            for more in ["0", "-", "/", "0/", "-/", "x"] {
                let longer = format!("{}{more}", version.as_str());
                assert_eq!(Parts::parse(&Version::new(&*longer)), None, "{longer}");
            }
        }
        for text in ["x/a/-/", "/a/-/", "1//-/", "1/a//", "1/a/x/", "01/a/-/", "+1/a/-/", "1/a/07/", "1/a/7/8/"] {
            assert_eq!(Parts::parse(&Version::new(text)), None, "{text}");
        }
    }

    #[test]
    fn a_part_that_contains_a_slash_is_never_taken_for_another_version() {
        let odd = VersionParts { write: "a".to_owned(), identity: "b/c".to_owned(), session: Some("d".to_owned()) };
        assert_eq!(VersionParts::<String, String, String>::parse(&odd.version()), None);
    }
}
