//! The result of a single read of a seat, for scripts and status pages.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Candidate, Claim, Crash, Life, Reading, Takeover, Token};

use crate::leader::time;
use crate::{Error, Leader, Promises, SeatName};

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
    /// The lease of the last term, which followers wait for; `None` if no candidate has led yet.
    pub lease: Option<Duration>,
    /// The last leader, if it has not released the seat, but its lease or session has ended by the store's clock.
    pub lapsed: Option<Leader>,
    /// The candidate that the last leader has named as its successor, in a vacant seat.
    pub heir: Option<Candidate>,
    /// Whether candidates have announced different priorities.
    pub ranked: bool,
    /// The last [`Occasion`](crate::Occasion) that a candidate has claimed.
    pub claim: Option<Arc<Claim>>,
    /// The last term that ended with a crash of its leader and was ended by a last will.
    pub crash: Option<Arc<Crash>>,
}

/// An election that has a record in the store. See [`Elections::list`](crate::Elections::list).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedElection {
    /// The name of the election.
    pub name: SeatName,
    /// The state of its seat; an error if its record alone cannot be read, for example because another program has
    /// written it.
    pub status: Result<SeatStatus, Error>,
}

impl SeatStatus {
    pub(crate) fn of(reading: Reading, promises: &Promises) -> Self {
        let mut status = Self {
            leader: None,
            expires_in: None,
            vouched: true,
            token: Token::ZERO,
            lease: None,
            lapsed: None,
            heir: None,
            ranked: false,
            claim: None,
            crash: None,
        };
        let Some(seat) = reading.seat else { return status };
        let token = seat.record.token;
        (status.token, status.lease, status.heir) = (token, Some(seat.record.lease), seat.record.heir);
        (status.ranked, status.claim, status.crash) = (seat.record.ranked, seat.record.claim, seat.record.crash);
        let Some(candidate) = seat.record.holder else { return status };
        let leader = Leader { candidate, token, since: time(seat.record.since_ms), metadata: seat.record.metadata };
        let lapsed = |leader| Self { lapsed: Some(leader), ..status.clone() };
        let (expires_in, vouched) = match seat.life {
            Life::Observe | Life::Received { .. } => (None, false),
            Life::Held => (None, true),
            Life::Over if promises.over_is_proof || promises.takeover == Takeover::Instant => return lapsed(leader),
            Life::Over => (None, false),
            Life::Clock { now, renewed } => {
                let left = seat.record.lease.saturating_sub(now.checked_since(renewed).unwrap_or_default());
                if left.is_zero() {
                    return lapsed(leader);
                }
                (Some(left), true)
            }
        };
        Self { leader: Some(leader), expires_in, vouched, ..status }
    }
}

#[cfg(test)]
mod tests {
    use tenure_protocol::{Incarnation, Record, Seat, StoreTime, Version};

    use super::*;
    use crate::memory::MemoryStore;
    use crate::store::Store;

    fn status(record: Record, life: Life) -> SeatStatus {
        let seat = Seat { record, version: Version::new("1"), life };
        SeatStatus::of(Reading::of(Some(seat)), &MemoryStore::new().promises())
    }

    #[test]
    fn a_lease_that_has_expired_is_told_from_a_seat_that_was_released() {
        let alice = Candidate { id: "alice".into(), incarnation: Incarnation::from_bits(1) };
        let lease = Duration::from_secs(15);
        let at = |now: i128| Life::Clock { now: StoreTime::from_nanos(now), renewed: StoreTime::from_nanos(0) };
        let held = Record::new(Some(alice.clone()), Token::new(7), lease);
        let leads = status(held.clone(), at(1));
        assert!(leads.leader.is_some() && leads.lapsed.is_none() && leads.lease == Some(lease), "{leads:?}");
        let lapsed = status(held, at(15_000_000_000));
        assert_eq!(
            (lapsed.leader, lapsed.lapsed.unwrap().candidate, lapsed.token),
            (None, alice.clone(), Token::new(7))
        );
        let claim = Some(Arc::new(Claim { at_ms: 1, by: "bob".into(), token: Token::new(6), done: true }));
        let released =
            Record { heir: Some(alice.clone()), claim: claim.clone(), ..Record::new(None, Token::new(7), lease) };
        let released = status(released, at(1));
        assert_eq!((released.leader, released.lapsed, released.heir), (None, None, Some(alice)));
        assert_eq!((released.claim, released.ranked, released.lease), (claim, false, Some(lease)));
    }
}
