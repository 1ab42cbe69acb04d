//! A leader learns how its store matches renewals. In gentle weather, at most one renewal of an election is
//! lost to an earlier one of its own whose answer was lost. From then on, the leader reads the seat before it
//! renews again.

use tenure_protocol::{Action, Input, Swap};

use super::{Invariant, What};
use crate::plan::Weather;
use crate::world::World;

pub(super) struct RenewalsNotWasted {
    /// Whether the last write of each candidate was a renewal, and how many of its renewals were wasted.
    wasted: Vec<(bool, u32)>,
}

impl RenewalsNotWasted {
    pub(super) fn new(nodes: usize) -> Self {
        Self { wasted: vec![(false, 0); nodes] }
    }
}

impl Invariant for RenewalsNotWasted {
    fn name(&self) -> &'static str {
        "renewals are not wasted"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, Action::Swap { .. }) => self.wasted[nr].0 = false,
            What::Acted(nr, Action::Renew { .. }) => self.wasted[nr].0 = true,
            What::Gone(nr) => self.wasted[nr] = (false, 0),
            What::TakesIn(nr, Input::Written(Ok(Swap::Lost))) if world.plan.weather == Weather::Gentle => {
                let (node, (renews, wasted)) = (&world.nodes[nr], &mut self.wasted[nr]);
                let own = node.term.as_ref().map(|term| (Some(node.me.incarnation), term.token));
                *wasted += u32::from(*renews && own.is_some() && world.store.shelf().names() == own);
                if *wasted > 1 {
                    return Err(format!("{wasted} renewals of {} were lost to earlier ones of its own", node.me));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
