//! The seats, notes or boards that a statement is about, as a JSON array: most databases can turn one into rows, and the
//! statement stays the same however many there are.
//!
//! Each object has its `place` in the call, from 1. Members that would be null are left out. Names are hexadecimal digits
//! of their UTF-8, which need no quoting and which no collation changes.

use serde_json::{Map, Value, json};
use tenure_core::{Board, NoteWrite, SeatName, record};

use super::notes::{micros, seat_of};
use super::rows::{RowWrite, WriteKind, WriteSet};

/// Returns seats to read or to unlock: their `name`, and the `lock_name` that the function returns.
pub fn seats(seats: &[SeatName], lock_name: impl Fn(&SeatName) -> Option<String>) -> Value {
    array(seats.iter().map(|seat| json!({ "name": hex(seat.as_str()), "lock_name": lock_name(seat) })))
}

/// Returns the seats of a write. `session` holds the seats that the write takes.
///
/// The new row has `name`, `record`, `version`, `token`, `holder` and `session`. The old one must have the version `held`
/// (a renewal: the holder `held`) and the session `held_by`, in the data `identity`.
pub fn writes(set: &WriteSet, session: Option<i64>, lock_name: impl Fn(&SeatName) -> Option<String>) -> Value {
    array(set.rows.iter().map(|row: &RowWrite| {
        let (write, expected) = (&row.write, row.expected.as_ref());
        let held = match set.kind {
            WriteKind::Renewal => row.holder(),
            WriteKind::New | WriteKind::Next => expected.map(|parts| parts.write.clone()),
        };
        json!({
            "name": hex(write.seat.as_str()),
            "record": record::to_json(&write.record),
            "version": row.number,
            "token": write.record.token.get(),
            "holder": row.holder(),
            "session": session.filter(|_| !write.record.is_vacant()),
            "held": held,
            "held_by": expected.and_then(|parts| parts.session),
            "identity": row.expected_identity(),
            "lock_name": lock_name(&write.seat),
        })
    }))
}

/// Returns notes to write: `seat`, `kind` and `key` say which, `lifetime` is in microseconds, and a note without a `value`
/// is removed.
pub fn notes(notes: &[NoteWrite]) -> Value {
    array(notes.iter().map(|note| {
        let (seat, kind, key) = (hex(seat_of(&note.board)), note.board.kind(), hex(&note.key));
        json!({ "seat": seat, "kind": kind, "key": key, "value": note.value, "lifetime": micros(note.lifetime) })
    }))
}

/// Returns boards to list: their `seat` and `kind`.
pub fn boards(boards: &[Board]) -> Value {
    array(boards.iter().map(|board| json!({ "seat": hex(seat_of(board)), "kind": board.kind() })))
}

/// Returns a new number for a write: sixteen random hexadecimal digits.
pub fn new_number() -> String {
    format!("{:016x}", rand::random::<u64>())
}

/// Returns the hexadecimal digits of a text.
pub fn hex(text: &str) -> String {
    let digits = text.bytes().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn array(objects: impl Iterator<Item = Value>) -> Value {
    let numbered = objects.enumerate().map(|(place, object)| {
        let mut members = Map::from_iter([("place".to_owned(), json!(place + 1))]);
        if let Value::Object(object) = object {
            members.extend(object.into_iter().filter(|(_, value)| !value.is_null()));
        }
        Value::Object(members)
    });
    numbered.collect()
}
