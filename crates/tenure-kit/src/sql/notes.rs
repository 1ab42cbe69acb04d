//! Notes as rows. Statements number the notes or boards of a call from 1, in their order.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{Answers, Board, Fault, Note, NoteState, NoteWrite, StoreError};

/// The statement that deletes expired notes deletes at most this many. A dead process may leave ten thousand, and the
/// process that deletes them must not be kept from renewing its own seats.
pub const DELETE_AT_MOST: u32 = 10_000;

/// Accepts a connection whose user cannot create the tables, if only the table of notes is missing (`has_seats`). Returns
/// why there are no notes, if the user cannot create their table. Only for stores whose leaders can keep their seats
/// without that table.
///
/// # Errors
/// The error of `created`, if seats cannot be used either, or if it may go away.
pub fn without_notes(created: Result<(), StoreError>, has_seats: bool) -> Result<Option<StoreError>, StoreError> {
    match created {
        Err(error) if has_seats && error.fault() == Fault::Denied => Ok(Some(error)),
        created => created.map(|()| None),
    }
}

/// Logs why there are no notes, at most once for each `has_warned`.
pub fn warn_without_notes(server: &dyn fmt::Display, why: Option<&StoreError>, has_warned: &AtomicBool) {
    if let Some(error) = why.filter(|_| !has_warned.swap(true, Ordering::Relaxed)) {
        tracing::warn!(
            %server,
            %error,
            "elections run without notes: candidates are not listed, and leaders get no requests"
        );
    }
}

/// Answers for each note of a call whether it existed, from the numbers of those that did. Returns whether a process
/// has announced itself for the first time: then delete what dead processes have left.
pub fn answer_written(notes: &[NoteWrite], existed: &[usize], to: &Answers<NoteState>) -> bool {
    let is_new = |(place, note): (usize, &NoteWrite)| {
        let existed = existed.contains(&(place + 1));
        to.set(place, Ok(if existed { NoteState::Present } else { NoteState::Absent }));
        note.board == Board::Processes && !existed
    };
    notes.iter().enumerate().filter(|note| is_new(*note)).count() > 0
}

/// Answers with the notes of each board of a call, from rows with the number of the board.
pub fn answer_listed(boards: usize, rows: impl Iterator<Item = (usize, Note)>, to: &Answers<Vec<Note>>) {
    let mut listed = vec![Vec::new(); boards];
    for (number, note) in rows {
        if let Some(notes) = listed.get_mut(number.wrapping_sub(1)) {
            notes.push(note);
        }
    }
    listed.into_iter().enumerate().for_each(|(place, notes)| to.set(place, Ok(notes)));
}

/// Returns the name of the seat that a board belongs to. A board without a seat has the empty name, which no seat has.
pub fn seat_of(board: &Board) -> &str {
    board.seat().map_or("", |seat| seat.as_str())
}

/// Returns a lifetime in microseconds, at most a century: a longer one could overflow a timestamp.
pub fn micros(lifetime: Duration) -> i64 {
    i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX).min(3_155_760_000_000_000)
}
