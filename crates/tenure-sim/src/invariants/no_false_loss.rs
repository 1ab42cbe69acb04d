//! No term is lost for nothing: where nothing goes wrong, or no more calls in a row fail than the
//! timing has room for, every end is asked for.

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
