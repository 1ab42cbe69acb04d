//! An election takes little memory, and nothing is kept of elections that have ended: the collections of the engine are as
//! small as before.

use std::time::Duration;

use super::*;
use crate::memory::Memory;
use crate::store::watch::Sizes;
use crate::{Election, Elections, LifeKind, ManualClock};

impl Driver {
    /// Returns the number of entries in each collection that grows with the number of elections.
    pub(super) fn sizes(&mut self) -> Vec<(&'static str, usize)> {
        let timers = self.due.values().filter(|due| matches!(due, Due::Wake(_) | Due::TimeOut(_) | Due::Check(_)));
        let Sizes { wanted, changed, pending } = self.interest.sizes();
        vec![
            ("entries", self.entries.len()),
            ("leaving", self.leaving.len()),
            ("timers", timers.count()),
            ("queued", usize::from(self.admission.next(|_| true).is_some())),
            ("calls", self.calling.len()),
            ("late", self.late.len()),
            ("inbox", self.inbox.len()),
            // The watch of the store.
            ("pending", self.pending.len() - usize::from(self.watching.is_some())),
            ("wanted", wanted),
            ("changed", changed),
            ("pending", pending),
        ]
    }
}

/// A process can have a hundred thousand elections, so each byte here is a hundred kilobytes there. Put what is rarely
/// needed into a box, and what elections have in common into an `Arc`.
#[test]
fn an_election_takes_little_memory() {
    let sizes = [
        ("Entry", size_of::<Entry>(), 1160),
        ("Shared", size_of::<Shared>(), 384),
        ("TermState", size_of::<TermState>(), 168),
        ("SeatInterest", size_of::<crate::SeatInterest>(), 216),
        ("Command", size_of::<Command>(), 72),
    ];
    for (name, size, most) in sizes {
        assert!(size <= most, "{name} has {size} bytes; it had at most {most}");
    }
}

#[test]
fn a_thousand_elections_that_have_ended_leave_nothing_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for kind in [LifeKind::Observe, LifeKind::Clock, LifeKind::Session, LifeKind::Lock] {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(kind, clock.clone());
        let [one, other] = [(); 2].map(|()| Elections::with_clock(memory.store(), clock.clone()));
        let stand = |elections: &Elections| -> Vec<Election> {
            (0..500).map(|number| elections.election(format!("job-{number}")).start().unwrap()).collect()
        };
        // Half of the elections lead, and half follow.
        let leaders = stand(&one);
        clock.advance(Duration::from_secs(20));
        let followers = stand(&other);
        clock.advance(Duration::from_secs(20));
        assert!(leaders.iter().all(Election::is_leader));
        for elections in [followers, leaders] {
            elections.iter().for_each(Election::stop);
            // So short that no timer of the elections would have been due.
            clock.advance(Duration::from_millis(1));
            elections.iter().for_each(|election| drop(runtime.block_on(election.stopped())));
        }
        clock.settle();
        for elections in [&one, &other] {
            let left: Vec<_> = elections.sizes().into_iter().filter(|(_, size)| *size > 0).collect();
            assert!(left.is_empty(), "{kind:?}: {left:?}");
        }
    }
}
