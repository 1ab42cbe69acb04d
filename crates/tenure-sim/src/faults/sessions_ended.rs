//! The store ends a session early, as after an operator's command, a lost quorum or a server restart.

use crate::node::NodeNr;
use crate::world::World;

pub(crate) fn strike(world: &mut World) -> bool {
    // The session of the holder that the seat names, or any session.
    let holder = world.store.shelf().names().and_then(|(holder, _)| holder).filter(|_| world.dice.chance(500));
    let named = world.nodes.iter().position(|node| node.runs() && Some(node.me.incarnation) == holder);
    let Some(node) = named.or_else(|| world.pick_node()) else { return false };
    end(world, node)
}

/// Ends the session of this node.
pub(super) fn end(world: &mut World, node: NodeNr) -> bool {
    let Some(session) = world.nodes[node].session.as_ref().map(|own| own.id) else { return false };
    let now = world.now;
    if !world.store.end_session(now, session) {
        return false;
    }
    world.say(Some(node), || format!("its session {session} is ended by the store"));
    world.trouble(node);
    world.session_is_over(session);
    true
}
