//! What the store's answers, and their absence, become: inputs of the machine.

use std::sync::Arc;

use futures_util::future::Aborted;
use futures_util::{FutureExt, StreamExt};
use tenure_protocol::{Fault, Input, Reading, SessionId, Swap};
use tracing::{Level, debug};

use super::calls::{Answer, Answered, Asked, OfSeat, Underway};
use super::{Driver, ElectionId, Entry};
use crate::{DynStore, StoreError, log};

/// The error of a write that won or kept a seat on a session whose end was heard before the answer.
const ENDED: &str = "the session that the seat is held on has ended meanwhile";

impl Driver {
    /// Takes in what has been answered already, so much at most.
    pub(super) fn on_answers(&mut self, most: usize) {
        for _ in 0..most {
            let answer = self.pending.next().now_or_never();
            // A call answers before it ends: its answers are taken in first.
            self.on_answered();
            let Some(Some(answer)) = answer else { return };
            self.guarded(|driver| driver.on_answer(answer));
        }
    }

    /// Takes in what stores have answered for single seats.
    pub(super) fn on_answered(&mut self) {
        // Answers that arrive meanwhile wait for the next round: timers go first.
        for _ in 0..self.inbox.len() {
            let Ok(answered) = self.inbox.try_recv() else { return };
            self.guarded(|driver| driver.on_answer_for(answered));
        }
    }

    pub(super) fn on_answer_for(&mut self, Answered { call, place, answer }: Answered) {
        // News that the store reported before this answer come first, above all the end of a session.
        self.on_news();
        match self.who_asked(call, place) {
            Some((election, _)) => self.on_seat_answered(election, answer),
            // Too late.
            None => log::emit(Level::DEBUG, move || debug!(place, "an answer that nobody waits for")),
        }
    }

    /// Hands the store's answer to the election that asked.
    fn on_seat_answered(&mut self, election: ElectionId, answer: OfSeat) {
        let Some(entry) = self.entries.get_mut(&election) else { return };
        let input = match answer {
            OfSeat::Read(answer) => {
                let answer = answer.map_err(|error| entry.complain(error));
                entry.unsettled &= answer.is_err();
                if answer.is_ok() {
                    self.subscriptions.read_answered(election);
                }
                Input::Read(answer.map(|reading| self.sharing_its_identity(reading)))
            }
            OfSeat::Written(answer) => {
                let answer = answer.and_then(|swap| match session_of(&*self.store, &swap) {
                    Some(session) if self.subscriptions.is_over(&session) => Err(StoreError::unknown(ENDED)),
                    _ => Ok(swap),
                });
                let answer = answer.map_err(|error| entry.complain(error));
                entry.unsettled = answer == Err(Fault::Unknown);
                Input::Written(answer)
            }
        };
        self.end_ask(election);
        self.step(election, input);
    }

    /// What a call has left without an answer is told why.
    fn on_call_ended(&mut self, call: u64, ended: Result<(), StoreError>) {
        let (unanswered, error) = self.on_called(call, ended);
        for (election, _) in unanswered {
            let Some(reads) = self.entries.get(&election).and_then(|entry| entry.call.as_ref()).map(Asked::reads)
            else {
                continue;
            };
            let error = error.clone();
            let answer = if reads { OfSeat::Read(Err(error)) } else { OfSeat::Written(Err(error)) };
            self.guarded(|driver| driver.on_seat_answered(election, answer));
        }
    }

    pub(super) fn on_answer(&mut self, answer: Result<(ElectionId, u64, Answer), Aborted>) {
        let Ok((election, number, answer)) = answer else { return };
        let answer = match answer {
            Answer::Called(call, ended) => return self.on_call_ended(call, ended),
            Answer::WatchEnded(error) => return self.on_watch_ended(error),
            Answer::Noted(noted) => return self.on_noted(noted),
            Answer::Heir(heir, reply) => {
                if let Some(entry) = self.entries.get_mut(&election) {
                    entry.heirs.retain(|underway| underway.number != number);
                }
                return self.on_heir(election, heir, reply);
            }
            answer => answer,
        };
        let Some(entry) = self.entries.get_mut(&election) else { return };
        let is = |underway: Option<&Underway>| underway.is_some_and(|underway| underway.number == number);
        let input = match answer {
            Answer::Requests(notes) if is(entry.board.as_deref()) => {
                entry.board = None;
                Input::Requests(self.take_requests(election, notes))
            }
            Answer::Roster(roster) if is(entry.roster.as_deref()) => {
                entry.roster = None;
                Input::Roster(roster)
            }
            Answer::StopAsked => Input::Stop,
            // Too late: it was answered as unknown, or replaced.
            _ => return,
        };
        self.step(election, input);
    }

    /// Gives up calls that have taken too long. While this thread did not run, on a busy machine or in a
    /// paused process, they may have been answered: so what has come in is taken in first.
    pub(super) async fn on_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        // From the network to the store's own task, and from there to here.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        self.on_answers(self.pending.len().max(1));
        for (election, number) in std::mem::take(&mut self.late) {
            self.guarded(|driver| driver.on_time_out(election, number));
        }
    }

    /// Answers a call that has taken too long.
    pub(super) fn on_time_out(&mut self, election: ElectionId, number: u64) {
        let Some(entry) = self.entries.get_mut(&election) else { return };
        if entry.call.as_ref().is_none_or(|asked| asked.number != number) {
            return;
        }
        let attempt = entry.machine.rules().timing.call_timeout();
        let late = format!("no answer within {attempt:?}: see that it is up, and can be reached");
        entry.complain(StoreError::unknown(late));
        let reads = self.end_ask(election).unwrap_or_default();
        if let Some(entry) = self.entries.get_mut(&election).filter(|_| !reads) {
            entry.unsettled = true;
        }
        self.step(election, if reads { Input::Read(Err(Fault::Unknown)) } else { Input::Written(Err(Fault::Unknown)) });
    }

    /// The store's identity is the same in every reading, or nearly: it is kept once for all elections.
    fn sharing_its_identity(&mut self, mut reading: Reading) -> Reading {
        if let Some(identity) = &mut reading.identity {
            match &self.identity {
                Some(known) if known == identity => *identity = known.clone(),
                _ => self.identity = Some(identity.clone()),
            }
        }
        reading
    }
}

/// The session that a seat was won or kept on.
fn session_of(store: &dyn DynStore, swap: &Swap) -> Option<SessionId> {
    match swap {
        Swap::Done { version, .. } => store.session_of(version),
        Swap::Lost => None,
    }
}

impl Entry {
    pub(super) fn complain(&mut self, error: StoreError) -> Fault {
        let fault = error.fault();
        self.complaint = Some(Arc::new(error));
        fault
    }
}
