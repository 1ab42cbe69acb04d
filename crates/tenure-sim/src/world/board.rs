//! The store's board: requests to the leader, and the roster of who stands.
//!
//! A listing is put when a candidate starts and whenever its fitness changes, and stays while its process
//! attends: one that dies or stands still is listed for up to a lease longer. A reading takes its time like
//! any call, and comes to nothing if it fails or if the store has no board.

use tenure_protocol::{Input, Request, Standing};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::fate::{self, Fate, Sort};
use crate::node::{Arrival, NodeNr};

/// A candidate on the roster.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) standing: Standing,
    /// Since when it says this.
    pub(crate) since: Time,
    /// Until when it is listed, unless its process attends again.
    pub(crate) until: Time,
}

/// What is wanted of the board.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    /// To read the requests, and clear them away.
    Requests,
    /// To read who stands.
    Roster,
    /// To put a request there.
    Ask(Request),
}

/// A call on its way to the board.
#[derive(Debug)]
pub(crate) struct BoardCall {
    node: NodeNr,
    life: u32,
    errand: Errand,
    fate: Fate,
}

impl World {
    pub(super) fn call_board(&mut self, nr: NodeNr, errand: Errand) {
        let (life, attempt) = (self.nodes[nr].life, nanos(self.nodes[nr].rules.timing.attempt()));
        if !self.plan.has_board {
            return self.answer(nr, life, &errand, 1);
        }
        let mut fate = fate::of_call(self, nr, Sort::Side);
        if fate.there + fate.back > attempt {
            // Too late: it was given up, though it happens.
            fate.reply_lost = true;
        }
        if fate.request_lost || fate.refused.is_some() {
            return self.answer(nr, life, &errand, attempt);
        }
        if fate.reply_lost {
            self.answer(nr, life, &errand, attempt);
        }
        self.after(fate.there, Event::Board(BoardCall { node: nr, life, errand, fate }));
    }

    /// The answer to a call that failed.
    fn answer(&mut self, nr: NodeNr, life: u32, errand: &Errand, delay: Time) {
        let input = match errand {
            Errand::Requests => Input::Requests(Vec::new()),
            Errand::Roster => Input::Roster(Vec::new()),
            Errand::Ask(_) => return,
        };
        self.after(delay, Event::Arrive(nr, life, Arrival::Told(input)));
    }

    pub(super) fn board_called(&mut self, call: BoardCall) {
        let input = match call.errand {
            Errand::Requests => Input::Requests(std::mem::take(&mut self.store.shelf_mut().board)),
            Errand::Roster => Input::Roster(self.listed().map(|listing| listing.standing.clone()).collect()),
            Errand::Ask(request) => return self.put_request(request),
        };
        if !call.fate.reply_lost {
            self.after(call.fate.back, Event::Arrive(call.node, call.life, Arrival::Told(input)));
        }
    }

    /// Puts a request on the board; whoever watches for it is told.
    pub(crate) fn put_request(&mut self, request: Request) {
        self.store.shelf_mut().board.push(request);
        self.holder_changed();
    }

    /// Who is on the roster now.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Listing> {
        self.roster.iter().filter(|listing| self.now < listing.until)
    }

    /// A candidate announces itself, or what has changed about it. Those who stand only when asked do not.
    pub(super) fn announce(&mut self, nr: NodeNr, fit: bool) {
        if !self.plan.has_board || !self.nodes[nr].rules.stands {
            return;
        }
        let mut delay = 1 + self.dice.below(nanos(self.plan.latency));
        if self.plan.weather.is_rough() && self.dice.chance(200) {
            // It failed at first, and is put again when its process next attends.
            delay += self.dice.below(nanos(self.plan.parts[nr].lease) / 3);
        }
        self.after(delay, Event::Announced(nr, self.nodes[nr].life, fit));
    }

    /// After a pause its listing is there again.
    pub(super) fn announce_again(&mut self, nr: NodeNr) {
        let fit = self.nodes[nr].health.is_fit(self.nodes[nr].clock.read(self.now), &self.nodes[nr].rules);
        self.announce(nr, fit);
    }

    pub(super) fn announced(&mut self, nr: NodeNr, life: u32, fit: bool) {
        if self.nodes[nr].life != life || self.nodes[nr].paused {
            return;
        }
        let candidate = self.nodes[nr].me.clone();
        let priority = self.plan.parts[nr].priority;
        self.roster.retain(|listing| listing.standing.candidate != candidate && self.now < listing.until);
        let standing = Standing { candidate, priority, fit };
        self.roster.push(Listing { standing, since: self.now, until: Time::MAX });
    }

    /// A process that dies or stands still attended at some time in the last third of a lease, and is
    /// listed for a lease from then on.
    pub(super) fn fade_from_roster(&mut self, nr: NodeNr) {
        let lease = nanos(self.plan.parts[nr].lease);
        let until = self.now + lease - self.dice.below(lease / 3);
        self.shorten_listing(nr, until);
    }

    /// A process that ends in good order strikes itself off.
    pub(super) fn leave_roster(&mut self, nr: NodeNr) {
        if !self.plan.weather.is_rough() || self.dice.chance(800) {
            self.shorten_listing(nr, self.now);
        }
    }

    fn shorten_listing(&mut self, nr: NodeNr, until: Time) {
        let me = &self.nodes[nr].me;
        if let Some(listing) = self.roster.iter_mut().find(|listing| listing.standing.candidate == *me) {
            listing.until = listing.until.min(until);
        }
    }
}
