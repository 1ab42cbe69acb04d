//! Calls about notes: as with seats, `Admission` decides which of them share a call. They share no places with calls
//! about seats, which leave first.
//!
//! Unlike there, answers count when their call has ended or its time is up: no term depends on a note.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::{Admission, Batch, BatchLimits, Group, Incarnation, Lane, NoteState};
use tokio::sync::oneshot;

use super::calls::{Answer, Underway, log_failed};
use super::misbehaviour::{Misbehaviour, Misbehaviours};
use super::roster::Standing;
use super::{Driver, ElectionId, NOBODY};
use crate::store::answers::UNANSWERED;
use crate::{Answers, Board, DynNotes, DynStore, Note, NoteWrite, SeatName, StoreError};

/// The calls about notes that wait and that are under way.
pub(super) struct NoteCalls {
    admission: Admission<NoteAsk>,
    underway: BTreeMap<u64, (Vec<NoteAsk>, Underway)>,
}

/// Something that is asked of the store about a note or a board.
pub(super) enum NoteAsk {
    /// Put the note that says that this process is there. The number tells it from an earlier one.
    Present { number: u64, lifetime: Duration },
    /// Put what the candidate of a seat says, for so long. `None` removes it.
    Notice { seat: SeatName, says: Option<Box<(Standing, Duration)>> },
    /// Write a note, also if nobody waits for the answer.
    Write(NoteWrite, Option<oneshot::Sender<Result<NoteState, StoreError>>>),
    /// List a board.
    List(Board, oneshot::Sender<Result<Vec<Note>, StoreError>>),
}

pub(super) enum NoteAnswer {
    Written(NoteState),
    Listed(Vec<Note>),
}

/// The answers to a call, by their places in it; `None` where there is none.
type NoteAnswers = Vec<Option<Result<NoteAnswer, StoreError>>>;

/// A call about notes that has ended.
pub(super) struct Noted {
    call: u64,
    answers: NoteAnswers,
    ended: Result<(), StoreError>,
}

impl NoteCalls {
    pub(super) fn new(reads: BatchLimits, writes: BatchLimits) -> Self {
        Self { admission: Admission::new(reads, writes), underway: BTreeMap::new() }
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

    /// About how long it is.
    fn bytes(&self) -> usize {
        match self {
            Self::Present { .. } | Self::List(..) => 64,
            Self::Notice { .. } => 512,
            Self::Write(note, _) => 64 + note.value.as_ref().map_or(0, String::len),
        }
    }

    /// Whether it is still to be made. Of the notes that say that this process is there, only the last one is: no call
    /// writes a note twice.
    fn is_wanted(&self, present: u64) -> bool {
        match self {
            Self::Present { number, .. } => *number == present,
            Self::Write(_, Some(reply)) => !reply.is_closed(),
            Self::List(_, reply) => !reply.is_closed(),
            Self::Notice { .. } | Self::Write(_, None) => true,
        }
    }

    /// The note to be written; `None` for a list.
    fn write(&self, process: Incarnation) -> Option<NoteWrite> {
        let (value, lifetime) = match self {
            Self::Present { lifetime, .. } => (Some("{}".to_owned()), *lifetime),
            Self::Notice { says: Some(says), .. } => (Some(says.0.announcement()), says.1),
            Self::Notice { says: None, .. } => (None, Duration::ZERO),
            Self::Write(note, _) => return Some(note.clone()),
            Self::List(..) => return None,
        };
        Some(NoteWrite { board: self.board(), key: process.to_string(), value, lifetime })
    }
}

impl Driver {
    /// Asks something about notes. The call has this long to be answered once it was made.
    pub(super) fn ask_about_notes(&mut self, within: Duration, ask: NoteAsk) {
        let (reads, bytes) = (matches!(ask, NoteAsk::List(..)), ask.bytes());
        let shard = ask.board().seat().map_or(0, |seat| self.store.shard(seat));
        // That this process is there goes first: if it waited behind notices until it expired, all of them would have to
        // be put again.
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

    /// Makes the calls whose turn it is. Their time runs from now on.
    pub(super) fn call_about_notes(&mut self) {
        let (process, present) = (self.roster.process, self.roster.present);
        while let Some(Batch { call, group, asks }) = self.notes.admission.next(|ask| ask.is_wanted(present)) {
            let boards: Vec<_> = asks.iter().map(NoteAsk::board).collect();
            let notes: Vec<_> = asks.iter().filter_map(|ask| ask.write(process)).collect();
            let answers: Arc<Mutex<NoteAnswers>> = Arc::new(Mutex::new(asks.iter().map(|_| None).collect()));
            let (store, told, until) = (self.store.clone(), answers.clone(), self.clock.now() + group.within);
            let odd = self.misbehaviours.clone();
            let ended = self.before(until, "the store did not answer in time", async move {
                let store = notes_of(&*store)?;
                match group.reads {
                    true => store.list(&boards, &collect(told, odd, NoteAnswer::Listed)).await,
                    false => store.write(&notes, &collect(told, odd, NoteAnswer::Written)).await,
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

    /// Hands out the answers of a call that has ended. Those that the store has left out are told why.
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
            (NoteAsk::Write(note, None), Err(error)) => {
                if let Some(seat) = note.board.seat() {
                    // It is read again, and does no harm: a request is for one term alone.
                    log_failed(seat.clone(), error, "a request to the leader could not be removed");
                }
            }
            (NoteAsk::Notice { seat, .. }, answer) => self.on_noticed(seat, answer.map(drop)),
            (NoteAsk::Present { number, .. }, answer) if number == self.roster.present => {
                self.on_present(answer.map(NoteAnswer::was));
            }
            (NoteAsk::Present { .. } | NoteAsk::Write(_, None), _) => {}
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

/// Where the answers to a call go. Only the first answer to each counts.
fn collect<T: 'static>(answers: Arc<Mutex<NoteAnswers>>, odd: Misbehaviours, wrap: fn(T) -> NoteAnswer) -> Answers<T> {
    let (count, too_much) = (lock(&answers).len(), move || odd.log(Misbehaviour::AnsweredTooMuch));
    Answers::each_once(count, too_much, move |place, answer: Result<T, StoreError>| {
        // Once the call has ended, there is no place for it any more.
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
    store.notes().ok_or_else(|| StoreError::denied("the store has notes only at times, which is a bug in it"))
}
