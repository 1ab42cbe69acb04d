//! The store's board: requests to the leader, and who stands (`roster.rs`).
//!
//! A reading takes its time like any call, and comes to nothing if it fails or if the store has no board.

use tenure_protocol::{Input, Request};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::fate::{self, Fate, Sort};
use crate::node::{Arrival, NodeNr};

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
        let (life, attempt) = (self.nodes[nr].life, nanos(self.nodes[nr].rules.timing.call_timeout()));
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
        self.after(delay, Event::Arrive(nr, life, Arrival::Notification(input)));
    }

    pub(super) fn board_called(&mut self, call: BoardCall) {
        let input = match call.errand {
            Errand::Requests => Input::Requests(std::mem::take(&mut self.store.shelf_mut().board)),
            Errand::Roster => Input::Roster(self.listed().map(|listing| listing.standing.clone()).collect()),
            Errand::Ask(request) => return self.put_request(request),
        };
        if !call.fate.reply_lost {
            self.after(call.fate.back, Event::Arrive(call.node, call.life, Arrival::Notification(input)));
        }
    }

    /// Puts a request on the board; whoever watches for it is told.
    pub(crate) fn put_request(&mut self, request: Request) {
        self.store.shelf_mut().board.push(request);
        self.holder_changed();
    }
}
