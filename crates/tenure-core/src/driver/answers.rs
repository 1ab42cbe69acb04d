//! What the store's answers, and their absence, become: inputs of the machine.

use std::sync::Arc;

use futures_util::future::Aborted;
use futures_util::{FutureExt, StreamExt};
use tenure_protocol::{Fault, Input, Reading};

use super::calls::{Answer, Underway};
use super::{Driver, ElectionId, Entry};
use crate::StoreError;

impl Driver {
    /// Takes in what has been answered already, so much at most.
    pub(super) fn on_answers(&mut self, most: usize) {
        for _ in 0..most {
            let Some(Some(answer)) = self.pending.next().now_or_never() else { return };
            self.guarded(|driver| driver.on_answer(answer));
        }
    }

    pub(super) fn on_answer(&mut self, answer: Result<(ElectionId, u64, Answer), Aborted>) {
        let Ok((election, number, answer)) = answer else { return };
        let answer = match answer {
            Answer::Attended(answer) => return self.on_attended(answer),
            Answer::Noticed(seat, answer) => return self.on_noticed(seat, answer),
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
            Answer::Read(answer) if is(entry.call.as_ref()) => {
                let answer = answer.map_err(|error| entry.complain(error));
                entry.unsettled &= answer.is_err();
                self.end_call(election);
                Input::Read(answer.map(|reading| self.sharing_its_identity(reading)))
            }
            Answer::Written(answer) if is(entry.call.as_ref()) => {
                let answer = answer.map_err(|error| entry.complain(error));
                entry.unsettled = answer == Err(Fault::Unknown);
                self.end_call(election);
                Input::Written(answer)
            }
            Answer::Changed(change) if is(entry.watch.as_ref()) => {
                entry.watch = None;
                Input::Changed(change)
            }
            Answer::Requests(requests) if is(entry.board.as_deref()) => {
                entry.board = None;
                Input::Requests(requests)
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
        self.on_answers(self.pending.len());
        for (election, number) in std::mem::take(&mut self.late) {
            self.guarded(|driver| driver.on_time_out(election, number));
        }
    }

    /// Answers a call that has taken too long.
    pub(super) fn on_time_out(&mut self, election: ElectionId, number: u64) {
        let Some(entry) = self.entries.get_mut(&election) else { return };
        let Some(call) = entry.call.take_if(|call| call.number == number) else { return };
        let attempt = entry.machine.rules().timing.attempt();
        entry.complain(StoreError::unknown(format!(
            "no answer within {attempt:?}: see that it is up, and can be reached"
        )));
        entry.unsettled |= !call.reads;
        let input = if call.reads { Input::Read(Err(Fault::Unknown)) } else { Input::Written(Err(Fault::Unknown)) };
        self.step(election, input);
    }

    pub(super) fn end_call(&mut self, election: ElectionId) {
        let call = self.entries.get_mut(&election).and_then(|entry| entry.call.take());
        if let Some(time_out) = call.and_then(|call| call.time_out) {
            self.due.remove(&time_out);
        }
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

impl Entry {
    pub(super) fn complain(&mut self, error: StoreError) -> Fault {
        let fault = error.fault();
        self.complaint = Some(Arc::new(error));
        fault
    }
}
