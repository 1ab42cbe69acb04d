//! The store's board: requests to the leader, and reads of the roster (`roster.rs`).
//!
//! A read takes time like any call. It returns nothing if it fails or if the store has no board.

use tenure_protocol::{Input, Request};

use super::{Event, World};
use crate::clock::{Time, nanos};
use crate::faults::fate::{self, Fate, Sort};
use crate::node::{Arrival, NodeNr};

/// What a call does with the board.
#[derive(Clone, Debug)]
pub(crate) enum BoardRequest {
    /// Reads and removes the requests.
    Requests,
    /// Reads the roster.
    Roster,
    /// Adds a request.
    Ask(Request),
}

/// A call on its way to the board.
#[derive(Debug)]
pub(crate) struct BoardCall {
    node: NodeNr,
    life: u32,
    request: BoardRequest,
    fate: Fate,
}

impl World {
    pub(super) fn call_board(&mut self, nr: NodeNr, request: BoardRequest) {
        let (life, attempt) = (self.nodes[nr].life, nanos(self.nodes[nr].rules.timing.call_timeout()));
        if !self.plan.has_board {
            return self.answer(nr, life, &request, 1);
        }
        let mut fate = fate::of_call(self, nr, Sort::Side);
        if fate.there + fate.back > attempt {
            // The caller has timed out, but the call still takes effect.
            fate.reply_lost = true;
        }
        if fate.request_lost || fate.refused.is_some() {
            return self.answer(nr, life, &request, attempt);
        }
        if fate.reply_lost {
            self.answer(nr, life, &request, attempt);
        }
        self.after(fate.there, Event::Board(BoardCall { node: nr, life, request, fate }));
    }

    /// Answers a call that failed.
    fn answer(&mut self, nr: NodeNr, life: u32, request: &BoardRequest, delay: Time) {
        let input = match request {
            BoardRequest::Requests => Input::Requests(Vec::new()),
            BoardRequest::Roster => Input::Roster(Vec::new()),
            BoardRequest::Ask(_) => return,
        };
        self.after(delay, Event::Arrive(nr, life, Arrival::Notification(input)));
    }

    pub(super) fn board_called(&mut self, call: BoardCall) {
        let input = match call.request {
            BoardRequest::Requests => Input::Requests(std::mem::take(&mut self.store.shelf_mut().board)),
            BoardRequest::Roster => Input::Roster(self.listed().map(|listing| listing.standing.clone()).collect()),
            BoardRequest::Ask(request) => return self.put_request(request),
        };
        if !call.fate.reply_lost {
            self.after(call.fate.back, Event::Arrive(call.node, call.life, Arrival::Notification(input)));
        }
    }

    /// Puts a request on the board, and notifies the nodes that watch for it.
    pub(crate) fn put_request(&mut self, request: Request) {
        self.store.shelf_mut().board.push(request);
        self.holder_changed();
    }
}
