//! What nodes hear of writes, where the store tells of each: in order and some time later, unless the watch
//! is cut; then what is there is listed, and some of what was told before is told again.
//!
//! The store of a real node stands between: it knows when it has received the version that a reading shows, and
//! forgets what it has heard once a reading shows that the data was set back.

use tenure_protocol::{Life, Reading, Version};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::FaultKind;
use crate::node::{Arrival, NodeNr};
use crate::plan::Kind;

/// What a node has heard of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hearing {
    /// Which watch it listens to; what an earlier one has still to say is not heard.
    stream: u32,
    /// Whether the store tells it.
    open: bool,
    /// What is told on a watch comes in order.
    busy_until: Time,
    /// The last write that it has heard of, and when, on its own clock.
    heard: Option<(News, tenure_protocol::Moment)>,
    /// How often the seat was set back, as far as it knows.
    set_back: u32,
    /// What it was told, for those that are told again.
    told: Vec<News>,
}

/// One write, as it is told.
#[derive(Clone, Debug)]
pub(crate) struct News {
    stream: u32,
    number: u64,
    set_back: u32,
    version: Version,
}

impl World {
    /// A node listens from now on, once it has listed what is there.
    pub(super) fn begin_hearing(&mut self, nr: NodeNr, life: u32) {
        if self.nodes[nr].life != life || !self.nodes[nr].runs() || self.nodes[nr].hearing.open {
            return;
        }
        let (now, until) = (self.now, self.nodes[nr].cut_off_until);
        if now < until {
            return self.at(until, Event::Listen(nr, life));
        }
        let hearing = &mut self.nodes[nr].hearing;
        hearing.stream += 1;
        hearing.open = true;
        hearing.busy_until = now;
        let again: Vec<_> = hearing.told.iter().rev().take(3).cloned().collect();
        self.tell_ears(nr, None);
        for news in again {
            if self.dice.chance(300) {
                self.tell_ears(nr, Some(news));
            }
        }
    }

    /// A node is told of no write for so long.
    pub(crate) fn cut_ears(&mut self, nr: NodeNr, lasts: Time) {
        if self.plan.kind == Kind::Received {
            self.nodes[nr].hearing.open = false;
            self.after(lasts, Event::Listen(nr, self.nodes[nr].life));
        }
    }

    /// Something was written: whoever listens is told.
    pub(super) fn spread(&mut self) {
        if self.plan.kind != Kind::Received {
            return;
        }
        for nr in 0..self.nodes.len() {
            if self.now < self.nodes[nr].cut_off_until && self.nodes[nr].hearing.open {
                self.cut_ears(nr, 0);
            }
            if self.nodes[nr].hearing.open {
                self.tell_ears(nr, None);
            }
        }
    }

    /// Tells a node of a write, or of what is there now.
    fn tell_ears(&mut self, nr: NodeNr, again: Option<News>) {
        let shelf = self.store.shelf();
        let now = || {
            let kept = shelf.seat.as_ref()?;
            Some(News { stream: 0, number: kept.number, set_back: shelf.set_back, version: kept.version.clone() })
        };
        let Some(news) = again.or_else(now) else { return };
        let mut delay = 1 + self.dice.below(nanos(self.plan.latency));
        let storm = self.now < self.plan.quiet_at && self.plan.faults.has(FaultKind::Delay);
        if storm && self.dice.chance(300) {
            delay += self.dice.below(nanos(self.plan.longest_lease()));
        }
        let (life, hearing) = (self.nodes[nr].life, &mut self.nodes[nr].hearing);
        hearing.busy_until = hearing.busy_until.max(self.now + delay);
        let (at, stream) = (hearing.busy_until, hearing.stream);
        self.at(at, Event::Arrive(nr, life, Arrival::Heard(News { stream, ..news })));
    }

    /// A node hears of a write. What is older than what it knows is no news.
    pub(super) fn hear(&mut self, nr: NodeNr, news: News) {
        let node = &mut self.nodes[nr];
        let (at, hearing) = (node.clock.read(self.now), &mut node.hearing);
        let newer = hearing.heard.as_ref().is_none_or(|(last, _)| news.number > last.number);
        if news.stream == hearing.stream && news.set_back == hearing.set_back && newer {
            hearing.told.push(news.clone());
            hearing.heard = Some((news, at));
        }
    }

    /// Adds to a reading when its very version was heard of, if it was.
    pub(super) fn say_when_received(&mut self, nr: NodeNr, set_back: u32, reading: &mut Reading) {
        let hearing = &mut self.nodes[nr].hearing;
        if set_back > hearing.set_back {
            *hearing = Hearing { set_back, heard: None, told: Vec::new(), ..*hearing };
        }
        let Some(seat) = &mut reading.seat else { return };
        let heard =
            hearing.heard.as_ref().filter(|(news, _)| news.version == seat.version && set_back == hearing.set_back);
        if let Some((_, at)) = heard {
            seat.life = Life::Received { at: *at };
        }
    }
}
