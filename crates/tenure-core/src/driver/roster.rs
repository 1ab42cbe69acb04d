//! What this process tells of itself on the boards of its elections.
//!
//! Each election has a notice: what is to stand on its board, and whether it does. A notice is put
//! when it begins and when it changes, not to keep it; one call for the whole process, once in the shortest
//! lease, keeps them all for two such leases. So a leader's renewals are three times as many, and one call may fail:
//! it is made again after a third of a lease. Where that call rests on the heartbeat of the seats, it costs nothing,
//! and is made as often as that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Candidate, Fault, Incarnation, Moment, Score};
use tokio::sync::oneshot;
use tracing::{Level, debug};

use super::calls::{Answer, Underway, log_failed, wall_ms};
use super::{Driver, Due, ElectionId, NOBODY, Timer};
use crate::roster::Announcement;
use crate::{Attended, Metadata, Note, NoteKind, SeatName, StoreError, log};

/// So many notices are put or removed at a time: many begin at once, and renewals go first.
const MOST: usize = 64;

/// What this process tells of itself.
pub(super) struct Roster {
    pub(super) process: Incarnation,
    notices: BTreeMap<SeatName, Box<Notice>>,
    /// Notices that may not be as they should.
    queue: VecDeque<SeatName>,
    underway: usize,
    attendance: Attendance,
    /// The lease for which this process attended last.
    lease: Duration,
    /// When it is to attend after the call under way, if that succeeds.
    after: Moment,
    next: Option<Timer>,
    /// Who waits for it to be settled.
    pub(super) settling: Vec<oneshot::Sender<()>>,
}

enum Attendance {
    /// There is nothing to tell.
    Away,
    /// Nothing was answered yet.
    Asking,
    There,
}

/// What is to stand on the board of one election.
struct Notice {
    lease: Duration,
    /// `None`: nothing.
    says: Option<Standing>,
    /// What it says may differ from what stands there.
    stale: bool,
    /// Something may stand there.
    there: bool,
    call: Option<Box<Underway>>,
}

/// A candidate, as it tells of itself.
#[derive(Clone)]
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
    pub(super) fn new(process: Incarnation) -> Self {
        Self {
            process,
            notices: BTreeMap::new(),
            queue: VecDeque::new(),
            underway: 0,
            attendance: Attendance::Away,
            lease: Duration::MAX,
            after: Moment::ORIGIN,
            next: None,
            settling: Vec::new(),
        }
    }

    /// Whether nothing is left to be done at once.
    pub(super) fn is_settled(&self) -> bool {
        self.underway == 0 && (self.queue.is_empty() || !matches!(self.attendance, Attendance::There))
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
        let (seat, lease, rules, now_ms) =
            (entry.shared.name.clone(), entry.shared.lease, entry.machine.rules(), wall_ms());
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
        let notice = self
            .roster
            .notices
            .entry(seat.clone())
            .or_insert_with(|| Box::new(Notice { lease, says: None, stale: true, there: false, call: None }));
        (notice.lease, notice.says, notice.stale) = (lease, Some(standing), true);
        self.roster.queue.push_back(seat);
        if matches!(self.roster.attendance, Attendance::Away) {
            self.roster.attendance = Attendance::Asking;
            self.attend();
        } else if lease < self.roster.lease {
            // Otherwise its candidate would be listed for too long, should this process die.
            self.attend();
        }
        self.tell_of_us();
    }

    /// Changes what is told of a candidate. What others go by is told at once; the rest waits for the
    /// next time that this process attends, so that it costs no more however often it changes.
    pub(super) fn change_notice(&mut self, seat: &SeatName, change: impl FnOnce(&mut Standing)) {
        let Some(notice) = self.roster.notices.get_mut(seat) else { return };
        let Some(standing) = &mut notice.says else { return };
        let before = standing.clone();
        change(standing);
        if before.score == standing.score && before.reported == standing.reported && before.fit == standing.fit {
            return;
        }
        standing.updated_ms = wall_ms();
        notice.stale = true;
        if before.fit != standing.fit {
            self.roster.queue.push_back(seat.clone());
            self.tell_of_us();
        }
    }

    /// Tells of a candidate no more.
    pub(super) fn withdraw(&mut self, seat: &SeatName) {
        let Some(notice) = self.roster.notices.get_mut(seat).filter(|notice| notice.says.is_some()) else { return };
        (notice.says, notice.stale) = (None, true);
        self.roster.queue.push_back(seat.clone());
        self.tell_of_us();
    }

    /// Puts and removes what is due.
    fn tell_of_us(&mut self) {
        while self.roster.underway < MOST && matches!(self.roster.attendance, Attendance::There) {
            let Some(seat) = self.roster.queue.pop_front() else { return };
            let Some(notice) = self.roster.notices.get_mut(&seat) else { continue };
            if notice.call.is_some() || !notice.stale {
                continue;
            }
            notice.stale = false;
            let (store, name, until) = (self.store.clone(), seat.clone(), self.clock.now() + notice.lease / 3);
            let note = notice.says.as_ref().map(Standing::note);
            if note.is_none() && !notice.there {
                self.roster.notices.remove(&seat);
                continue;
            }
            notice.there = true;
            let process = self.roster.process;
            let tell = self.before(until, "the board did not answer in time", async move {
                let board = store.board().ok_or_else(|| StoreError::denied("the board is gone"))?;
                match note {
                    Some(note) => board.put(&name, &note).await,
                    None => board.remove(&name, NoteKind::Announcement, &process.to_string()).await,
                }
            });
            self.roster.underway += 1;
            let name = seat.clone();
            let call = self.call(NOBODY, async move { Answer::Noticed(name, tell.await) });
            if let Some(notice) = self.roster.notices.get_mut(&seat) {
                notice.call = Some(Box::new(call));
            }
        }
    }

    pub(super) fn on_noticed(&mut self, seat: SeatName, answer: Result<(), StoreError>) {
        self.roster.underway -= 1;
        if let Some(notice) = self.roster.notices.get_mut(&seat) {
            notice.call = None;
            match answer {
                Ok(()) if notice.stale => self.roster.queue.push_back(seat),
                Ok(()) if notice.says.is_none() => drop(self.roster.notices.remove(&seat)),
                Ok(()) => {}
                Err(error) => {
                    // Tried again when this process attends the next time; and if nobody answers, so are
                    // all the others.
                    notice.stale = true;
                    if error.fault() == Fault::Unknown {
                        self.roster.attendance = Attendance::Asking;
                    }
                    let again = self.clock.now() + notice.lease / 3;
                    if self.roster.next.is_some_and(|(next, _)| again < next) {
                        self.attend_at(again);
                    }
                    log_failed(seat, error, "the board could not be told who stands");
                }
            }
        }
        self.tell_of_us();
    }

    /// Tells the store that this process is there.
    pub(super) fn attend(&mut self) {
        let standing = self.roster.notices.values().filter(|notice| notice.says.is_some());
        let Some(lease) = standing.map(|notice| notice.lease).min() else {
            self.roster.attendance = Attendance::Away;
            return;
        };
        let (every, lifetime) = match self.store.promises().attends_by_session {
            true => (lease / 3, lease),
            false => (lease, lease.saturating_mul(2)),
        };
        let now = self.clock.now();
        let (store, process, until) = (self.store.clone(), self.roster.process, now + lease / 3);
        let attend = self.before(until, "the board did not answer in time", async move {
            let board = store.board().ok_or_else(|| StoreError::denied("the board is gone"))?;
            board.attend(process, lifetime).await
        });
        (self.roster.lease, self.roster.after) = (lease, now + every);
        // Unless this succeeds.
        self.attend_at(until);
        self.attending = Some(self.call(NOBODY, async move { Answer::Attended(attend.await) }));
    }

    fn attend_at(&mut self, moment: Moment) {
        let timer = self.at(moment, Due::Attend);
        if let Some(before) = self.roster.next.replace(timer) {
            self.due.remove(&before);
        }
    }

    pub(super) fn on_attended(&mut self, answer: Result<Attended, StoreError>) {
        let anew = match answer {
            Ok(attended) => attended == Attended::Anew,
            Err(error) => {
                return log::emit(Level::DEBUG, move || debug!(%error, "the board could not be told that we are here"));
            }
        };
        self.attend_at(self.roster.after);
        let roster = &mut self.roster;
        roster.attendance = Attendance::There;
        for (seat, notice) in &mut roster.notices {
            if anew {
                (notice.stale, notice.there) = (true, notice.call.is_some());
            }
            if notice.stale {
                roster.queue.push_back(seat.clone());
            }
        }
        self.tell_of_us();
    }

    pub(super) fn withdraw_election(&mut self, election: ElectionId) {
        if let Some(entry) = self.entries.get(&election) {
            let seat = entry.shared.name.clone();
            if entry.announces {
                self.withdraw(&seat);
            }
        }
    }
}
