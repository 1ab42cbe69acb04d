//! The store's answers and time-outs, as inputs of the machine.

use std::sync::Arc;

use futures_util::future::Aborted;
use futures_util::{FutureExt, StreamExt};
use tenure_protocol::{Fault, Input, Reading, SessionId, Swap};
use tracing::{Level, debug};

use super::calls::{Answer, Answered, Asked, SeatAnswer, Underway};
use super::telemetry::outcome;
use super::{Driver, ElectionId, Entry};
use crate::layers::fault_label;
use crate::{DynStore, StoreError, log};

/// The error of a write that won or renewed a seat with a session whose end was reported before the answer.
const ENDED: &str = "the session that holds the seat ended before the answer arrived";

impl Driver {
    /// Processes at most `most` completed calls.
    pub(super) fn on_answers(&mut self, most: usize) {
        for _ in 0..most {
            let answer = self.pending.next().now_or_never();
            // A call answers before it ends, so its answers are processed first.
            self.on_answered();
            let Some(Some(answer)) = answer else { return };
            self.guarded(|driver| driver.on_answer(answer));
        }
    }

    /// Processes the store's answers for single seats.
    pub(super) fn on_answered(&mut self) {
        // Answers that arrive in the meantime wait for the next round, because timers go first.
        for _ in 0..self.inbox.len() {
            let Ok(answered) = self.inbox.try_recv() else { return };
            self.guarded(|driver| driver.on_answer_for(answered));
        }
    }

    pub(super) fn on_answer_for(&mut self, Answered { call, place, answer }: Answered) {
        // Notifications that the store sent before this answer go first, above all the end of a session.
        self.on_news();
        match self.ask_at(call, place) {
            Some((election, _)) => self.on_seat_answered(election, answer),
            None => {
                log::emit(Level::DEBUG, move || debug!(place, "the store answered too late; the answer is ignored"))
            }
        }
    }

    /// Steps the election that asked with the store's answer.
    fn on_seat_answered(&mut self, election: ElectionId, answer: SeatAnswer) {
        let Some(entry) = self.entries.get_mut(&election) else { return };
        let input = match answer {
            SeatAnswer::Read(answer) => {
                let answer = answer.map_err(|error| entry.record_error(error));
                entry.unsettled &= answer.is_err();
                if answer.is_ok() {
                    self.subscriptions.read_answered(election);
                }
                Input::Read(answer.map(|reading| self.sharing_its_identity(reading)))
            }
            SeatAnswer::Written(answer) => {
                let answer = answer.and_then(|swap| match session_of(&*self.store, &swap) {
                    Some(session) if self.subscriptions.is_over(&session) => Err(StoreError::unknown(ENDED)),
                    _ => Ok(swap),
                });
                let answer = answer.map_err(|error| entry.record_error(error));
                entry.trace_written(outcome(&answer));
                entry.unsettled = answer == Err(Fault::Unknown);
                Input::Written(answer)
            }
        };
        self.end_ask(election);
        self.step(election, input);
    }

    /// Answers all seats that a call left without an answer, with the error of the call.
    fn on_call_ended(&mut self, call: u64, ended: Result<(), StoreError>) {
        let (unanswered, error) = self.on_called(call, ended);
        for (election, _) in unanswered {
            let Some(reads) = self.entries.get(&election).and_then(|entry| entry.call.as_ref()).map(Asked::reads)
            else {
                continue;
            };
            let error = error.clone();
            let answer = if reads { SeatAnswer::Read(Err(error)) } else { SeatAnswer::Written(Err(error)) };
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
            // Too late: the ask has timed out, or was replaced.
            _ => return,
        };
        self.step(election, input);
    }

    /// Ends asks that have timed out. While this thread did not run, on a busy machine or in a paused process, their
    /// answers can have arrived; so all answers that have arrived are processed first.
    pub(super) async fn on_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        // An answer passes from the network to a task of the store, and from there to this one.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        self.on_answers(self.pending.len().max(1));
        for (election, number) in std::mem::take(&mut self.late) {
            self.guarded(|driver| driver.on_time_out(election, number));
        }
    }

    /// Steps the machine with an unknown outcome, for an ask that has timed out.
    pub(super) fn on_time_out(&mut self, election: ElectionId, number: u64) {
        let Some(entry) = self.entries.get_mut(&election) else { return };
        if entry.call.as_ref().is_none_or(|asked| asked.number != number) {
            return;
        }
        let attempt = entry.machine.rules().timing.call_timeout();
        let late = format!("no answer within {attempt:?}; check that the store is running and reachable");
        entry.record_error(StoreError::unknown(late));
        let reads = self.end_ask(election).unwrap_or_default();
        if let Some(entry) = self.entries.get_mut(&election).filter(|_| !reads) {
            entry.trace_written(fault_label(Fault::Unknown));
            entry.unsettled = true;
        }
        self.step(election, if reads { Input::Read(Err(Fault::Unknown)) } else { Input::Written(Err(Fault::Unknown)) });
    }

    /// Shares one copy of the store's identity among all elections, because it is the same in almost all readings.
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

/// Returns the session with which a seat was won or renewed.
fn session_of(store: &dyn DynStore, swap: &Swap) -> Option<SessionId> {
    match swap {
        Swap::Done { version, .. } => store.session_of(version),
        Swap::Lost => None,
    }
}

impl Entry {
    pub(super) fn record_error(&mut self, error: StoreError) -> Fault {
        let fault = error.fault();
        self.last_error = Some(Arc::new(error));
        fault
    }
}
