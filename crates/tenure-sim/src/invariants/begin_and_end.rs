//! A term that is reported as begun is later reported as ending and then as ended, once each and in this order.
//! A machine claims to lead only between the first two. A term whose time is over is not extended any more.

use tenure_protocol::{Action, Moment, Token};

use super::{Invariant, What};
use crate::node::NodeNr;
use crate::world::World;

pub(super) struct BeginAndEnd {
    reported: Vec<Reported>,
    until: Vec<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reported {
    Nothing,
    Began(Token),
    Ending(Token),
}

impl BeginAndEnd {
    pub(super) fn new(nodes: usize) -> Self {
        Self { reported: vec![Reported::Nothing; nodes], until: vec![Moment::ORIGIN; nodes] }
    }
}

impl Invariant for BeginAndEnd {
    fn name(&self) -> &'static str {
        "every begin has its end"
    }

    fn see(&mut self, world: &World, what: &What<'_>) -> Result<(), String> {
        match *what {
            What::Acted(nr, action) => {
                let reported = self.reported[nr];
                self.reported[nr] = match (reported, action) {
                    (Reported::Nothing, Action::Began { token, .. }) => Reported::Began(*token),
                    (Reported::Began(had), Action::Ending { token, .. }) if had == *token => Reported::Ending(had),
                    (Reported::Ending(had), Action::Ended { token, .. }) if had == *token => Reported::Nothing,
                    (Reported::Began(had) | Reported::Ending(had), Action::Extended { token, .. }) if had == *token => {
                        reported
                    }
                    (
                        _,
                        Action::Began { .. } | Action::Extended { .. } | Action::Ending { .. } | Action::Ended { .. },
                    )
                    | (Reported::Began(_) | Reported::Ending(_), Action::Stopped(_)) => {
                        return Err(format!("{} reported {action:?} after {reported:?}", world.nodes[nr].me));
                    }
                    _ => reported,
                };
                self.in_time(world, nr, action)?;
            }
            What::Stepped(nr) => {
                let node = &world.nodes[nr];
                let claims = node.machine.as_ref().and_then(|machine| machine.term(node.clock.read(world.now)));
                if claims.is_some() && self.reported[nr] != claims.map_or(Reported::Nothing, Reported::Began) {
                    return Err(format!("{} claims term {claims:?} but has reported {:?}", node.me, self.reported[nr]));
                }
            }
            What::Gone(nr) => self.reported[nr] = Reported::Nothing,
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
