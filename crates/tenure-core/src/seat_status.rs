//! One look at a seat, for people and scripts that ask who leads and then go away.

use std::time::Duration;

use tenure_protocol::{Leader, Life, Reading, Takeover, Token};

use crate::Promises;

/// What one look at a seat has shown. See [`Elections::look`](crate::Elections::look).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeatStatus {
    /// Who leads; `None` if the seat is vacant, or free to be taken by the store's own word.
    pub leader: Option<Leader>,
    /// How much of the leader's lease is left by the store's clock, where it has one to tell by.
    pub expires_in: Option<Duration>,
    /// Whether the store can tell that the leader is alive. Where it cannot, one look shows only who
    /// has won last, and whether that one still lives takes a lease to find out.
    pub vouched: bool,
    /// The highest token seen in the seat; zero if nobody ever led.
    pub token: Token,
}

impl SeatStatus {
    pub(crate) fn of(reading: Reading, promises: &Promises) -> Self {
        let vacant = |token| Self { leader: None, expires_in: None, vouched: true, token };
        let Some(seat) = reading.seat else { return vacant(Token::ZERO) };
        let token = seat.record.token;
        let Some(candidate) = seat.record.holder else { return vacant(token) };
        let leader = Leader { candidate, token, since_ms: seat.record.since_ms, metadata: seat.record.metadata };
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
