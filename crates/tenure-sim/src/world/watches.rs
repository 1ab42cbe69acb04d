//! The pushes of the store. They can be lost during faults, if the store only promises hints.

use std::sync::Arc;

use tenure_protocol::{Change, Input, Life, Push, Reading, Release, Seat};

use super::{Event, World};
use crate::clock::nanos;
use crate::node::{Arrival, NodeNr, Watch};
use crate::store::{SessionState, session_in};

impl World {
    pub(super) fn watch(&mut self, nr: NodeNr, seat: Option<Seat>, requests: bool) {
        let (life, latency) = (self.nodes[nr].life, nanos(self.plan.latency));
        let delay = 1 + self.dice.below(latency);
        self.nodes[nr].watch = None;
        self.after(delay, Event::WatchArrives(nr, life, Watch { seat, requests }));
    }

    pub(super) fn watch_arrives(&mut self, nr: NodeNr, life: u32, watch: Watch) {
        let node = &mut self.nodes[nr];
        if node.life != life || !node.runs() {
            return;
        }
        let own = watch.seat.as_ref().filter(|seat| seat.record.is_held_by(node.me.incarnation));
        let session = own.and_then(|seat| session_in(&seat.version));
        node.watch = Some(watch);
        let over = |session| !matches!(self.store.session(self.now, session), SessionState::Alive { .. });
        if self.plan.kind.has_sessions() && session.is_some_and(over) {
            self.notify_session_over(nr);
        }
        self.push_to(nr);
    }

    /// Notifies all watching nodes: the seat may name another holder, or a request is on the board.
    pub(crate) fn holder_changed(&mut self) {
        for nr in 0..self.nodes.len() {
            self.push_to(nr);
        }
    }

    fn push_to(&mut self, nr: NodeNr) {
        if self.plan.push == Push::None {
            return;
        }
        let Some(watch) = &self.nodes[nr].watch else { return };
        let reading = self.store.read(self.now);
        let names = |seat: &Option<Seat>| seat.as_ref().map(|seat| seat.record.names());
        let over = |seat: &Option<Seat>| seat.as_ref().is_some_and(|seat| seat.life == Life::Over);
        let is_same_term = names(&reading.seat) == names(&watch.seat);
        let has_ended = over(&reading.seat) && !over(&watch.seat);
        let news = !is_same_term || has_ended || (watch.requests && !self.store.shelf().board.is_empty());
        if !news {
            return;
        }
        self.nodes[nr].watch = None;
        let all_is_well = self.now >= self.plan.quiet_at || self.plan.weather.is_orderly();
        if self.plan.push == Push::Hint && !all_is_well && self.dice.chance(300) {
            return;
        }
        // Some stores push the seat itself after a release. It is the seat of this moment, not that of the arrival. Some
        // push which session has ended.
        let arrival = match reading {
            Reading { seat: Some(Seat { record, version, .. }), identity, .. }
                if record.is_vacant() && self.dice.chance(500) =>
            {
                Arrival::Notification(Input::Released(Arc::new(Release { record, version, identity })))
            }
            Reading { seat, .. } if is_same_term && has_ended && self.dice.chance(500) => {
                Arrival::HolderOver(names(&seat))
            }
            _ => Arrival::Notification(Input::Changed(Change::Look)),
        };
        let (life, latency) = (self.nodes[nr].life, nanos(self.plan.latency));
        let delay = 1 + self.dice.below(latency);
        self.after(delay, Event::Arrive(nr, life, arrival));
    }
}
