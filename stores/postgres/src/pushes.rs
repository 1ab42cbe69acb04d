//! What the database pushes, handed on to the engine.

use std::sync::{Arc, OnceLock};

use tenure_core::{News, PushDetail, SeatName, SessionId};

/// Where pushes go: to the engine's news, once the engine has handed them over. Clones go to the same.
#[derive(Clone, Default)]
pub(crate) struct Pushes(Arc<OnceLock<News>>);

/// A notification.
#[derive(Debug, PartialEq, Eq)]
enum Push {
    /// The holder of a seat has changed.
    Holder(SeatName, PushDetail),
    /// A request lies on the board of a seat.
    Request(SeatName),
}

/// How many letters a nonce has.
const NONCE: usize = 16;

impl Pushes {
    pub(crate) fn attach(&self, news: &News) {
        let _ = self.0.set(news.clone());
    }

    /// A notification has come in.
    pub(crate) fn heard(&self, payload: &str) {
        let Some((news, push)) = self.0.get().zip(Push::parse(payload)) else { return };
        match push {
            Push::Holder(seat, said) => news.holder(&seat, said),
            Push::Request(seat) => news.request(&seat),
        }
    }
}

impl Push {
    /// Reads a notification: a letter, the nonce of the write after a `w`, then the seat.
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

/// What is told of a seat that was removed.
pub(crate) fn removed(seat: &SeatName) -> String {
    format!("h{}", seat.as_str())
}

/// What the engine calls a session of ours or another's.
pub(crate) fn name_of(session: i64) -> SessionId {
    SessionId::new(format!("{session:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_seat_and_the_write_that_it_is_about() {
        let seat = || SeatName::new("a").unwrap();
        assert_eq!(Push::parse("w00000000000000aba"), Some(Push::Holder(seat(), PushDetail::Nonce(0xab))));
        assert_eq!(Push::parse(&removed(&seat())), Some(Push::Holder(seat(), PushDetail::Nothing)));
        assert_eq!(Push::parse("ra"), Some(Push::Request(seat())));
        for nonsense in ["", "é", "w1", "h", "r", "x", "w00000000000000éa"] {
            assert_eq!(Push::parse(nonsense), None, "{nonsense}");
        }
    }
}
