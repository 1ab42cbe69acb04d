//! Notes: small records beside the seats, which expire.

use std::future::Future;
use std::time::Duration;

use tenure_protocol::NoteState;

use super::{Answers, BoxFuture};
use crate::{SeatName, StoreError};

/// Small records beside the seats, for requests to a leader and for the list of candidates.
///
/// A note is on a [`Board`], under a key, and expires after its lifetime. The engine decides which notes to write and
/// what they mean. No term depends on a note.
///
/// The engine also decides which notes and boards share a call, within the limits of
/// [`Promises::writes`](crate::Promises::writes) and [`reads`](crate::Promises::reads).
pub trait Notes: Send + Sync {
    /// Writes and removes notes. A call never contains two notes with the same board and key.
    ///
    /// A new note replaces the note with the same key. Removing a note that does not exist is not an error. The answer
    /// says whether a note existed before.
    fn write(
        &self,
        notes: &[NoteWrite],
        to: &Answers<NoteState>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lists the notes of boards that have not expired. A call can contain the same board twice.
    fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A place for notes: the requests or the candidates of a seat, or the processes of all seats.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Board {
    /// Requests to the leader of a seat. If the store pushes, a new request notifies the leader.
    Requests(SeatName),
    /// Candidates that stand for a seat. Changes notify no candidate.
    Candidates(SeatName),
    /// Processes that run, for all seats of the store. Changes notify no candidate.
    Processes,
}

impl Board {
    /// Returns the seat that the board belongs to; `None` for [`Processes`](Self::Processes).
    pub const fn seat(&self) -> Option<&SeatName> {
        match self {
            Self::Requests(seat) | Self::Candidates(seat) => Some(seat),
            Self::Processes => None,
        }
    }

    /// Returns one word for the kind of board, for use in the keys of a store.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Requests(_) => "requests",
            Self::Candidates(_) => "candidates",
            Self::Processes => "processes",
        }
    }
}

/// A note as it is listed: its key and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The key, which is unique on the board of the note.
    pub key: String,
    /// The text, which is JSON that only the engine reads.
    pub value: String,
}

/// A note that the store writes or removes, as part of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteWrite {
    /// The board on which the note is written or removed.
    pub board: Board,
    /// The key, which is unique on the board of the note.
    pub key: String,
    /// The text, which is JSON that only the engine reads. `None` removes the note.
    pub value: Option<String>,
    /// How long the note exists from now on. A store can keep it a little longer.
    pub lifetime: Duration,
}

/// The form of [`Notes`] without generics, for `dyn`. All [`Notes`] implement it.
pub trait DynNotes: Send + Sync {
    /// Calls [`Notes::write`] with its future in a box.
    fn write<'a>(&'a self, notes: &'a [NoteWrite], to: &'a Answers<NoteState>)
    -> BoxFuture<'a, Result<(), StoreError>>;
    /// Calls [`Notes::list`] with its future in a box.
    fn list<'a>(&'a self, boards: &'a [Board], to: &'a Answers<Vec<Note>>) -> BoxFuture<'a, Result<(), StoreError>>;
}

impl<N: Notes> DynNotes for N {
    fn write<'a>(
        &'a self,
        notes: &'a [NoteWrite],
        to: &'a Answers<NoteState>,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Notes::write(self, notes, to))
    }

    fn list<'a>(&'a self, boards: &'a [Board], to: &'a Answers<Vec<Note>>) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Notes::list(self, boards, to))
    }
}

impl dyn DynNotes + '_ {
    /// Writes one note, and returns whether one with its key existed before.
    ///
    /// # Errors
    /// As [`Notes::write`].
    pub async fn put_one(
        &self,
        board: &Board,
        key: &str,
        value: &str,
        lifetime: Duration,
    ) -> Result<NoteState, StoreError> {
        let (key, value) = (key.to_owned(), Some(value.to_owned()));
        self.write_one(NoteWrite { board: board.clone(), key, value, lifetime }).await
    }

    /// Removes one note, and returns whether it existed before.
    ///
    /// # Errors
    /// As [`Notes::write`].
    pub async fn remove_one(&self, board: &Board, key: &str) -> Result<NoteState, StoreError> {
        let (key, lifetime) = (key.to_owned(), Duration::ZERO);
        self.write_one(NoteWrite { board: board.clone(), key, value: None, lifetime }).await
    }

    /// Lists the notes of one board that have not expired.
    ///
    /// # Errors
    /// As [`Notes::list`].
    pub async fn list_one(&self, board: &Board) -> Result<Vec<Note>, StoreError> {
        Answers::one(async |to| self.list(std::slice::from_ref(board), &to).await).await
    }

    async fn write_one(&self, note: NoteWrite) -> Result<NoteState, StoreError> {
        Answers::one(async |to| self.write(&[note], &to).await).await
    }
}
