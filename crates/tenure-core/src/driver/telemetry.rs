//! The state that the spans and metrics of an election need between steps.
//!
//! Nothing here calls a subscriber or a recorder: spans are opened and closed by `log/spans.rs`, metrics updated by
//! `telemetry.rs`, both on the thread that logs.

use tenure_protocol::{Fault, Moment, Record, Swap, Token};
use tracing::field::Empty;
use tracing::{Level, Span, debug_span, info_span, span};

use super::Entry;
use crate::layers::fault_label;
use crate::log::spans::{self, SpanKey};
use crate::{Candidate, Leader, SeatName, telemetry};

/// The state of one election for spans and metrics.
pub(super) struct Telemetry {
    /// False for observers, which have no metrics: one can run beside a candidate of the same election and process.
    is_candidate: bool,
    write: Option<PendingWrite>,
    led_since: Option<Moment>,
    vacancy: Option<Vacancy>,
}

/// A write of the seat without an answer yet.
struct PendingWrite {
    kind: WriteKind,
    asked: Moment,
    span: Option<SpanKey>,
}

#[derive(Clone, Copy, PartialEq)]
enum WriteKind {
    /// A bid, or the renewal of a seat that an earlier bid with an unknown outcome has won.
    Acquire,
    Renew,
    Release,
}

/// The time since another candidate's term ended, while no other leader was seen.
struct Vacancy {
    seen: Moment,
    after: Token,
}

impl Telemetry {
    pub(super) fn new(is_candidate: bool) -> Self {
        Self { is_candidate, write: None, led_since: None, vacancy: None }
    }
}

impl Entry {
    pub(super) fn measure_start(&self) {
        if self.telemetry.is_candidate {
            telemetry::started(&self.shared);
        }
    }

    pub(super) fn measure_event(&self, kind: &crate::EventKind) {
        if self.telemetry.is_candidate {
            telemetry::count(&self.shared, kind);
        }
    }

    /// Records that the election asks the store to write this record.
    pub(super) fn trace_write(&mut self, record: &Record) {
        let leads = self.shared.state().term.is_some();
        let kind = match &record.holder {
            None => WriteKind::Release,
            Some(_) if leads => WriteKind::Renew,
            Some(_) => WriteKind::Acquire,
        };
        let (shared, token) = (self.shared.clone(), record.token);
        let span = spans::open(Level::DEBUG, self.shared.term_span.get(), move |parent| {
            write_span(kind, parent, &shared.name, &shared.candidate, token)
        });
        self.telemetry.write = Some(PendingWrite { kind, asked: self.shared.clock.now(), span });
    }

    /// Records that the store has answered, or that the engine no longer waits for it.
    pub(super) fn trace_written(&mut self, outcome: &'static str) {
        let Some(PendingWrite { kind, asked, span }) = self.telemetry.write.take() else { return };
        if let Some(span) = span {
            spans::close(span, outcome);
        }
        if kind == WriteKind::Renew {
            telemetry::renewed(&self.shared, self.shared.clock.now().since(asked), outcome);
        }
    }

    /// Records that a term begins. Call it before lines about the term are logged.
    pub(super) fn trace_term(&mut self, token: Token, until: Moment) {
        let (shared, now) = (self.shared.clone(), self.shared.clock.now());
        let span = spans::open(Level::INFO, None, move |_| {
            let (election, candidate) = (&shared.name, &shared.candidate);
            info_span!(parent: None, "tenure.term", %election, %candidate, token = i64::from(token), outcome = Empty)
        });
        self.shared.term_span.replace(span);
        self.telemetry.led_since = Some(now);
        // If there was a term in between, another candidate led without being seen.
        let vacancy = self.telemetry.vacancy.take().filter(|vacancy| vacancy.after.next() == Some(token));
        if let Some(vacancy) = vacancy {
            telemetry::handed_over(&self.shared, now.since(vacancy.seen));
        }
        telemetry::extended(&self.shared, until);
    }

    /// Records that the term is over. Call it after the line about that, and before the event.
    pub(super) fn trace_term_end(&mut self, outcome: &'static str) {
        if let Some(span) = self.shared.term_span.replace(None) {
            spans::close(span, outcome);
        }
        if let Some(since) = self.telemetry.led_since.take() {
            telemetry::term_ended(&self.shared, self.shared.clock.now().since(since));
        }
    }

    /// Records a change of the leader.
    pub(super) fn measure_leader(&mut self, leader: Option<&Leader>, previous: Option<&Leader>) {
        let another = previous.filter(|previous| previous.candidate != self.shared.candidate);
        self.telemetry.vacancy = match (leader, another) {
            // A manual candidate bids only when it is asked to, so its time says nothing about a hand-over.
            (None, Some(ended)) if self.machine.rules().stands => {
                Some(Vacancy { seen: self.shared.clock.now(), after: ended.token })
            }
            _ => None,
        };
    }
}

fn write_span(
    kind: WriteKind,
    parent: Option<span::Id>,
    election: &SeatName,
    candidate: &Candidate,
    token: Token,
) -> Span {
    let token = i64::from(token);
    match kind {
        WriteKind::Acquire => {
            debug_span!(parent: parent, "tenure.acquire", %election, %candidate, token, outcome = Empty)
        }
        WriteKind::Renew => debug_span!(parent: parent, "tenure.renew", %election, %candidate, token, outcome = Empty),
        WriteKind::Release => {
            debug_span!(parent: parent, "tenure.release", %election, %candidate, token, outcome = Empty)
        }
    }
}

/// Returns the outcome of a write as one word.
pub(super) fn outcome(answer: &Result<Swap, Fault>) -> &'static str {
    match answer {
        Ok(Swap::Done { .. }) => "done",
        Ok(Swap::Lost) => "lost",
        Err(fault) => fault_label(*fault),
    }
}
