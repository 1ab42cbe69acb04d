//! Announces this process and its candidates. [`Presence`] decides when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{
    Candidate, Incarnation, NoteState, Presence, PresenceAction, PresenceInput, Score, shared_pairs,
};
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
    /// The number of the last announcement of the process.
    pub(super) present: u64,
    presence: Presence<SeatName, Arc<AnnouncedCandidate>>,
    next: Option<Timer>,
    /// Callers that wait until all announcements are written.
    pub(super) settling: Vec<oneshot::Sender<()>>,
}

/// A candidate of this process, as it is announced.
#[derive(Clone, Debug)]
pub(super) struct AnnouncedCandidate {
    pub(super) candidate: Candidate,
    pub(super) priority: i32,
    pub(super) metadata: Arc<BTreeMap<String, String>>,
    pub(super) score: Score,
    pub(super) fit: bool,
    pub(super) reported: Arc<BTreeMap<String, String>>,
    pub(super) since_ms: Option<u64>,
    pub(super) updated_ms: Option<u64>,
    pub(super) lease: Duration,
    /// Until when the candidate leaves the seat to others, after it has stepped down.
    pub(super) held_back_until_ms: Option<u64>,
}

impl AnnouncedCandidate {
    /// Returns the JSON form of the announcement.
    pub(super) fn to_json(&self) -> String {
        let mut metadata = (*self.metadata).clone();
        metadata.extend((*self.reported).clone());
        let form = Announcement {
            id: self.candidate.id.to_string(),
            score: self.score.get(),
            healthy: self.fit,
            priority: self.priority,
            metadata,
            since_ms: self.since_ms,
            updated_ms: self.updated_ms,
            lease_ms: u64::try_from(self.lease.as_millis()).ok(),
            held_back_until_ms: self.held_back_until_ms,
        };
        serde_json::to_string(&form).expect("strings and numbers always have a JSON form")
    }
}

impl Roster {
    pub(super) fn new(process: Incarnation) -> Self {
        Self { process, present: 0, presence: Presence::new(), next: None, settling: Vec::new() }
    }

    /// Returns whether all announcements are written.
    pub(super) fn is_settled(&self) -> bool {
        self.presence.is_settled()
    }

    /// Replies to waiting callers if all announcements are written.
    pub(super) fn reply_if_settled(&mut self) {
        if !self.settling.is_empty() && self.is_settled() {
            for reply in self.settling.drain(..) {
                let _ = reply.send(());
            }
        }
    }
}

impl Driver {
    /// Announces a candidate with its health report, unless it is manual or an observer.
    pub(super) fn announce(&mut self, election: ElectionId, score: Score, reported: Metadata) {
        let has_notes = self.store.notes().is_some();
        let Some(entry) = self.entries.get(&election).filter(|entry| entry.announces && has_notes) else { return };
        let (rules, now_ms) = (entry.machine.rules(), wall_ms());
        let announced = AnnouncedCandidate {
            candidate: entry.shared.candidate.clone(),
            priority: rules.priority,
            metadata: rules.metadata.clone(),
            score,
            fit: score >= rules.min_health,
            reported: shared_pairs(reported.0),
            since_ms: now_ms,
            updated_ms: now_ms,
            lease: entry.shared.lease,
            held_back_until_ms: None,
        };
        let (seat, lease) = (entry.shared.name.clone(), entry.shared.lease);
        self.step_presence(PresenceInput::Announce { seat, lease, fit: announced.fit, notice: announced.into() });
    }

    /// Changes the announcement of a candidate.
    pub(super) fn change_notice(&mut self, seat: &SeatName, change: impl FnOnce(&mut AnnouncedCandidate)) {
        let Some(before) = self.roster.presence.says(seat) else { return };
        let mut announced = (**before).clone();
        change(&mut announced);
        if before.score == announced.score && before.reported == announced.reported && before.fit == announced.fit {
            return;
        }
        announced.updated_ms = wall_ms();
        self.step_presence(PresenceInput::Change { seat: seat.clone(), fit: announced.fit, notice: announced.into() });
    }

    /// Announces at once that a candidate has stepped down and leaves the seat to others for a while.
    pub(super) fn announce_hold_back(&mut self, election: ElectionId) {
        let Some(entry) = self.entries.get(&election).filter(|entry| entry.announces) else { return };
        let (seat, now_ms) = (entry.shared.name.clone(), wall_ms());
        let left = entry.machine.held_back_for(self.clock.now()).and_then(|left| u64::try_from(left.as_millis()).ok());
        let Some(before) = self.roster.presence.says(&seat) else { return };
        let mut notice = (**before).clone();
        notice.updated_ms = now_ms;
        notice.held_back_until_ms = now_ms.zip(left).map(|(now, left)| now.saturating_add(left));
        // Not as a change: changes are announced within a lease, which is half of the time of the hold-back.
        self.step_presence(PresenceInput::Announce {
            seat,
            lease: notice.lease,
            fit: notice.fit,
            notice: notice.into(),
        });
    }

    pub(super) fn withdraw_election(&mut self, election: ElectionId) {
        if let Some(entry) = self.entries.get(&election).filter(|entry| entry.announces) {
            self.step_presence(PresenceInput::Withdraw(entry.shared.name.clone()));
        }
    }

    /// Announces this process again.
    pub(super) fn announce_process(&mut self) {
        self.roster.next = None;
        self.step_presence(PresenceInput::Wake);
    }

    fn step_presence(&mut self, input: PresenceInput<SeatName, Arc<AnnouncedCandidate>>) {
        let mut actions = Vec::new();
        self.roster.presence.step(self.clock.now(), input, &mut actions);
        for action in actions {
            match action {
                PresenceAction::SayPresent { lifetime, within } => {
                    self.roster.present += 1;
                    self.ask_about_notes(within, NoteAsk::Present { number: self.roster.present, lifetime });
                }
                PresenceAction::Put { seat, notice, lifetime, within } => {
                    self.ask_about_notes(within, NoteAsk::Notice { seat, notice: Some((notice, lifetime)) });
                }
                PresenceAction::Remove { seat, within } => {
                    self.ask_about_notes(within, NoteAsk::Notice { seat, notice: None });
                }
                PresenceAction::WakeAt(moment) => {
                    let timer = self.at(moment, Due::AnnounceProcess);
                    if let Some(before) = self.roster.next.replace(timer) {
                        self.due.remove(&before);
                    }
                }
            }
        }
    }

    pub(super) fn on_noticed(&mut self, seat: SeatName, answer: Result<(), StoreError>) {
        let result = answer.map_err(|error| {
            let fault = error.fault();
            log_failed(seat.clone(), error, "a candidate could not be announced");
            fault
        });
        self.step_presence(PresenceInput::NoticeWritten(seat, result));
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
