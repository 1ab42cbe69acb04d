//! Notifications from the database, and how they reach the engine.

use std::sync::{Arc, OnceLock};

use tenure_core::{DataIdentity, News, PushDetail, Release, SeatName, record};
use tenure_kit::parse_names;
use tenure_kit::sql::VersionParts;

/// Forwards notifications to the engine, once the engine has attached its `News`. Clones share the same `News`.
#[derive(Clone, Default)]
pub(crate) struct Notifications(Arc<OnceLock<News>>);

/// The parsed payload of a notification.
#[derive(Debug, PartialEq, Eq)]
enum Payload {
    /// The holder of a seat has changed.
    Holder(SeatName, PushDetail),
    /// The term of a seat was released.
    Released(SeatName, Release),
    /// A request was written to the board of a seat.
    Request(SeatName),
}

/// The number of hexadecimal digits of a nonce.
const NONCE: usize = 16;

impl Notifications {
    pub(crate) fn attach(&self, news: &News) {
        let _ = self.0.set(news.clone());
    }

    /// Forwards a notification to the engine.
    pub(crate) fn on_notification(&self, payload: &str) {
        let Some((news, payload)) = self.0.get().zip(Payload::parse(payload)) else { return };
        match payload {
            Payload::Holder(seat, detail) => news.holder(&seat, detail),
            Payload::Released(seat, release) => news.released(&seat, release),
            Payload::Request(seat) => news.request(&seat),
        }
    }
}

impl Payload {
    /// Parses a payload: a letter, after a `w` the holder and the token, after a `v` the nonce of the release, then the name
    /// of the seat. After that, a `v` has the identity of the data and the record, on lines of their own.
    fn parse(payload: &str) -> Option<Self> {
        let (letter, rest) = payload.split_at_checked(1)?;
        match letter {
            "w" => {
                let (end_of_token, _) = rest.match_indices(' ').nth(1)?;
                let (names, seat) = (parse_names(&rest[..end_of_token])?, &rest[end_of_token + 1..]);
                Some(Self::Holder(SeatName::new(seat).ok()?, PushDetail::Names(Some(names))))
            }
            "v" => {
                let (nonce, rest) = rest.split_at_checked(NONCE)?;
                let (seat, rest) = rest.split_once('\n')?;
                let (identity, json) = rest.split_once('\n')?;
                let seat = SeatName::new(seat).ok()?;
                // If the record is not readable, a read reports what is wrong with it.
                let Ok(record) = record::from_json(json) else { return Some(Self::Holder(seat, PushDetail::Nothing)) };
                let parts = VersionParts { write: nonce.to_owned(), identity: identity.to_owned(), session: None };
                let (version, identity) = (parts.version(), Some(DataIdentity::new(identity)));
                Some(Self::Released(seat, Release { record, version, identity }))
            }
            "h" => Some(Self::Holder(SeatName::new(rest).ok()?, PushDetail::Nothing)),
            "r" => Some(Self::Request(SeatName::new(rest).ok()?)),
            _ => None,
        }
    }
}

/// Returns the payload for a seat that was removed.
pub(crate) fn removal_payload(seat: &SeatName) -> String {
    format!("h{}", seat.as_str())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{Incarnation, Record, Token, Version};

    use super::*;

    #[test]
    fn a_notification_names_its_seat_and_its_holder() {
        let seat = || SeatName::new("a").unwrap();
        let names = (Some(Incarnation::from_bits(0xab)), Token::new(3));
        let held = Payload::parse("w000000000000000000000000000000ab 3 a");
        assert_eq!(held, Some(Payload::Holder(seat(), PushDetail::Names(Some(names)))));
        let vacant = Payload::Holder(SeatName::new("a b").unwrap(), PushDetail::Names(Some((None, Token::new(3)))));
        assert_eq!(Payload::parse("w- 3 a b"), Some(vacant));
        assert_eq!(Payload::parse(&removal_payload(&seat())), Some(Payload::Holder(seat(), PushDetail::Nothing)));
        assert_eq!(Payload::parse("ra"), Some(Payload::Request(seat())));
        for invalid in ["", "é", "w1", "w1 3", "wz 3 a", "w1 é a", "h", "r", "x", "v00000000000000aba"] {
            assert_eq!(Payload::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn a_notification_of_a_release_has_the_vacant_seat() {
        let record = Record::new(None, Token::new(3), Duration::from_secs(3));
        let payload = format!("v00000000000000aba\n71.00000001\n{}", record::to_json(&record));
        let version = Version::new("00000000000000ab/71.00000001/-/");
        let release = Release { record, version, identity: Some(DataIdentity::new("71.00000001")) };
        let seat = SeatName::new("a").unwrap();
        assert_eq!(Payload::parse(&payload), Some(Payload::Released(seat.clone(), release)));

        let newer = payload.replace("\"v\":1", "\"v\":99");
        assert_eq!(Payload::parse(&newer), Some(Payload::Holder(seat, PushDetail::Nothing)), "the seat must be read");
    }
}
