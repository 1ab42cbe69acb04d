//! A leader that hands over names the heir that it was asked to name, and no other.
//!
//! In calm weather, the seat also goes to the heir and never to a third candidate, while the heir runs, is
//! healthy, reaches the store and does not itself step aside. An heir that gets no push looks every third of
//! its lease, and the others leave it the seat for a little longer than that, so their leases must be equal.

use tenure_protocol::{Action, Candidate, Token, Version};

use super::hand_overs::HandOvers;
use super::{Invariant, What};
use crate::node::NodeNr;
use crate::world::World;

pub(super) struct HeirFirst {
    hand_overs: HandOvers,
    /// The heir that each node must name when it releases the seat of these terms.
    meant: Vec<Vec<(Token, Option<Candidate>)>>,
    /// A seat that was left to an heir.
    left: Option<Left>,
}

struct Left {
    version: Version,
    /// The candidate that must be next, unless something kept it from the seat.
    heir: Option<NodeNr>,
}

impl HeirFirst {
    pub(super) fn new(nodes: usize) -> Self {
        Self { hand_overs: HandOvers::new(nodes), meant: vec![Vec::new(); nodes], left: None }
    }
}

impl Invariant for HeirFirst {
    fn name(&self) -> &'static str {
        "the heir goes first"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let hand_over = self.hand_overs.begun(world, what);
        match *what {
            What::Acted(nr, Action::Ending { token, .. }) => {
                self.meant[nr].push((*token, hand_over.and_then(|(_, hand_over)| hand_over.heir)));
            }
            What::Acted(nr, Action::Swap { record, .. }) if record.is_vacant() => {
                let meant = self.meant[nr].iter().find(|(token, _)| *token == record.token);
                let heir = meant.and_then(|(_, heir)| heir.as_ref());
                // The seat of an earlier term that came back may have no heir any more.
                let is_last = self.meant[nr].last().is_some_and(|(token, _)| *token == record.token);
                if heir != record.heir.as_ref() && (is_last || record.heir.is_some()) {
                    let name = |heir: Option<&Candidate>| heir.map_or("nobody".into(), ToString::to_string);
                    let (named, heir) = (name(record.heir.as_ref()), name(heir));
                    return Err(format!("{} named {named} as heir instead of {heir}", world.nodes[nr].me));
                }
            }
            What::Gone(nr) => self.meant[nr].clear(),
            What::Moved => return self.follow(world),
            _ => {}
        }
        Ok(())
    }
}

impl HeirFirst {
    fn follow(&mut self, world: &World) -> Result<(), String> {
        let Some(kept) = &world.store.shelf().seat else {
            self.left = None;
            return Ok(());
        };
        match &mut self.left {
            Some(left) if left.version == kept.version => {
                left.heir = left.heir.filter(|&heir| is_able(world, heir));
            }
            Some(Left { heir: Some(heir), .. }) if world.is_calm() => {
                let heir = &world.nodes[*heir].me;
                let holder = kept.record.holder.as_ref();
                self.left = None;
                if let Some(holder) = holder.filter(|holder| *holder != heir) {
                    return Err(format!("the seat was left to {heir}, but {holder} took it"));
                }
            }
            _ => {
                let heir = kept.record.heir.as_ref().filter(|_| kept.record.is_vacant() && world.is_calm());
                self.left = heir.map(|heir| Left {
                    version: kept.version.clone(),
                    heir: (0..world.nodes.len())
                        .find(|&nr| world.nodes[nr].me == *heir && is_able(world, nr) && world.looks_in_time(nr)),
                });
            }
        }
        Ok(())
    }
}

fn is_able(world: &World, nr: NodeNr) -> bool {
    world.able_since(nr).is_some_and(|since| since <= world.now)
}
