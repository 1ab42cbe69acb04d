//! The keys of the store.
//!
//! | key | value | removed |
//! |---|---|---|
//! | `tenure/seats/NAME` | the seat: its session, then the record | never |
//! | `tenure/live/LEASE` | empty; exists while the session of a process is alive | with the session's lease |
//! | `tenure/requests/NAME/KEY` | a request to the leader | with a lease of its own |
//! | `tenure/candidates/NAME/KEY` | a candidate that stands | with a lease of its own |
//! | `tenure/attending/KEY` | a running process | with a lease of its own |
//! | `tenure/floors/NAME` | the floor of a seat's tokens, if the seat was removed or had tokens above the revision of the data | never |
//!
//! The first three are watched. Their names are chosen so that one range, from `live/` to `seats/`, holds them
//! alone.

use std::borrow::Cow;

use tenure_core::{Board, SeatName};

/// Builds and parses the keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// The subject of a key in the watched range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchedKey {
    Seat(SeatName),
    /// A request to the leader of this seat.
    Request(SeatName),
    Live(i64),
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn seat(&self, seat: &SeatName) -> String {
        self.seats() + seat.as_str()
    }

    /// Returns the prefix of the keys of all seats.
    pub(crate) fn seats(&self) -> String {
        format!("{}/seats/", self.prefix)
    }

    pub(crate) fn floor(&self, seat: &SeatName) -> String {
        format!("{}/floors/{}", self.prefix, seat.as_str())
    }

    pub(crate) fn live(&self, lease: i64) -> String {
        format!("{}/live/{lease:016x}", self.prefix)
    }

    /// Returns the prefix of the keys of all notes on a board.
    pub(crate) fn board(&self, board: &Board) -> String {
        // Keys under "processes" would be in the watched range.
        let Some(seat) = board.seat() else { return format!("{}/attending/", self.prefix) };
        // A slash ends the name of the seat, so it is escaped.
        let name = seat.as_str();
        let name = if name.contains(['/', '%']) {
            Cow::Owned(name.replace('%', "%25").replace('/', "%2F"))
        } else {
            Cow::Borrowed(name)
        };
        format!("{}/{}/{name}/", self.prefix, board.kind())
    }

    /// Returns the watched range: its first key, and the key after its last.
    pub(crate) fn watched(&self) -> (String, String) {
        (format!("{}/live/", self.prefix), format!("{}/seats0", self.prefix))
    }

    pub(crate) fn watched_key(&self, key: &str) -> Option<WatchedKey> {
        let (kind, rest) = key.strip_prefix(&self.prefix)?.strip_prefix('/')?.split_once('/')?;
        match kind {
            "seats" => SeatName::new(rest).ok().map(WatchedKey::Seat),
            "live" => i64::from_str_radix(rest, 16).ok().map(WatchedKey::Live),
            "requests" => {
                let (name, _) = rest.split_once('/')?;
                SeatName::new(name.replace("%2F", "/").replace("%25", "%")).ok().map(WatchedKey::Request)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_parses_to_the_subject_it_was_built_for() {
        let keys = Keys::new("a/b");
        for name in ["jobs", "team/jobs", "100 %/x", "/", "%2F", "%252F/%25"] {
            let seat = SeatName::new(name).unwrap();
            let board = keys.board(&Board::Requests(seat.clone()));
            assert_eq!(keys.watched_key(&keys.seat(&seat)), Some(WatchedKey::Seat(seat.clone())));
            assert_eq!(keys.watched_key(&format!("{board}k/e/y")), Some(WatchedKey::Request(seat)));
        }
        assert_eq!(keys.watched_key(&keys.live(0x1234)), Some(WatchedKey::Live(0x1234)));
        assert_eq!(keys.watched_key("a/other"), None);
    }

    #[test]
    fn the_watched_range_has_seats_sessions_and_requests_alone() {
        let (keys, seat) = (Keys::new("tenure"), SeatName::new("\u{10FFFF}").unwrap());
        let (from, to) = keys.watched();
        let is_watched = |key: &str| key >= from.as_str() && key < to.as_str();
        for key in [keys.seat(&seat), keys.live(i64::MAX), keys.board(&Board::Requests(seat.clone()))] {
            assert!(is_watched(&key), "{key}");
        }
        let boards = [Board::Processes, Board::Candidates(seat.clone())].map(|board| keys.board(&board));
        for key in boards.into_iter().chain([keys.floor(&seat)]) {
            assert!(!is_watched(&key), "{key}");
        }
    }
}
