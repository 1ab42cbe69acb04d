//! Notes: small records beside the seats.

use std::future::Future;
use std::time::Duration;

use tenure_protocol::NoteState;

use super::{Answers, BoxFuture};
use crate::{SeatName, StoreError};

/// Small records beside the seats, and never part of one: requests to a leader, and who stands.
///
/// A note lies on a [`Board`], under a key, and expires by itself. Everything else, who puts which note when and what
/// becomes of it, is the engine's business.
///
/// As with seats, the engine decides which notes and boards go into one call: at most as many as
/// [`Promises::writes`](crate::Promises::writes) and [`reads`](crate::Promises::reads) say.
pub trait Notes: Send + Sync {
    /// Puts and removes notes, of which no two have the same board and key. A note that is put replaces the one that is
    /// there. Removing a note that is not there is not an error.
    fn write(
        &self,
        notes: &[NoteWrite],
        to: &Answers<NoteState>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lists boards: the notes that were put and have not expired. A board may be asked for twice.
    fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Where notes lie.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Board {
    /// Requests to the leader of a seat. A request that is put there wakes the leader, if the store pushes.
    Requests(SeatName),
    /// Candidates that stand for a seat. Wakes nobody.
    Candidates(SeatName),
    /// Processes that run. Wakes nobody.
    Processes,
}

impl Board {
    /// The seat that it belongs to.
    pub const fn seat(&self) -> Option<&SeatName> {
        match self {
            Self::Requests(seat) | Self::Candidates(seat) => Some(seat),
            Self::Processes => None,
        }
    }

    /// One word for what lies there, for use in keys.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Requests(_) => "requests",
            Self::Candidates(_) => "candidates",
            Self::Processes => "processes",
        }
    }
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Tells it from others on its board.
    pub key: String,
    /// Its text, as JSON.
    pub value: String,
}

/// A note to be put or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteWrite {
    /// Where it lies.
    pub board: Board,
    /// Tells it from others on its board.
    pub key: String,
    /// Its text, as JSON. `None` removes it.
    pub value: Option<String>,
    /// How long it is to lie there from now on. A store may keep it a little longer.
    pub lifetime: Duration,
}

/// [`Notes`] behind a pointer.
pub trait DynNotes: Send + Sync {
    /// See [`Notes::write`].
    fn write<'a>(&'a self, notes: &'a [NoteWrite], to: &'a Answers<NoteState>)
    -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`Notes::list`].
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
    /// Puts one note, and returns whether one was there.
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

    /// Removes one note, and returns whether one was there.
    ///
    /// # Errors
    /// As [`Notes::write`].
    pub async fn remove_one(&self, board: &Board, key: &str) -> Result<NoteState, StoreError> {
        let (key, lifetime) = (key.to_owned(), Duration::ZERO);
        self.write_one(NoteWrite { board: board.clone(), key, value: None, lifetime }).await
    }

    /// Lists one board.
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
