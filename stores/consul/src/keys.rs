//! The keys of the store.
//!
//! | key | value |
//! |---|---|
//! | `PREFIX/seats/NAME/seat` | the record of a seat; locked by the session of its holder |
//! | `PREFIX/seats/NAME/requests/KEY` | a request to its leader |
//! | `PREFIX/floors/NAME/floor` | the floor of its tokens |
//! | `PREFIX/candidates/NAME/KEY` | a candidate that stands for it |
//! | `PREFIX/processes/KEY` | a running process |
//! | `PREFIX/identity` | the identity of the data |
//! | `PREFIX/lives/IDENTITY` | exists while the data has this identity; every write requires it |
//!
//! Writes require the key of the identity because data with another identity can have the same indexes.
//!
//! In a name, every character but letters, digits, `-`, `_` and `.` is escaped, as in `%20`. So two names never
//! share a key, and no name is a prefix of another.

use tenure_core::{Board, SeatName};
use tenure_kit::url::{decoded, encoded};

/// The subject of a watched key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchedKey {
    /// The record of this seat.
    Seat(SeatName),
    /// A request to the leader of this seat.
    Request(SeatName),
}

/// Builds and parses the keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the prefix of all seats and requests. It has no slash at its end, so that a list of the keys
    /// directly below it has one line, however many seats exist.
    pub(crate) fn seats(&self) -> String {
        format!("{}/seats", self.prefix)
    }

    /// Returns the prefix of all watched keys of a seat.
    pub(crate) fn seat_folder(&self, seat: &SeatName) -> String {
        format!("{}/seats/{}/", self.prefix, escaped(seat.as_str()))
    }

    /// Returns the seat whose record this key has.
    pub(crate) fn seat_of(&self, key: &str) -> Option<SeatName> {
        match self.watched_key(key)? {
            WatchedKey::Seat(seat) => Some(seat),
            WatchedKey::Request(_) => None,
        }
    }

    /// Parses a watched key.
    pub(crate) fn watched_key(&self, key: &str) -> Option<WatchedKey> {
        let (name, rest) = key.strip_prefix(&self.seats())?.strip_prefix('/')?.split_once('/')?;
        let seat = SeatName::new(unescaped(name)?).ok()?;
        match rest {
            "seat" => Some(WatchedKey::Seat(seat)),
            rest if rest.starts_with("requests/") => Some(WatchedKey::Request(seat)),
            _ => None,
        }
    }

    pub(crate) fn seat(&self, seat: &SeatName) -> String {
        format!("{}seat", self.seat_folder(seat))
    }

    pub(crate) fn floor(&self, seat: &SeatName) -> String {
        format!("{}/floors/{}/floor", self.prefix, escaped(seat.as_str()))
    }

    /// Returns the prefix of the keys of all notes on a board.
    pub(crate) fn board(&self, board: &Board) -> String {
        match board {
            Board::Requests(seat) => format!("{}requests/", self.seat_folder(seat)),
            Board::Candidates(seat) => format!("{}/candidates/{}/", self.prefix, escaped(seat.as_str())),
            Board::Processes => format!("{}/processes/", self.prefix),
        }
    }

    pub(crate) fn note(&self, board: &Board, key: &str) -> String {
        format!("{}{}", self.board(board), escaped(key))
    }

    pub(crate) fn identity(&self) -> String {
        format!("{}/identity", self.prefix)
    }

    pub(crate) fn identity_marker(&self, identity: &str) -> String {
        format!("{}/lives/{}", self.prefix, escaped(identity))
    }
}

/// Escapes a name for use in a key.
pub(crate) fn escaped(name: &str) -> String {
    encoded(name, "-_.")
}

/// Escapes a key for use in a URL.
pub(crate) fn in_url(key: &str) -> String {
    encoded(key, "-_./~")
}

/// Reverses [`escaped`]; `None` if the escapes are not valid.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    decoded(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_keys_and_parsed_back() {
        let keys = Keys::new("tenure");
        let seat = |name: &str| keys.seat(&SeatName::new(name).unwrap());
        assert_eq!(seat("nightly-jobs"), "tenure/seats/nightly-jobs/seat");
        assert_eq!(seat("a/b c%"), "tenure/seats/a%2Fb%20c%25/seat");
        for name in ["a/b c%", "..", "выборы", "%2F"] {
            assert_eq!(unescaped(&escaped(name)).as_deref(), Some(name));
        }
        for name in ["nightly-jobs", "a/b c%", "seat"] {
            let name = SeatName::new(name).unwrap();
            assert_eq!(keys.watched_key(&keys.seat(&name)), Some(WatchedKey::Seat(name.clone())));
            assert_eq!(
                keys.watched_key(&keys.note(&Board::Requests(name.clone()), "a/b")),
                Some(WatchedKey::Request(name.clone()))
            );
        }
        for other in ["tenure/seats", "tenure/seats/a/seats", "tenure/identity", "other/seats/a/seat"] {
            assert_eq!(keys.watched_key(other), None, "{other}");
        }
        assert_eq!(in_url("a/b%20c"), "a/b%2520c");
        assert_eq!(unescaped("%4"), None);
    }
}
