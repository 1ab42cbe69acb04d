//! Announces this process and its candidates.
//!
//! When, is decided by [`Presence`].

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_protocol::{Candidate, Incarnation, NoteState, Presence, PresenceAction, PresenceInput, Score};
use tokio::sync::oneshot;
use tracing::{Level, debug};

use super::calls::{log_failed, wall_ms};
use super::notes::NoteAsk;
use super::{Driver, Due, ElectionId, Timer};
use crate::roster::Announcement;
use crate::{Metadata, SeatName, StoreError, log};

/// The announcements of this process.
pub(super) struct Roster {
    pub(super) process: Incarnation,
    /// The number of the last time that it said it is there.
    pub(super) present: u64,
    presence: Presence<SeatName, Standing>,
    next: Option<Timer>,
    /// Who waits for it to be settled.
    pub(super) settling: Vec<oneshot::Sender<()>>,
}

/// A candidate, as it tells of itself.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) candidate: Candidate,
    pub(super) priority: i32,
    pub(super) metadata: Arc<BTreeMap<String, String>>,
    pub(super) score: Score,
    pub(super) fit: bool,
    pub(super) reported: Arc<Metadata>,
    pub(super) since_ms: Option<u64>,
    pub(super) updated_ms: Option<u64>,
}

impl Standing {
    /// As it is written.
    pub(super) fn announcement(&self) -> String {
        let mut metadata = (*self.metadata).clone();
        metadata.extend(self.reported.0.clone());
        let form = Announcement {
            id: self.candidate.id.to_string(),
            score: self.score.get(),
            healthy: self.fit,
            priority: self.priority,
            metadata,
            since_ms: self.since_ms,
            updated_ms: self.updated_ms,
        };
        serde_json::to_string(&form).expect("strings and numbers always have a JSON form")
    }
}

impl Roster {
    pub(super) fn new(process: Incarnation) -> Self {
        Self { process, present: 0, presence: Presence::new(), next: None, settling: Vec::new() }
    }

    /// Whether nothing is left to be done at once.
    pub(super) fn is_settled(&self) -> bool {
        self.presence.is_settled()
    }

    /// Answers those who wait for that.
    pub(super) fn tell_if_settled(&mut self) {
        if !self.settling.is_empty() && self.is_settled() {
            for reply in self.settling.drain(..) {
                let _ = reply.send(());
            }
        }
    }
}

impl Driver {
    /// Begins to tell of a candidate, if it is to be told of: as well as it has reported.
    pub(super) fn announce(&mut self, election: ElectionId, score: Score, reported: Metadata) {
        let has_notes = self.store.notes().is_some();
        let Some(entry) = self.entries.get(&election).filter(|entry| entry.announces && has_notes) else { return };
        let (rules, now_ms) = (entry.machine.rules(), wall_ms());
        let standing = Standing {
            candidate: entry.shared.candidate.clone(),
            priority: rules.priority,
            metadata: rules.metadata.clone(),
            score,
            fit: score >= rules.min_health,
            reported: reported.into(),
            since_ms: now_ms,
            updated_ms: now_ms,
        };
        let (seat, lease) = (entry.shared.name.clone(), entry.shared.lease);
        self.step_presence(PresenceInput::Announce { seat, lease, fit: standing.fit, notice: standing });
    }

    /// Changes what is told of a candidate.
    pub(super) fn change_notice(&mut self, seat: &SeatName, change: impl FnOnce(&mut Standing)) {
        let Some(before) = self.roster.presence.says(seat) else { return };
        let mut standing = before.clone();
        change(&mut standing);
        if before.score == standing.score && before.reported == standing.reported && before.fit == standing.fit {
            return;
        }
        standing.updated_ms = wall_ms();
        self.step_presence(PresenceInput::Change { seat: seat.clone(), fit: standing.fit, notice: standing });
    }

    pub(super) fn withdraw_election(&mut self, election: ElectionId) {
        if let Some(entry) = self.entries.get(&election).filter(|entry| entry.announces) {
            self.step_presence(PresenceInput::Withdraw(entry.shared.name.clone()));
        }
    }

    /// It is time to say again that this process is there.
    pub(super) fn say_present(&mut self) {
        self.roster.next = None;
        self.step_presence(PresenceInput::Wake);
    }

    fn step_presence(&mut self, input: PresenceInput<SeatName, Standing>) {
        let mut actions = Vec::new();
        self.roster.presence.step(self.clock.now(), input, &mut actions);
        for action in actions {
            match action {
                PresenceAction::SayPresent { lifetime, within } => {
                    self.roster.present += 1;
                    self.ask_about_notes(within, NoteAsk::Present { number: self.roster.present, lifetime });
                }
                PresenceAction::Put { seat, notice, lifetime, within } => {
                    let says = Some(Box::new((notice, lifetime)));
                    self.ask_about_notes(within, NoteAsk::Notice { seat, says });
                }
                PresenceAction::Remove { seat, within } => {
                    self.ask_about_notes(within, NoteAsk::Notice { seat, says: None });
                }
                PresenceAction::WakeAt(moment) => {
                    let timer = self.at(moment, Due::SayPresent);
                    if let Some(before) = self.roster.next.replace(timer) {
                        self.due.remove(&before);
                    }
                }
            }
        }
    }

    pub(super) fn on_noticed(&mut self, seat: SeatName, answer: Result<(), StoreError>) {
        let told = answer.map_err(|error| {
            let fault = error.fault();
            log_failed(seat.clone(), error, "a candidate could not be announced");
            fault
        });
        self.step_presence(PresenceInput::Notification(seat, told));
    }

    pub(super) fn on_present(&mut self, answer: Result<NoteState, StoreError>) {
        let was = answer.map_err(|error| {
            let fault = error.fault();
            log::emit(Level::DEBUG, move || debug!(%error, "this process could not announce itself"));
            fault
        });
        self.step_presence(PresenceInput::Present(was));
    }
}
