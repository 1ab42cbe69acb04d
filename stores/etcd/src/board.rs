//! The board: notes as keys that end with a lease.
//!
//! A request has a lease of its own, which nobody keeps alive. An announcement hangs on the session of its
//! process, and is listed only while its process attends, which is a key of its own: that counts for as long as
//! was said last, and an announcement stays as it was put.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::{Attended, Clock, Incarnation, Note, NoteKind, SeatName, StoreError};

use crate::keys::Keys;
use crate::line::Line;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::wire::{RangeRequest, TxnRequest, created_at, delete, put, range, under};

pub(crate) struct Boards {
    line: Arc<Line>,
    keys: Keys,
    sessions: Arc<Sessions>,
    /// What each process that attends here hangs on.
    attending: Mutex<HashMap<String, Attendance>>,
}

#[derive(Clone)]
struct Attendance {
    /// Where its key is.
    at: Arc<Session>,
    /// Where announcements of it may be.
    put_on: Vec<Arc<Session>>,
}

impl Boards {
    pub(crate) fn new(line: Arc<Line>, keys: Keys, sessions: Arc<Sessions>) -> Self {
        Self { line, keys, sessions, attending: Mutex::default() }
    }

    pub(crate) async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        let link = self.line.link().await?;
        let key = self.keys.board(seat, note.kind) + &note.key;
        let session = match note.kind {
            NoteKind::Request => None,
            NoteKind::Announcement => self.attending().get(&note.key).map(|attendance| attendance.at.clone()),
        };
        let value = format!("{}\n{}", note.lifetime.as_millis(), note.value);
        let (lease, compare) = match &session {
            Some(session) => (session.id, vec![created_at(&session.live_key, session.created)]),
            None => (link.grant(seconds(note.lifetime)).await?.id, Vec::new()),
        };
        let put = TxnRequest { compare, success: vec![put(&key, value, lease)], failure: Vec::new() };
        let answer = match session {
            Some(_) => link.write(key, put).await?,
            // Its lease may be over by then, and that would fail all that goes with it.
            None => link.txn(put).await?,
        };
        match session {
            Some(session) if !answer.succeeded => {
                session.end();
                Err(StoreError::refused("the lease of this process is over"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn attend(
        &self,
        process: Incarnation,
        lifetime: Duration,
        clock: Clock,
    ) -> Result<Attended, StoreError> {
        let process = process.to_string();
        let lifetime = Duration::from_secs(seconds(lifetime).try_into().unwrap_or(1));
        let before = self.attending().get(&process).cloned();
        // What it has put before lasts only if all that it hangs on does.
        let mut put_on = before.as_ref().map(|before| before.put_on.clone()).unwrap_or_default();
        for session in &put_on {
            session.keep().await?;
        }
        let session = self.sessions.session(lifetime, clock).await?;
        session.keep().await?;
        let still = before
            .as_ref()
            .is_some_and(|before| before.put_on.iter().chain([&before.at]).all(|session| !session.is_over()));
        if !still {
            put_on.clear();
        }
        if !put_on.iter().any(|known| known.id == session.id) {
            put_on.push(session.clone());
        }
        if !still || before.is_none_or(|before| before.at.id != session.id) {
            let here = TxnRequest {
                compare: vec![created_at(&session.live_key, session.created)],
                success: vec![put(&(self.keys.attending() + &process), String::new(), session.id)],
                failure: Vec::new(),
            };
            if !self.line.link().await?.txn(here).await?.succeeded {
                session.end();
                return Err(StoreError::refused("the lease of this process is over"));
            }
        }
        self.attending().insert(process, Attendance { at: session, put_on });
        Ok(if still { Attended::Still } else { Attended::Anew })
    }

    pub(crate) async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        let link = self.line.link().await?;
        let board = self.keys.board(seat, kind);
        let (found, attending) = match kind {
            NoteKind::Request => (link.range(under(&board)).await?.kvs, None),
            NoteKind::Announcement => {
                let attending = RangeRequest { keys_only: true, ..under(&self.keys.attending()) };
                let ask = vec![range(under(&board)), range(attending)];
                let mut answer = link.txn(TxnRequest { success: ask, ..Default::default() }).await?;
                (answer.found(0), Some(answer.found(1)))
            }
        };
        let room = self.keys.attending().len();
        let attends = |key: &str| {
            attending.as_ref().is_none_or(|all| all.iter().any(|kv| kv.key.get(room..) == Some(key.as_bytes())))
        };
        let note = |key: &[u8], value: &[u8]| {
            let key = std::str::from_utf8(key.get(board.len()..)?).ok()?;
            let (lifetime, value) = std::str::from_utf8(value).ok()?.split_once('\n')?;
            let lifetime = Duration::from_millis(lifetime.parse().ok()?);
            attends(key).then(|| Note { kind, key: key.to_owned(), value: value.to_owned(), lifetime })
        };
        Ok(found.iter().filter_map(|kv| note(&kv.key, &kv.value)).collect())
    }

    pub(crate) async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        let link = self.line.link().await?;
        let key = self.keys.board(seat, kind) + key;
        let remove = TxnRequest { success: vec![delete(&key)], ..Default::default() };
        link.write(key, remove).await.map(drop)
    }

    fn attending(&self) -> MutexGuard<'_, HashMap<String, Attendance>> {
        self.attending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Whole seconds, rounded up; ten years are as good as for ever.
fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX).clamp(1, 315_360_000)
}
