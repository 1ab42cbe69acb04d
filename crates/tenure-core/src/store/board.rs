//! The board of a seat: requests to the leader, and who stands.

use std::future::Future;
use std::time::Duration;

use tenure_protocol::{Attended, Incarnation};

use super::BoxFuture;
use crate::{SeatName, StoreError};

/// Small side records of a seat, never part of the seat itself: requests to the leader, and who
/// stands.
///
/// A request lasts for its lifetime. An announcement, whose key is the incarnation of the process
/// that made it, lasts for as long as that process [attends](Board::attend): it is written once, and
/// one call for all seats of a process keeps all that it has announced.
pub trait Board: Send + Sync {
    /// Puts a note on the board of a seat, in place of one with the same kind and key.
    fn put(&self, seat: &SeatName, note: &Note) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Tells that a process is there, which counts for this long from its last sign of life: from now, or
    /// from a heartbeat that it shares with its seats, if that is younger than a quarter of this. Answers
    /// whether it has been there all along, or its announcements may have been cleared away meanwhile.
    fn attend(
        &self,
        process: Incarnation,
        lifetime: Duration,
    ) -> impl Future<Output = Result<Attended, StoreError>> + Send;

    /// The notes of this kind on the board of a seat that have not outlived their lifetime, or whose
    /// process attends.
    fn list(&self, seat: &SeatName, kind: NoteKind) -> impl Future<Output = Result<Vec<Note>, StoreError>> + Send;

    /// Takes a note off the board. That there is none is not an error.
    fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str)
    -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A note on a board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// Tells it from others of its kind.
    pub key: String,
    /// What it says, as JSON.
    pub value: String,
    /// How long it stays from when it was put; a store may keep it a little longer. Announcements
    /// stay for as long as their process attends instead.
    pub lifetime: Duration,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoteKind {
    /// Something is asked of the leader. Wakes it.
    Request,
    /// A candidate tells of itself. Wakes nobody.
    Announcement,
}

impl NoteKind {
    /// One word for it, for use in keys.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Announcement => "announcement",
        }
    }
}

/// [`Board`] behind a pointer. Every board is one.
pub trait DynBoard: Send + Sync {
    /// See [`Board::put`].
    fn put<'a>(&'a self, seat: &'a SeatName, note: &'a Note) -> BoxFuture<'a, Result<(), StoreError>>;
    /// See [`Board::attend`].
    fn attend(&self, process: Incarnation, lifetime: Duration) -> BoxFuture<'_, Result<Attended, StoreError>>;
    /// See [`Board::list`].
    fn list<'a>(&'a self, seat: &'a SeatName, kind: NoteKind) -> BoxFuture<'a, Result<Vec<Note>, StoreError>>;
    /// See [`Board::remove`].
    fn remove<'a>(&'a self, seat: &'a SeatName, kind: NoteKind, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;
}

impl<B: Board> DynBoard for B {
    fn put<'a>(&'a self, seat: &'a SeatName, note: &'a Note) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Board::put(self, seat, note))
    }

    fn attend(&self, process: Incarnation, lifetime: Duration) -> BoxFuture<'_, Result<Attended, StoreError>> {
        Box::pin(Board::attend(self, process, lifetime))
    }

    fn list<'a>(&'a self, seat: &'a SeatName, kind: NoteKind) -> BoxFuture<'a, Result<Vec<Note>, StoreError>> {
        Box::pin(Board::list(self, seat, kind))
    }

    fn remove<'a>(&'a self, seat: &'a SeatName, kind: NoteKind, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(Board::remove(self, seat, kind, key))
    }
}
