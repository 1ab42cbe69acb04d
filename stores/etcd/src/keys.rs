//! Where things are kept.
//!
//! | key | what | ends |
//! |---|---|---|
//! | `tenure/seats/NAME` | the seat: its session, then the record | never |
//! | `tenure/live/LEASE` | a process that lives, while its lease does | with the lease |
//! | `tenure/requests/NAME/KEY` | a request to the leader | with a lease of its own |
//! | `tenure/candidates/NAME/KEY` | a candidate that stands | with a lease of its own |
//! | `tenure/attending/KEY` | a process that runs | with a lease of its own |
//! | `tenure/floors/NAME` | what tokens must stay above, where the data's revision does not say enough | never |
//!
//! The first three are watched, so they stand next to each other: everything from `live/` to `seats/`.

use std::borrow::Cow;

use tenure_core::{Board, SeatName};

/// The keys under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// What a key that is watched is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Seat(SeatName),
    /// To the leader of this seat.
    Request(SeatName),
    Live(i64),
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn seat(&self, seat: &SeatName) -> String {
        format!("{}/seats/{}", self.prefix, seat.as_str())
    }

    pub(crate) fn floor(&self, seat: &SeatName) -> String {
        format!("{}/floors/{}", self.prefix, seat.as_str())
    }

    pub(crate) fn live(&self, lease: i64) -> String {
        format!("{}/live/{lease:016x}", self.prefix)
    }

    /// The prefix of the keys of all notes on a board.
    pub(crate) fn board(&self, board: &Board) -> String {
        // Under "processes" they would lie in the range that is watched.
        let Some(seat) = board.seat() else { return format!("{}/attending/", self.prefix) };
        // A slash would end the name.
        let name = seat.as_str();
        let name = if name.contains(['/', '%']) {
            Cow::Owned(name.replace('%', "%25").replace('/', "%2F"))
        } else {
            Cow::Borrowed(name)
        };
        format!("{}/{}/{name}/", self.prefix, board.kind())
    }

    /// From where to where everything is that is watched.
    pub(crate) fn watched(&self) -> (String, String) {
        (format!("{}/live/", self.prefix), format!("{}/seats0", self.prefix))
    }

    pub(crate) fn subject(&self, key: &str) -> Option<Subject> {
        let (kind, rest) = key.strip_prefix(&self.prefix)?.strip_prefix('/')?.split_once('/')?;
        match kind {
            "seats" => SeatName::new(rest).ok().map(Subject::Seat),
            "live" => i64::from_str_radix(rest, 16).ok().map(Subject::Live),
            "requests" => {
                let (name, _) = rest.split_once('/')?;
                SeatName::new(name.replace("%2F", "/").replace("%25", "%")).ok().map(Subject::Request)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_to_be_about_what_it_was_made_for() {
        let keys = Keys::new("a/b");
        for name in ["jobs", "team/jobs", "100 %/x", "/", "%2F", "%252F/%25"] {
            let seat = SeatName::new(name).unwrap();
            let board = keys.board(&Board::Requests(seat.clone()));
            assert_eq!(keys.subject(&keys.seat(&seat)), Some(Subject::Seat(seat.clone())));
            assert_eq!(keys.subject(&format!("{board}k/e/y")), Some(Subject::Request(seat)));
        }
        assert_eq!(keys.subject(&keys.live(0x1234)), Some(Subject::Live(0x1234)));
        assert_eq!(keys.subject("a/other"), None);
    }

    #[test]
    fn what_is_watched_stands_together_and_apart_from_the_rest() {
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
