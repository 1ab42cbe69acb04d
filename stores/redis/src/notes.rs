//! Notes: fields of a hash that expire by the server's clock.
//!
//! ```text
//!  tenure:{SEAT}:requests           key → expires value
//!  tenure:{SEAT}:candidates         key → expires value
//!  tenure:{processes}:processes     key → expires value
//! ```

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, Notes, StoreError};

use crate::script_calls::ScriptCall;
use crate::scripts;
use crate::store::RedisStore;

impl Notes for RedisStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        let script = |(place, note): (usize, &NoteWrite)| {
            let (key, slot) = self.names().board(&note.board);
            let channel = match &note.board {
                Board::Requests(seat) => self.names().keys(seat).channel,
                Board::Candidates(_) | Board::Processes => String::new(),
            };
            let lifetime = note.value.as_ref().map_or(0, |_| millis(note.lifetime)).to_string();
            let arguments = vec![note.key.clone(), lifetime, note.value.clone().unwrap_or_default(), channel];
            ScriptCall::new(place, slot, &scripts::NOTE, vec![key], arguments)
        };
        self.run(notes.iter().enumerate().map(script).collect(), None, &|place, answer| {
            let was =
                answer.map(|(_, value)| if value == Value::Int(1) { NoteState::Present } else { NoteState::Absent });
            let is_process = notes.get(place).is_some_and(|note| note.board == Board::Processes);
            to.set(
                place,
                was.map(|was| if is_process && self.may_have_lost_notes() { NoteState::Absent } else { was }),
            );
        })
        .await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        let script = |(place, board): (usize, &Board)| {
            let (key, slot) = self.names().board(board);
            ScriptCall::new(place, slot, &scripts::LIST, vec![key], Vec::new())
        };
        self.run(boards.iter().enumerate().map(script).collect(), None, &|place, answer| {
            to.set(
                place,
                answer.and_then(|(connection, value)| {
                    let listed: Vec<(String, String)> = redis::from_redis_value(value).map_err(|_| {
                        StoreError::denied(format!(
                            "{} returned an invalid list of notes; check whether another program uses this ?prefix=",
                            connection.address
                        ))
                    })?;
                    Ok(listed.into_iter().map(|(key, value)| Note { key, value }).collect())
                }),
            );
        })
        .await
    }
}

impl RedisStore {
    /// Returns whether a server may have lost notes since the last call of this function. In a cluster, that may be
    /// another node than the one with the board of processes.
    fn may_have_lost_notes(&self) -> bool {
        let losses = self.servers.losses();
        self.losses.swap(losses, Ordering::Relaxed) != losses
    }
}

/// Returns a lifetime in whole milliseconds, at most ten years: every server accepts that number.
fn millis(lifetime: Duration) -> u128 {
    lifetime.min(Duration::from_secs(315_360_000)).as_nanos().div_ceil(1_000_000).max(1)
}
