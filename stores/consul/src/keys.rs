//! Where things are kept.
//!
//! | key | |
//! |---|---|
//! | `PREFIX/seats/NAME/seat` | the record of a seat, locked by the session of its holder |
//! | `PREFIX/seats/NAME/requests/KEY` | what is asked of its leader |
//! | `PREFIX/floors/NAME/floor` | what its tokens must stay above |
//! | `PREFIX/processes/INCARNATION` | locked by the session of a process that is there |
//! | `PREFIX/candidates/INCARNATION/NAME/note` | what that process says of itself there |
//! | `PREFIX/identity` | names this life of the data |
//! | `PREFIX/lives/IDENTITY` | that it is this one: a number of a write can be the same in another |
//!
//! Everything in a name but letters, digits, `-`, `_` and `.` is written as `%20`: two names are never
//! one key, and none is the beginning of another.

use tenure_core::SeatName;

/// The keys of one store.
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

    /// What all seats and requests begin with. Without a slash at its end, so that a list of what is
    /// directly below has one line, however many seats there are.
    pub(crate) fn seats(&self) -> String {
        format!("{}/seats", self.prefix)
    }

    /// Everything of a seat that its watchers mind.
    pub(crate) fn seat_folder(&self, seat: &SeatName) -> String {
        format!("{}/seats/{}/", self.prefix, escaped(seat.as_str()))
    }

    pub(crate) fn seat(&self, seat: &SeatName) -> String {
        format!("{}seat", self.seat_folder(seat))
    }

    pub(crate) fn requests(&self, seat: &SeatName) -> String {
        format!("{}requests/", self.seat_folder(seat))
    }

    pub(crate) fn request(&self, seat: &SeatName, key: &str) -> String {
        format!("{}{}", self.requests(seat), escaped(key))
    }

    pub(crate) fn floor(&self, seat: &SeatName) -> String {
        format!("{}/floors/{}/floor", self.prefix, escaped(seat.as_str()))
    }

    pub(crate) fn processes(&self) -> String {
        format!("{}/processes/", self.prefix)
    }

    pub(crate) fn process(&self, incarnation: &str) -> String {
        format!("{}{}", self.processes(), escaped(incarnation))
    }

    /// Everything that a process says of itself.
    pub(crate) fn candidates(&self, incarnation: &str) -> String {
        format!("{}/candidates/{}/", self.prefix, escaped(incarnation))
    }

    pub(crate) fn candidate(&self, incarnation: &str, seat: &SeatName) -> String {
        format!("{}{}/note", self.candidates(incarnation), escaped(seat.as_str()))
    }

    pub(crate) fn identity(&self) -> String {
        format!("{}/identity", self.prefix)
    }

    pub(crate) fn life(&self, identity: &str) -> String {
        format!("{}/lives/{}", self.prefix, escaped(identity))
    }
}

/// A name as a part of a key.
pub(crate) fn escaped(name: &str) -> String {
    escape(name, b"-_.")
}

/// A key as a part of a URL.
pub(crate) fn in_url(key: &str) -> String {
    escape(key, b"-_./~")
}

fn escape(text: &str, kept: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// The other way round; `None` if it was not escaped like that.
pub(crate) fn unescaped(text: &str) -> Option<String> {
    tenure_core::url::decoded(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_readable_and_names_come_back() {
        let keys = Keys::new("tenure");
        let seat = |name: &str| keys.seat(&SeatName::new(name).unwrap());
        assert_eq!(seat("nightly-jobs"), "tenure/seats/nightly-jobs/seat");
        assert_eq!(seat("a/b c%"), "tenure/seats/a%2Fb%20c%25/seat");
        for name in ["a/b c%", "..", "выборы", "%2F"] {
            assert_eq!(unescaped(&escaped(name)).as_deref(), Some(name));
        }
        assert_eq!(in_url("a/b%20c"), "a/b%2520c");
        assert_eq!(unescaped("%4"), None);
    }
}
