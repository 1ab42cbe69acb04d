//! Notes: keys that are locked by a session, and deleted when it ends.
//!
//! Notes with the same lifetime share a session, which is renewed when one of them is put. So a note exists for
//! at least its lifetime, and longer while its process puts other notes with the same lifetime. A note that is
//! put again unchanged is not written.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tenure_core::{Answers, Board, Moment, Note, NoteState, NoteWrite, Notes, StoreError};

use crate::client::HttpRequest;
use crate::keys::unescaped;
use crate::kv::{self, Entry, Op, Outcome};
use crate::session::{LONGEST, SessionSpec};
use crate::store::ConsulStore;

/// The sessions of notes by lifetime, each with its last renewal. The lock is held while a session is created, so
/// that only one is.
pub(crate) type NoteSessions = tokio::sync::Mutex<HashMap<Duration, (String, Moment)>>;

/// A session that was renewed within this time is not renewed for another note. Its TTL is longer by as much.
const RENEW_AFTER: Duration = Duration::from_secs(1);

impl Notes for ConsulStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        for (place, note) in notes.iter().enumerate() {
            to.set(place, self.write_note(note).await);
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        let is_watched = |board: &Board| matches!(board, Board::Requests(_));
        let folders: Vec<_> = boards.iter().map(|board| (board, self.keys.board(board))).collect();
        // The watch covers requests, so the mirror has them.
        let tree = if boards.iter().any(is_watched) { Some(self.mirror.proven().await?) } else { None };
        let others = folders.iter().filter(|(board, _)| !is_watched(board)).map(|(_, folder)| folder.clone());
        let others: Vec<_> = others.collect();
        let entries = if others.is_empty() { BTreeMap::new() } else { kv::get(&self.client, others).await? };
        for (place, (board, folder)) in folders.iter().enumerate() {
            let listed = match &tree {
                Some(tree) if is_watched(board) => tree.below(folder).map(|entry| note_of(folder, entry)).collect(),
                _ => entries
                    .values()
                    .filter(|entry| entry.key.starts_with(folder))
                    .map(|entry| note_of(folder, entry))
                    .collect(),
            };
            to.set(place, listed);
        }
        Ok(())
    }
}

impl ConsulStore {
    async fn write_note(&self, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let key = self.keys.note(&note.board, &note.key);
        let session = match &note.value {
            Some(_) => self.note_session(note.lifetime).await?,
            None => String::new(),
        };
        let before = kv::get(&self.client, [key.clone()]).await?.remove(&key);
        let was = if before.is_some() { NoteState::Present } else { NoteState::Absent };
        let Some(value) = &note.value else {
            kv::remove(&self.client, &key).await?;
            return Ok(was);
        };
        let is_same = |entry: &Entry| entry.session == session && entry.text().is_ok_and(|text| text == *value);
        if before.as_ref().is_some_and(is_same) {
            return Ok(was);
        }
        // Deletes the key first, because another session may have locked it.
        let ops = vec![Op::delete(&key), Op::lock(&key, value, &session)];
        match kv::transact(&self.client, ops).await? {
            Outcome::Done(_) => Ok(was),
            outcome => {
                self.note_sessions.lock().await.remove(&note.lifetime);
                outcome.or("cannot put the note; try again").map(|_| was)
            }
        }
    }

    /// Returns a session that lasts for this lifetime from now on.
    async fn note_session(&self, lifetime: Duration) -> Result<String, StoreError> {
        let now = self.mirror.now();
        let mut sessions = self.note_sessions.lock().await;
        if let Some((id, renewed)) = sessions.get_mut(&lifetime) {
            if now.since(*renewed) < RENEW_AFTER {
                return Ok(id.clone());
            }
            let renew = HttpRequest::put(format!("/v1/session/renew/{id}"), "").accept(404);
            if self.client.call(renew).await?.status != 404 {
                *renewed = now;
                return Ok(id.clone());
            }
        }
        // A whole number of seconds, within the limits of the server.
        let seconds = (lifetime + RENEW_AFTER).as_nanos().div_ceil(1_000_000_000);
        let time = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
        let id = SessionSpec::delete(time.clamp(self.min_lease, LONGEST)).create(&self.client).await?;
        sessions.insert(lifetime, (id.clone(), now));
        Ok(id)
    }
}

fn note_of(folder: &str, entry: &Entry) -> Result<Note, StoreError> {
    let key = entry.key.strip_prefix(folder).and_then(unescaped).ok_or_else(|| {
        StoreError::denied(format!("key {} was not written by Tenure; use another prefix", entry.key))
    })?;
    Ok(Note { key, value: entry.text()? })
}
