//! Notifications from the database, and how they reach the engine.

use std::sync::{Arc, OnceLock};

use tenure_core::{News, PushDetail, SeatName};

/// Forwards notifications to the engine, once the engine has attached its `News`. Clones share the same `News`.
#[derive(Clone, Default)]
pub(crate) struct Notifications(Arc<OnceLock<News>>);

/// The parsed payload of a notification.
#[derive(Debug, PartialEq, Eq)]
enum Payload {
    /// The holder of a seat has changed.
    Holder(SeatName, PushDetail),
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
            Payload::Request(seat) => news.request(&seat),
        }
    }
}

impl Payload {
    /// Parses a payload: a letter, after a `w` the nonce of the write, then the name of the seat.
    fn parse(payload: &str) -> Option<Self> {
        let (letter, rest) = payload.split_at_checked(1)?;
        match letter {
            "w" => {
                let (nonce, seat) = rest.split_at_checked(NONCE)?;
                Some(Self::Holder(SeatName::new(seat).ok()?, PushDetail::Nonce(u64::from_str_radix(nonce, 16).ok()?)))
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
    use super::*;

    #[test]
    fn a_notification_names_its_seat_and_the_nonce_of_its_write() {
        let seat = || SeatName::new("a").unwrap();
        assert_eq!(Payload::parse("w00000000000000aba"), Some(Payload::Holder(seat(), PushDetail::Nonce(0xab))));
        assert_eq!(Payload::parse(&removal_payload(&seat())), Some(Payload::Holder(seat(), PushDetail::Nothing)));
        assert_eq!(Payload::parse("ra"), Some(Payload::Request(seat())));
        for invalid in ["", "é", "w1", "h", "r", "x", "w00000000000000éa"] {
            assert_eq!(Payload::parse(invalid), None, "{invalid}");
        }
    }
}
