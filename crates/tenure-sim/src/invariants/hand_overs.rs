//! Which hand-over an input asks a leader for. Several invariants use it.

use tenure_protocol::{Action, Candidate, EndReason, Input, Request, Token};

use super::What;
use crate::node::Node;
use crate::world::World;

/// A hand-over that was asked for.
#[derive(Clone, Debug)]
pub(super) struct HandOver {
    pub(super) heir: Option<Candidate>,
    /// The heir itself asked for it, because of its priority.
    pub(super) preempts: bool,
}

/// Tracks what each leader was asked to do, and did.
pub(super) struct HandOvers {
    asked: Vec<Option<HandOver>>,
}

impl HandOvers {
    pub(super) fn new(nodes: usize) -> Self {
        Self { asked: vec![None; nodes] }
    }

    /// Returns the hand-over that begins with this action, and the token of its term.
    pub(super) fn begun(&mut self, world: &World, what: &What<'_>) -> Option<(Token, HandOver)> {
        match *what {
            What::TakesIn(nr, input) => self.asked[nr] = asked_for(&world.nodes[nr], input),
            What::Acted(nr, Action::Ending { token, why: EndReason::SteppedDown, .. }) => {
                return self.asked[nr].take().map(|hand_over| (*token, hand_over));
            }
            _ => {}
        }
        None
    }
}

/// Returns the first request that counts: a leader hands over only to another candidate, and gives way only to
/// a higher priority.
fn asked_for(node: &Node, input: &Input) -> Option<HandOver> {
    let token = node.term.as_ref()?.token;
    let other = |heir: &Candidate| heir.incarnation != node.me.incarnation;
    match input {
        Input::StepDown => Some(HandOver { heir: None, preempts: false }),
        Input::Transfer(heir) => other(heir).then(|| HandOver { heir: Some(heir.clone()), preempts: false }),
        Input::Requests(requests) => requests.iter().filter(|request| request.token() == token).find_map(|request| {
            let (heir, preempts) = match request {
                Request::StepDown { to, .. } => (to.clone(), false),
                Request::Preempt { by, priority, .. } if *priority > node.rules.priority => (Some(by.clone()), true),
                _ => return None,
            };
            heir.as_ref().is_none_or(other).then_some(HandOver { heir, preempts })
        }),
        _ => None,
    }
}
