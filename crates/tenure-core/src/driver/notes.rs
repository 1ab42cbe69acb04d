//! Calls about notes. As with seats, `Admission` decides which of them share a call. Notes have their own limits of
//! calls in flight, and calls about seats leave first.
//!
//! Unlike answers about seats, answers about notes are processed when their call has ended or timed out, because no
//! term depends on a note.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::{Admission, Batch, BatchLimits, Group, Incarnation, Lane, NoteState};
use tokio::sync::oneshot;

use super::calls::{Answer, Underway, log_failed};
use super::misbehaviour::{Misbehaviour, Misbehaviours};
use super::roster::AnnouncedCandidate;
use super::{Driver, ElectionId, NOBODY};
use crate::store::answers::UNANSWERED;
use crate::{Answers, Board, DynNotes, DynStore, Note, NoteWrite, SeatName, StoreError};

/// The calls about notes that wait or are in flight.
pub(super) struct NoteCalls {
    admission: Admission<NoteAsk>,
    underway: BTreeMap<u64, (Vec<NoteAsk>, Underway)>,
    /// The requests whose removal waits or is in flight, by board and key.
    removing: BTreeSet<(Board, String)>,
}

/// A request to the store about a note or a board.
pub(super) enum NoteAsk {
    /// Writes the note that announces this process. The number distinguishes it from earlier ones.
    Present { number: u64, lifetime: Duration },
    /// Writes the announcement of the candidate of a seat, with its lifetime. `None` removes it.
    Notice { seat: SeatName, notice: Option<(Arc<AnnouncedCandidate>, Duration)> },
    /// Writes a note, and sends the answer if there is a sender.
    Write(NoteWrite, Option<oneshot::Sender<Result<NoteState, StoreError>>>),
    /// Lists the notes of a board.
    List(Board, oneshot::Sender<Result<Vec<Note>, StoreError>>),
}

pub(super) enum NoteAnswer {
    Written(NoteState),
    Listed(Vec<Note>),
}

/// The answers to a call by their places in it; `None` where there is no answer.
type NoteAnswers = Vec<Option<Result<NoteAnswer, StoreError>>>;

/// A call about notes that has ended.
pub(super) struct Noted {
    call: u64,
    answers: NoteAnswers,
    ended: Result<(), StoreError>,
}

impl NoteCalls {
    pub(super) fn new(reads: BatchLimits, writes: BatchLimits) -> Self {
        Self { admission: Admission::new(reads, writes), underway: BTreeMap::new(), removing: BTreeSet::new() }
    }
}

impl NoteAsk {
    fn board(&self) -> Board {
        match self {
            Self::Present { .. } => Board::Processes,
            Self::Notice { seat, .. } => Board::Candidates(seat.clone()),
            Self::Write(NoteWrite { board, .. }, _) | Self::List(board, _) => board.clone(),
        }
    }

    /// Returns the approximate size in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Present { .. } | Self::List(..) => 64,
            Self::Notice { .. } => 512,
            Self::Write(note, _) => 64 + note.value.as_ref().map_or(0, String::len),
        }
    }

    /// Returns whether the request is still needed. Of the announcements of this process only the last one is, so no
    /// call writes a note twice.
    fn is_wanted(&self, present: u64) -> bool {
        match self {
            Self::Present { number, .. } => *number == present,
            Self::Write(_, Some(reply)) => !reply.is_closed(),
            Self::List(_, reply) => !reply.is_closed(),
            Self::Notice { .. } | Self::Write(_, None) => true,
        }
    }

    /// Returns the note to write; `None` for a list.
    fn write(&self, process: Incarnation) -> Option<NoteWrite> {
        let (value, lifetime) = match self {
            Self::Present { lifetime, .. } => (Some("{}".to_owned()), *lifetime),
            Self::Notice { notice: Some(notice), .. } => (Some(notice.0.to_json()), notice.1),
            Self::Notice { notice: None, .. } => (None, Duration::ZERO),
            Self::Write(note, _) => return Some(note.clone()),
            Self::List(..) => return None,
        };
        Some(NoteWrite { board: self.board(), key: process.to_string(), value, lifetime })
    }
}

impl Driver {
    /// Queues a request about notes. Its call times out `within` after it is made.
    pub(super) fn ask_about_notes(&mut self, within: Duration, ask: NoteAsk) {
        let (reads, bytes) = (matches!(ask, NoteAsk::List(..)), ask.bytes());
        let shard = ask.board().seat().map_or(0, |seat| self.store.shard(seat));
        // The announcement of the process goes first. If it waited behind the announcements of candidates, it could
        // expire, and then the engine would have to write all of those again.
        let lane = if matches!(ask, NoteAsk::Present { .. }) { Lane::Keep } else { Lane::Background };
        self.notes.admission.ask(Group { lane, reads, shard, lease: within, within }, ask, bytes);
    }

    /// Writes a note for an election.
    pub(super) fn write_note(
        &mut self,
        election: ElectionId,
        note: NoteWrite,
    ) -> impl Future<Output = Result<NoteState, StoreError>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        self.ask_for(election, NoteAsk::Write(note, Some(reply)));
        answer.map(|answer| answer.unwrap_or_else(|_| Err(cut_off())))
    }

    /// Removes a request that was read. A leader can read a request again before its removal is answered. Then the
    /// request is not removed a second time, so no call contains a note twice.
    pub(super) fn remove_request(&mut self, election: ElectionId, board: &Board, key: String) {
        if self.notes.removing.insert((board.clone(), key.clone())) {
            let note = NoteWrite { board: board.clone(), key, value: None, lifetime: Duration::ZERO };
            self.ask_for(election, NoteAsk::Write(note, None));
        }
    }

    /// Lists a board for an election.
    pub(super) fn list_board(
        &mut self,
        election: ElectionId,
        board: Board,
    ) -> impl Future<Output = Result<Vec<Note>, StoreError>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        self.ask_for(election, NoteAsk::List(board, reply));
        answer.map(|answer| answer.unwrap_or_else(|_| Err(cut_off())))
    }

    pub(super) fn ask_for(&mut self, election: ElectionId, ask: NoteAsk) {
        let within = self.entries[&election].machine.rules().timing.call_timeout();
        self.ask_about_notes(within, ask);
    }

    /// Makes the calls that `Admission` admits. Their time-outs start now.
    pub(super) fn call_about_notes(&mut self) {
        let (process, present) = (self.roster.process, self.roster.present);
        while let Some(Batch { call, group, asks }) = self.notes.admission.next(|ask| ask.is_wanted(present)) {
            let boards: Vec<_> = asks.iter().map(NoteAsk::board).collect();
            let notes: Vec<_> = asks.iter().filter_map(|ask| ask.write(process)).collect();
            let answers: Arc<Mutex<NoteAnswers>> = Arc::new(Mutex::new(asks.iter().map(|_| None).collect()));
            let (store, collected, until) = (self.store.clone(), answers.clone(), self.clock.now() + group.within);
            let misbehaviours = self.misbehaviours.clone();
            let ended = self.before(until, "the store did not answer in time", async move {
                let store = notes_of(&*store)?;
                match group.reads {
                    true => store.list(&boards, &collect(collected, misbehaviours, NoteAnswer::Listed)).await,
                    false => store.write(&notes, &collect(collected, misbehaviours, NoteAnswer::Written)).await,
                }
            });
            let future = self.call(NOBODY, async move {
                let ended = ended.await;
                let answers = std::mem::take(&mut *lock(&answers));
                Answer::Noted(Noted { call, answers, ended })
            });
            self.notes.underway.insert(call, (asks, future));
        }
    }

    /// Delivers the answers of a call that has ended. Requests without an answer get the error of the call.
    pub(super) fn on_noted(&mut self, Noted { call, answers, ended }: Noted) {
        let Some((asks, _)) = self.notes.underway.remove(&call) else { return };
        let mut unanswered = Vec::new();
        for (ask, answer) in asks.into_iter().zip(answers) {
            match answer {
                Some(answer) => self.hand_out(ask, answer),
                None => unanswered.push(ask),
            }
        }
        if ended.is_ok() && !unanswered.is_empty() {
            self.misbehaviours.log(Misbehaviour::LeftUnanswered);
        }
        let error = ended.err().unwrap_or_else(|| StoreError::unknown(UNANSWERED));
        if error.is_caused_by_one() {
            unanswered = self.notes.admission.take_apart(call, unanswered);
        } else {
            self.notes.admission.ended(call);
        }
        for ask in unanswered {
            self.hand_out(ask, Err(error.clone()));
        }
    }

    fn hand_out(&mut self, ask: NoteAsk, answer: Result<NoteAnswer, StoreError>) {
        match (ask, answer) {
            (NoteAsk::List(_, reply), answer) => drop(reply.send(answer.map(NoteAnswer::listed))),
            (NoteAsk::Write(_, Some(reply)), answer) => drop(reply.send(answer.map(NoteAnswer::was))),
            (NoteAsk::Write(note, None), answer) => {
                if let (Some(seat), Err(error)) = (note.board.seat(), answer) {
                    // The request will be read again, which does no harm: it applies to one term only.
                    log_failed(seat.clone(), error, "a request to the leader could not be removed");
                }
                self.notes.removing.remove(&(note.board, note.key));
            }
            (NoteAsk::Notice { seat, .. }, answer) => self.on_noticed(seat, answer.map(drop)),
            (NoteAsk::Present { number, .. }, answer) if number == self.roster.present => {
                self.on_present(answer.map(NoteAnswer::was));
            }
            (NoteAsk::Present { .. }, _) => {}
        }
    }
}

impl NoteAnswer {
    fn was(self) -> NoteState {
        if let Self::Written(was) = self { was } else { NoteState::Absent }
    }

    fn listed(self) -> Vec<Note> {
        if let Self::Listed(notes) = self { notes } else { Vec::new() }
    }
}

/// Creates the channel for the answers of a call. Only the first answer for each place counts.
fn collect<T: 'static>(
    answers: Arc<Mutex<NoteAnswers>>,
    misbehaviours: Misbehaviours,
    wrap: fn(T) -> NoteAnswer,
) -> Answers<T> {
    let (count, too_much) = (lock(&answers).len(), move || misbehaviours.log(Misbehaviour::AnsweredTooMuch));
    Answers::each_once(count, too_much, move |place, answer: Result<T, StoreError>| {
        // After the end of the call the list is empty.
        if let Some(slot) = lock(&answers).get_mut(place) {
            *slot = Some(answer.map(wrap));
        }
    })
}

fn lock(answers: &Mutex<NoteAnswers>) -> std::sync::MutexGuard<'_, NoteAnswers> {
    answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn cut_off() -> StoreError {
    StoreError::unknown("the engine has ended")
}

pub(super) fn notes_of(store: &dyn DynStore) -> Result<&dyn DynNotes, StoreError> {
    store.notes().ok_or_else(|| {
        StoreError::denied("the store offered notes before and offers none now, which is a bug in the store")
    })
}
