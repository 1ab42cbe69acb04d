//! A follower causes little load: while the seat keeps its holder and term, it looks no more often than
//! necessary.
//!
//! In calm weather, a follower looks every third of its lease, or once per lease if the store never loses a
//! push silently, each time up to a tenth and a step sooner. It looks once more per lease of the holder, when
//! the seat may have lapsed. Three more looks are allowed for calls that were in flight.

use tenure_protocol::{Action, Incarnation, Push, Token};

use super::{Invariant, What};
use crate::clock::{Time, nanos};
use crate::world::World;

/// The holder and term that a seat names.
type Names = Option<(Option<Incarnation>, Token)>;

pub(super) struct LooksAreFew {
    names: Names,
    /// Since when the looks of each node are counted, and how many there were.
    looks: Vec<(Time, u32)>,
}

impl LooksAreFew {
    pub(super) fn new(nodes: usize) -> Self {
        Self { names: None, looks: vec![(0, 0); nodes] }
    }
}

impl Invariant for LooksAreFew {
    fn name(&self) -> &'static str {
        "looks are few"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let names = world.store.shelf().names();
        if names != self.names {
            self.names = names;
            self.looks.fill((world.now, 0));
        }
        let What::Acted(nr, Action::Read) = *what else { return Ok(()) };
        let (node, (since, looks)) = (&world.nodes[nr], &mut self.looks[nr]);
        let held = names.is_some_and(|(holder, _)| holder.is_some_and(|holder| holder != node.me.incarnation));
        let able = world.able_since(nr).is_some_and(|able| world.now >= able);
        if !world.is_calm() || !held || !able {
            (*since, *looks) = (world.now, 0);
            return Ok(());
        }
        *looks += 1;
        let lease = nanos(world.plan.parts[nr].lease);
        let every = if node.rules.push == Push::Proven { lease } else { lease / 3 };
        let shortest = world.plan.parts.iter().map(|part| nanos(part.lease)).min().unwrap_or(lease);
        let passed = (world.now - *since) as f64;
        let most = 3.0 + passed / (every as f64 * 0.8) + passed / (shortest as f64 * 0.9);
        if f64::from(*looks) > most {
            return Err(format!("{} looked {looks} times within {:.1} leases", node.me, passed / lease as f64));
        }
        Ok(())
    }
}
