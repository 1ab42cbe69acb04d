//! What this process tells of itself on the boards of its elections.
//!
//! When, is decided by [`Presence`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Attended, Candidate, Incarnation, Presence, PresenceAction, PresenceInput, Score};
use tokio::sync::oneshot;
use tracing::{Level, debug};

use super::calls::{Answer, Underway, log_failed, wall_ms};
use super::{Driver, Due, ElectionId, NOBODY, Timer};
use crate::roster::Announcement;
use crate::{Metadata, Note, NoteKind, SeatName, StoreError, log};

/// So many notices are put or removed at a time: many begin at once, and renewals go first.
const MOST: usize = 64;

/// What this process tells of itself.
pub(super) struct Roster {
    pub(super) process: Incarnation,
    presence: Presence<SeatName, Standing>,
    /// Notices to be put and removed, once others have been.
    waiting: VecDeque<PresenceAction<SeatName, Standing>>,
    telling: BTreeMap<SeatName, Underway>,
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
    fn note(&self) -> Note {
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
        Note {
            kind: NoteKind::Announcement,
            key: self.candidate.incarnation.to_string(),
            value: serde_json::to_string(&form).expect("strings and numbers always have a JSON form"),
            lifetime: Duration::ZERO,
        }
    }
}

impl Roster {
    pub(super) fn new(process: Incarnation, by_session: bool) -> Self {
        Self {
            process,
            presence: Presence::new(by_session),
            waiting: VecDeque::new(),
            telling: BTreeMap::new(),
            next: None,
            settling: Vec::new(),
        }
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
        let has_board = self.store.board().is_some();
        let Some(entry) = self.entries.get(&election).filter(|entry| entry.announces && has_board) else { return };
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
    pub(super) fn attend(&mut self) {
        self.roster.next = None;
        self.step_presence(PresenceInput::Wake);
    }

    fn step_presence(&mut self, input: PresenceInput<SeatName, Standing>) {
        let mut actions = Vec::new();
        self.roster.presence.step(self.clock.now(), input, &mut actions);
        for action in actions {
            match action {
                PresenceAction::Attend { lifetime, within } => self.say_that_we_are_here(lifetime, within),
                PresenceAction::WakeAt(moment) => {
                    let timer = self.at(moment, Due::Attend);
                    if let Some(before) = self.roster.next.replace(timer) {
                        self.due.remove(&before);
                    }
                }
                notice => self.roster.waiting.push_back(notice),
            }
        }
        self.tell_of_us();
    }

    fn say_that_we_are_here(&mut self, lifetime: Duration, within: Duration) {
        let (store, process, until) = (self.store.clone(), self.roster.process, self.clock.now() + within);
        let attend = self.before(until, "the board did not answer in time", async move {
            let board = store.board().ok_or_else(|| StoreError::denied("the board is gone"))?;
            board.attend(process, lifetime).await
        });
        self.attending = Some(self.call(NOBODY, async move { Answer::Attended(attend.await) }));
    }

    /// Puts and removes notices whose turn it is.
    fn tell_of_us(&mut self) {
        while self.roster.telling.len() < MOST
            && let Some(action) = self.roster.waiting.pop_front()
        {
            let (seat, note, within) = match action {
                PresenceAction::Put { seat, notice, within } => (seat, Some(notice.note()), within),
                PresenceAction::Remove { seat, within } => (seat, None, within),
                PresenceAction::Attend { .. } | PresenceAction::WakeAt(_) => continue,
            };
            let (store, name, process) = (self.store.clone(), seat.clone(), self.roster.process);
            let tell = self.before(self.clock.now() + within, "the board did not answer in time", async move {
                let board = store.board().ok_or_else(|| StoreError::denied("the board is gone"))?;
                match note {
                    Some(note) => board.put(&name, &note).await,
                    None => board.remove(&name, NoteKind::Announcement, &process.to_string()).await,
                }
            });
            let name = seat.clone();
            let call = self.call(NOBODY, async move { Answer::Noticed(name, tell.await) });
            self.roster.telling.insert(seat, call);
        }
    }

    pub(super) fn on_noticed(&mut self, seat: SeatName, answer: Result<(), StoreError>) {
        self.roster.telling.remove(&seat);
        let told = answer.map_err(|error| {
            let fault = error.fault();
            log_failed(seat.clone(), error, "the board could not be told who stands");
            fault
        });
        self.step_presence(PresenceInput::Told(seat, told));
    }

    pub(super) fn on_attended(&mut self, answer: Result<Attended, StoreError>) {
        let attended = answer.map_err(|error| {
            let fault = error.fault();
            log::emit(Level::DEBUG, move || debug!(%error, "the board could not be told that we are here"));
            fault
        });
        self.step_presence(PresenceInput::Attended(attended));
    }
}
