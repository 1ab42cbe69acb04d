//! No term is lost without need: if there are no faults, or no more calls fail in a row than the timing allows
//! for, every end of a term was asked for.

use tenure_protocol::Action;

use super::{Invariant, What};
use crate::world::World;

pub(super) struct NoFalseLoss;

impl Invariant for NoFalseLoss {
    fn name(&self) -> &'static str {
        "no false loss"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        let What::Acted(nr, Action::Ending { token, why, .. }) = what else { return Ok(()) };
        if !world.plan.weather.is_rough() && !why.is_voluntary() {
            return Err(format!("{} lost term {token}: {}", world.nodes[*nr].me, why.as_str()));
        }
        Ok(())
    }
}
