//! How many calls to the store are under way at once, and which come first.
//!
//! A thousand elections that start together, or whose leader is gone, would otherwise make a thousand
//! calls at once, each under its time-out: most would be given up before their turn had come, made
//! again, and given up again. So the others wait here, with their time-outs not yet running. Calls that
//! keep a term go first. The machine counts from when it asked for a call, so a wait never lengthens a
//! term; and whoever stops waiting for a call (a term that ends, an election that is over) has it
//! dropped here as well.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ElectionId;
use super::calls::Answer;
use crate::store::BoxFuture;

/// How many calls may be under way: enough to keep a store busy that is far away, few enough for a store
/// nearby to answer within the shortest time-out. Calls that keep a term have as many places again, so that
/// others which hang cannot hold them up.
const MOST: usize = 512;

/// Calls that wait for others to be answered.
#[derive(Default)]
pub(super) struct Lanes {
    underway: Arc<AtomicUsize>,
    /// Renewals, and whatever else a holder writes.
    first: VecDeque<Waiting>,
    then: VecDeque<Waiting>,
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
    pub(super) fn wait(&mut self, goes_first: bool, call: Waiting) {
        if goes_first { self.first.push_back(call) } else { self.then.push_back(call) }
    }

    /// The next call to make, if there is a place for it.
    pub(super) fn next(&mut self) -> Option<(Waiting, Lane)> {
        // Only the engine's thread counts.
        let underway = self.underway.load(Ordering::Relaxed);
        let first = if underway < 2 * MOST { self.first.pop_front() } else { None };
        let call = first.or_else(|| if underway < MOST { self.then.pop_front() } else { None })?;
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
    fn so_many_are_under_way_and_renewals_come_first() {
        let mut lanes = Lanes::default();
        let call = |number| Waiting { election: ElectionId(0), number, answer: Box::pin(std::future::pending()) };
        (0..MOST as u64 + 1).for_each(|number| lanes.wait(false, call(number)));
        lanes.wait(true, call(9999));
        let mut taken: Vec<_> = std::iter::from_fn(|| lanes.next()).collect();
        assert_eq!(taken.len(), MOST);
        assert_eq!((taken[0].0.number, taken[1].0.number), (9999, 0));
        // However many others are under way, a renewal finds a place.
        lanes.wait(true, call(8888));
        taken.extend(lanes.next());
        assert_eq!(taken.last().map(|(call, _)| call.number), Some(8888));
        taken.truncate(MOST - 1);
        assert_eq!(lanes.next().map(|(call, _lane)| call.number), Some(MOST as u64 - 1));
        (0..3 * MOST as u64).for_each(|number| lanes.wait(true, call(number)));
        taken.extend(std::iter::from_fn(|| lanes.next()));
        assert_eq!(taken.len(), 2 * MOST);
    }
}
