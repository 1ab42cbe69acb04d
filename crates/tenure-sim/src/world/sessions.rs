//! One heartbeat per node, which keeps its session, and notifications of the end of a session.

use std::time::Duration;

use tenure_protocol::{Change, Input, Moment};

use super::{Event, World};
use crate::clock::nanos;
use crate::faults::fate::{self, Fate, Sort};
use crate::node::{Arrival, NodeNr, OwnSession};
use crate::store::{SessionId, SessionState, session_in};

/// A heartbeat on its way to the store. Without a session, it asks for one.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    node: NodeNr,
    life: u32,
    session: Option<SessionId>,
    sent: Moment,
    fate: Fate,
}

impl World {
    /// Returns the TTL that a session of this node is granted.
    pub(super) fn granted(&self, nr: NodeNr) -> Duration {
        self.plan.parts[nr].lease * self.plan.granted_percent / 100
    }

    pub(super) fn send_beat(&mut self, nr: NodeNr, life: u32) {
        let node = &self.nodes[nr];
        if node.life != life || !node.lives() {
            return;
        }
        let lease = nanos(self.plan.parts[nr].lease);
        if node.paused {
            return self.after(lease / 30, Event::BeatDue(nr, life));
        }
        let (session, sent) = (node.session.as_ref().map(|own| own.id), node.clock.read(self.now));
        // Due every quarter of a lease. A heartbeat that is not answered within the time-out is repeated.
        let due = node.session.as_ref().is_none_or(|own| sent >= own.proved + self.plan.parts[nr].lease / 4);
        self.after(lease / 15, Event::BeatDue(nr, life));
        if !due {
            return;
        }
        let fate = fate::of_call(self, nr, Sort::Keep);
        if !fate.request_lost && fate.refused.is_none() {
            self.after(fate.there, Event::Beat(Heartbeat { node: nr, life, session, sent, fate }));
        }
    }

    pub(super) fn beat_arrives(&mut self, beat: Heartbeat) {
        let Heartbeat { node, life, session, sent, fate } = beat;
        let now = self.now;
        let (session, alive) = match session {
            Some(session) => (session, self.store.beat(now, session)),
            None => {
                let granted = self.granted(node);
                (self.store.open_session(now, granted), true)
            }
        };
        self.expect_expiry(session);
        if !fate.reply_lost {
            self.after(fate.back, Event::Arrive(node, life, Arrival::Beat { session, sent, alive }));
        }
    }

    pub(super) fn expect_expiry(&mut self, session: SessionId) {
        if let SessionState::Alive { until } = self.store.session(self.now, session) {
            self.at(until, Event::SessionExpiry(session));
        }
    }

    pub(super) fn beat_answered(&mut self, nr: NodeNr, session: SessionId, sent: Moment, alive: bool) {
        let node = &mut self.nodes[nr];
        match &mut node.session {
            // A second answer to a request for a session. The first one counts.
            Some(own) if own.id != session => {}
            Some(own) if alive => own.proved = own.proved.max(sent),
            None if alive => node.session = Some(OwnSession { id: session, proved: sent }),
            None => {}
            Some(_) => {
                node.session = None;
                let watched = node.watch.as_ref().and_then(|watch| watch.seat.as_ref());
                let concerned = watched.is_some_and(|seat| {
                    seat.record.is_held_by(node.me.incarnation) && session_in(&seat.version) == Some(session)
                });
                self.say(Some(nr), || format!("learns by its heartbeat that session {session} has ended"));
                if concerned {
                    self.input(nr, Input::Changed(Change::SessionOver));
                }
            }
        }
    }

    pub(super) fn session_may_be_over(&mut self, session: SessionId) {
        if self.store.session(self.now, session) == SessionState::Expired {
            self.session_is_over(session);
        }
    }

    /// Handles the end of a session: its owner is notified, late or never, and other nodes may look.
    pub(crate) fn session_is_over(&mut self, session: SessionId) {
        for nr in 0..self.nodes.len() {
            let node = &self.nodes[nr];
            let watched = node.watch.as_ref().and_then(|watch| watch.seat.as_ref());
            if watched.is_some_and(|seat| {
                seat.record.is_held_by(node.me.incarnation) && session_in(&seat.version) == Some(session)
            }) {
                self.notify_session_over(nr);
            }
        }
        self.holder_changed();
    }

    /// Notifies a node that its session has ended, unless the notification is lost.
    pub(super) fn notify_session_over(&mut self, nr: NodeNr) {
        let life = self.nodes[nr].life;
        let lease = nanos(self.plan.longest_lease());
        let cut_off = self.now < self.nodes[nr].cut_off_until;
        if self.now < self.plan.quiet_at && (cut_off || self.dice.chance(300)) {
            return;
        }
        let delay = if self.dice.chance(700) { lease / 100 } else { lease };
        let delay = 1 + self.dice.below(delay);
        self.after(delay, Event::Arrive(nr, life, Arrival::Notification(Input::Changed(Change::SessionOver))));
    }
}
