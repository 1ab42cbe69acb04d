//! Notifications of each write, for stores that send them: in order and with a delay, unless the watch is cut.
//! When a watch starts again, it delivers the current state, and repeats some earlier notifications.
//!
//! This includes the part of a real node's store client: it knows when it received the version that a read
//! shows, and it forgets what it received once a read shows that the data was set back.

use tenure_protocol::{Life, Reading, Version};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::FaultKind;
use crate::node::{Arrival, NodeNr};
use crate::plan::Kind;

/// The notifications that a node has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// The current watch. Notifications of earlier ones are ignored.
    stream: u32,
    /// Whether the store sends notifications to this node.
    open: bool,
    /// Notifications of a watch arrive in order, so none arrives before this.
    busy_until: Time,
    /// The last write that it was notified of, and when, on its own clock.
    last: Option<(WritePush, tenure_protocol::Moment)>,
    /// How often the seat was set back, as far as this node knows.
    set_back: u32,
    /// Past notifications, some of which are repeated.
    past: Vec<WritePush>,
}

/// A notification of one write.
#[derive(Clone, Debug)]
pub(crate) struct WritePush {
    stream: u32,
    number: u64,
    set_back: u32,
    version: Version,
}

impl World {
    /// Starts to listen on behalf of a node, which first gets the current state.
    pub(super) fn start_listening(&mut self, nr: NodeNr, life: u32) {
        if self.nodes[nr].life != life || !self.nodes[nr].runs() || self.nodes[nr].received.open {
            return;
        }
        let (now, until) = (self.now, self.nodes[nr].cut_off_until);
        if now < until {
            return self.at(until, Event::Listen(nr, life));
        }
        let received = &mut self.nodes[nr].received;
        received.stream += 1;
        received.open = true;
        received.busy_until = now;
        let again: Vec<_> = received.past.iter().rev().take(3).cloned().collect();
        self.send_notification(nr, None);
        for news in again {
            if self.dice.chance(300) {
                self.send_notification(nr, Some(news));
            }
        }
    }

    /// Cuts the watch of a node for this long.
    pub(crate) fn cut_notifications(&mut self, nr: NodeNr, lasts: Time) {
        if self.plan.kind == Kind::Received {
            self.nodes[nr].received.open = false;
            self.after(lasts, Event::Listen(nr, self.nodes[nr].life));
        }
    }

    /// Notifies all listening nodes of a write.
    pub(super) fn notify_listeners(&mut self) {
        if self.plan.kind != Kind::Received {
            return;
        }
        for nr in 0..self.nodes.len() {
            if self.now < self.nodes[nr].cut_off_until && self.nodes[nr].received.open {
                self.cut_notifications(nr, 0);
            }
            if self.nodes[nr].received.open {
                self.send_notification(nr, None);
            }
        }
    }

    /// Sends a node a notification: a repeated one, or one of the current state.
    fn send_notification(&mut self, nr: NodeNr, again: Option<WritePush>) {
        let shelf = self.store.shelf();
        let now = || {
            let kept = shelf.seat.as_ref()?;
            Some(WritePush { stream: 0, number: kept.number, set_back: shelf.set_back, version: kept.version.clone() })
        };
        let Some(news) = again.or_else(now) else { return };
        let mut delay = 1 + self.dice.below(nanos(self.plan.latency));
        let storm = self.now < self.plan.quiet_at && self.plan.faults.has(FaultKind::Delay);
        if storm && self.dice.chance(300) {
            delay += self.dice.below(nanos(self.plan.longest_lease()));
        }
        let (life, received) = (self.nodes[nr].life, &mut self.nodes[nr].received);
        received.busy_until = received.busy_until.max(self.now + delay);
        let (at, stream) = (received.busy_until, received.stream);
        self.at(at, Event::Arrive(nr, life, Arrival::Notified(WritePush { stream, ..news })));
    }

    /// Delivers a notification. One that is older than what the node knows is ignored.
    pub(super) fn receive(&mut self, nr: NodeNr, news: WritePush) {
        let node = &mut self.nodes[nr];
        let (at, received) = (node.clock.read(self.now), &mut node.received);
        let newer = received.last.as_ref().is_none_or(|(last, _)| news.number > last.number);
        if news.stream == received.stream && news.set_back == received.set_back && newer {
            received.past.push(news.clone());
            received.last = Some((news, at));
        }
    }

    /// Adds to a read when the node was notified of its version, if it was.
    pub(super) fn set_received(&mut self, nr: NodeNr, set_back: u32, reading: &mut Reading) {
        let received = &mut self.nodes[nr].received;
        if set_back > received.set_back {
            *received = Received { set_back, last: None, past: Vec::new(), ..*received };
        }
        let Some(seat) = &mut reading.seat else { return };
        let last =
            received.last.as_ref().filter(|(news, _)| news.version == seat.version && set_back == received.set_back);
        if let Some((_, at)) = last {
            seat.life = Life::Received { at: *at };
        }
    }
}
