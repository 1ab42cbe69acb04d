//! How many calls to the store are under way at once, and which come first.
//!
//! A thousand elections that start together, or whose leader is gone, would otherwise make a thousand
//! calls at once, each under its time-out: most would be given up before their turn had come, made
//! again, and given up again. So the others wait here, with their time-outs not yet running. The machine
//! counts from when it asked for a call, so a wait never lengthens a term; and a call that its election no
//! longer waits for (a term that ends, an election that is over) is dropped here as well.
//!
//! Calls that keep a term go first, a holder's reads among them: after a lost answer to a renewal the
//! holder reads the seat before it renews again, so a read that waits costs the term as surely as a renewal
//! that waits. Reads that settle a doubt about a write go next: the seat may be ours, or given up, and other
//! candidates wait for it. They have a lane apart from the holders, so that a thousand bids without an answer
//! cost no leader its term.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ElectionId;
use super::calls::Answer;
use crate::store::BoxFuture;

/// How many calls each lane may have under way beside those of the lanes below it: enough to keep a store busy
/// that is far away, few enough for a store nearby to answer within the shortest time-out. Calls of a lower lane
/// that hang never take these places.
const MOST: usize = 512;

/// How soon a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// A holder's renewals and reads, and the release of a seat.
    Keeps,
    /// A read after a write whose outcome is unknown.
    Settles,
    /// Looks and bids of candidates that hold nothing.
    Follows,
}

/// Calls that wait for others to be answered.
#[derive(Default)]
pub(super) struct Lanes {
    underway: Arc<AtomicUsize>,
    keeps: VecDeque<Waiting>,
    settles: VecDeque<Waiting>,
    follows: VecDeque<Waiting>,
}

/// A call that has not been made yet.
pub(super) struct Waiting {
    pub(super) election: ElectionId,
    /// The number that its election knows it by; if that is another by now, nobody waits for it.
    pub(super) number: u64,
    pub(super) answer: BoxFuture<'static, (ElectionId, u64, Answer)>,
}

/// The place of a call that is under way. Freed when dropped.
pub(super) struct Lane(Arc<AtomicUsize>);

impl Lanes {
    pub(super) fn wait(&mut self, rank: Rank, call: Waiting) {
        let lane = match rank {
            Rank::Keeps => &mut self.keeps,
            Rank::Settles => &mut self.settles,
            Rank::Follows => &mut self.follows,
        };
        lane.push_back(call);
    }

    /// The next call to make, if there is a place for it.
    pub(super) fn next(&mut self) -> Option<(Waiting, Lane)> {
        // Only the engine's thread counts.
        let underway = self.underway.load(Ordering::Relaxed);
        let lanes = [(&mut self.keeps, 3 * MOST), (&mut self.settles, 2 * MOST), (&mut self.follows, MOST)];
        let call = lanes.into_iter().filter(|(_, most)| underway < *most).find_map(|(lane, _)| lane.pop_front())?;
        self.underway.fetch_add(1, Ordering::Relaxed);
        Some((call, Lane(self.underway.clone())))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_places_that_lower_lanes_cannot_take_and_renewals_come_first() {
        let mut lanes = Lanes::default();
        let call = |number| Waiting { election: ElectionId(0), number, answer: Box::pin(std::future::pending()) };
        let flood = |lanes: &mut Lanes, rank| (0..2 * MOST as u64).for_each(|number| lanes.wait(rank, call(number)));
        flood(&mut lanes, Rank::Follows);
        lanes.wait(Rank::Settles, call(7777));
        lanes.wait(Rank::Keeps, call(9999));
        let mut taken: Vec<_> = std::iter::from_fn(|| lanes.next()).collect();
        assert_eq!(taken.len(), MOST);
        assert_eq!([0, 1, 2].map(|at| taken[at].0.number), [9999, 7777, 0]);
        // However many lower calls are under way, a higher one finds a place.
        for (rank, most) in [(Rank::Settles, 2 * MOST), (Rank::Keeps, 3 * MOST)] {
            flood(&mut lanes, rank);
            taken.extend(std::iter::from_fn(|| lanes.next()));
            assert_eq!(taken.len(), most);
        }
        // Freed places go to the highest calls that may have them: the other 512 keep a term, one more settles.
        taken.truncate(MOST - 1);
        let next: Vec<_> = std::iter::from_fn(|| lanes.next()).collect();
        assert_eq!((next.len(), next[0].0.number), (MOST + 1, MOST as u64));
    }
}
