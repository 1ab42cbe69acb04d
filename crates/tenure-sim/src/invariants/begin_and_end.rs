//! Whoever is told that a term began is told that it is ending and that it ended, once each and in
//! this order; a machine says that it leads only between the first two; and a term whose time is over is
//! not extended any more.

use tenure_protocol::{Action, Moment, Token};

use super::{Invariant, What};
use crate::node::NodeNr;
use crate::world::World;

pub(super) struct BeginAndEnd {
    told: Vec<Notification>,
    until: Vec<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Notification {
    Nothing,
    Began(Token),
    Ending(Token),
}

impl BeginAndEnd {
    pub(super) fn new(nodes: usize) -> Self {
        Self { told: vec![Notification::Nothing; nodes], until: vec![Moment::ORIGIN; nodes] }
    }
}

impl Invariant for BeginAndEnd {
    fn name(&self) -> &'static str {
        "every begin has its end"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, action) => {
                let told = self.told[nr];
                self.told[nr] = match (told, action) {
                    (Notification::Nothing, Action::Began { token, .. }) => Notification::Began(*token),
                    (Notification::Began(had), Action::Ending { token, .. }) if had == *token => {
                        Notification::Ending(had)
                    }
                    (Notification::Ending(had), Action::Ended { token, .. }) if had == *token => Notification::Nothing,
                    (Notification::Began(had) | Notification::Ending(had), Action::Extended { token, .. })
                        if had == *token =>
                    {
                        told
                    }
                    (
                        _,
                        Action::Began { .. } | Action::Extended { .. } | Action::Ending { .. } | Action::Ended { .. },
                    )
                    | (Notification::Began(_) | Notification::Ending(_), Action::Stopped(_)) => {
                        return Err(format!("{} told {action:?} after {told:?}", world.nodes[nr].me));
                    }
                    _ => told,
                };
                self.in_time(world, nr, action)?;
            }
            What::Stepped(nr) => {
                let node = &world.nodes[nr];
                let claims = node.machine.as_ref().and_then(|machine| machine.term(node.clock.read(world.now)));
                if claims.is_some() && self.told[nr] != claims.map_or(Notification::Nothing, Notification::Began) {
                    return Err(format!("{} claims term {claims:?} having told {:?}", node.me, self.told[nr]));
                }
            }
            What::Gone(nr) => self.told[nr] = Notification::Nothing,
            _ => {}
        }
        Ok(())
    }
}

impl BeginAndEnd {
    fn in_time(&mut self, world: &World, nr: NodeNr, action: &Action) -> Result<(), String> {
        let node = &world.nodes[nr];
        match action {
            Action::Extended { token, .. } if node.clock.read(world.now) >= self.until[nr] => {
                Err(format!("{} extended term {token} after its time was over", node.me))
            }
            Action::Began { until, .. } | Action::Extended { until, .. } => {
                self.until[nr] = *until;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
