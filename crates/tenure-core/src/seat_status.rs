//! The result of a single read of a seat, for scripts and status pages.

use std::time::Duration;

use tenure_protocol::{Life, Reading, Takeover, Token};

use crate::leader::time;
use crate::{Leader, Promises};

/// The state of a seat at one moment. See [`Elections::look`](crate::Elections::look).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeatStatus {
    /// The leader; `None` if the seat is vacant, or its lease or session has ended by the store's clock.
    pub leader: Option<Leader>,
    /// How long the leader's lease still lasts by the store's clock; `None` for stores without such a clock.
    pub expires_in: Option<Duration>,
    /// Whether the store knows that the leader is alive. Where it is false, a single read shows only the candidate that
    /// won last, and it takes a whole lease to find out whether that candidate still renews.
    pub vouched: bool,
    /// The highest token in the seat; zero if no candidate has led yet.
    pub token: Token,
}

impl SeatStatus {
    pub(crate) fn of(reading: Reading, promises: &Promises) -> Self {
        let vacant = |token| Self { leader: None, expires_in: None, vouched: true, token };
        let Some(seat) = reading.seat else { return vacant(Token::ZERO) };
        let token = seat.record.token;
        let Some(candidate) = seat.record.holder else { return vacant(token) };
        let leader = Leader { candidate, token, since: time(seat.record.since_ms), metadata: seat.record.metadata };
        let (expires_in, vouched) = match seat.life {
            Life::Observe | Life::Received { .. } => (None, false),
            Life::Held => (None, true),
            Life::Over if promises.over_is_proof || promises.takeover == Takeover::Instant => return vacant(token),
            Life::Over => (None, false),
            Life::Clock { now, renewed } => {
                let left = seat.record.lease.saturating_sub(now.checked_since(renewed).unwrap_or_default());
                if left.is_zero() {
                    return vacant(token);
                }
                (Some(left), true)
            }
        };
        Self { leader: Some(leader), expires_in, vouched, token }
    }
}
