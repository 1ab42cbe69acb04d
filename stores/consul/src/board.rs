//! The board: requests that Consul removes by itself, and announcements that count while their process is
//! there.
//!
//! A request is locked by a session of its own, with the lifetime for its time, whose end removes it. That a
//! process is there is one key, locked by the session of its lifetime, which is that of its seats where both
//! last equally long: what it announces are plain keys that are listed while that one is locked. Whoever
//! comes anew clears away what processes have left behind that are gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{Attended, Clock, Incarnation, Moment, Note, NoteKind, SeatName, StoreError};

use crate::client::Client;
use crate::keys::{Keys, unescaped};
use crate::kv::{self, Entry, Op, Outcome, Unmet};
use crate::session::Terms;
use crate::sessions::Sessions;

pub(crate) struct Notes {
    client: Arc<Client>,
    keys: Keys,
    sessions: Arc<Sessions>,
    min_lease: Duration,
    /// The processes that attend through us, the session that says so, and when it was last seen to.
    attending: Mutex<HashMap<String, (String, Moment)>>,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Form {
    value: String,
    lifetime_ms: u64,
}

/// The most that one transaction may do.
const OPS: usize = 60;

impl Notes {
    pub(crate) fn new(client: Arc<Client>, keys: Keys, sessions: Arc<Sessions>, min_lease: Duration) -> Self {
        Self { client, keys, sessions, min_lease, attending: Mutex::default() }
    }

    pub(crate) async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        let lifetime_ms = u64::try_from(note.lifetime.as_millis()).unwrap_or(u64::MAX);
        let form = serde_json::to_string(&Form { value: note.value.clone(), lifetime_ms })
            .map_err(|error| StoreError::denied("no JSON").because(error))?;
        match note.kind {
            NoteKind::Request => {
                let session = Terms::delete(self.time(note.lifetime)).create(&self.client).await?;
                let key = self.keys.request(seat, &note.key);
                // Deleted first, as the session of an earlier one may have locked it.
                let ops = vec![Op::delete(&key), Op::lock(&key, &form, &session)];
                self.must(kv::transact(&self.client, ops).await?, "the note could not be put")
            }
            NoteKind::Announcement => {
                let gone = || StoreError::refused("the process does not attend, or no longer: nothing was announced");
                let process = self.keys.process(&note.key);
                let known = self.lock().get(&note.key).cloned();
                let session = match known {
                    Some((session, _)) => session,
                    None => self.session_of(&process).await?.ok_or_else(gone)?,
                };
                let ops =
                    vec![Op::check_session(&process, &session), Op::set(self.keys.candidate(&note.key, seat), &form)];
                match kv::transact(&self.client, ops).await? {
                    Outcome::Done(_) => Ok(()),
                    Outcome::Unmet(unmet) => Err(self.obstacle(&unmet).unwrap_or_else(gone)),
                }
            }
        }
    }

    pub(crate) async fn attend(
        &self,
        process: Incarnation,
        lifetime: Duration,
        clock: &Clock,
    ) -> Result<Attended, StoreError> {
        let lifetime = self.time(lifetime);
        let session = self.sessions.fresh(lifetime, lifetime / 4, clock).await?;
        let name = process.to_string();
        let key = self.keys.process(&name);
        let now = clock.now();
        // A session that lives keeps its lock. Should somebody have removed the key, that shows a lifetime later.
        let known = self.lock().get(&name).is_some_and(|(id, at)| *id == session.id && now.since(*at) < lifetime);
        if known {
            return Ok(Attended::Still);
        }
        let entries = kv::get(&self.client, [key.clone()]).await?;
        let entry = entries.iter().find(|entry| entry.key == key);
        if entry.is_some_and(|entry| entry.session == session.id) {
            self.lock().insert(name, (session.id.clone(), now));
            return Ok(Attended::Still);
        }
        // No condition but the locks: whether it is there unlocked, or was cleared away just now, is the same.
        let mut ops = Vec::new();
        let before = entry.map(|entry| entry.session.as_str()).filter(|before| !before.is_empty());
        if let Some(before) = before {
            ops.push(Op::unlock(&key, "", before));
        }
        ops.push(Op::lock(&key, "", &session.id));
        self.must(kv::transact(&self.client, ops).await?, "the process could not attend: it is tried again")?;
        self.lock().insert(name, (session.id.clone(), now));
        if before.is_some() {
            return Ok(Attended::Still);
        }
        if let Err(error) = self.clear_away().await {
            tracing::debug!(%error, "what others have left behind stays for now");
        }
        Ok(Attended::Anew)
    }

    pub(crate) async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        match kind {
            NoteKind::Request => {
                let folder = self.keys.requests(seat);
                let entries = kv::get(&self.client, [folder.clone()]).await?;
                entries.iter().map(|entry| note_of(kind, entry.key.strip_prefix(&folder), entry)).collect()
            }
            NoteKind::Announcement => {
                let there = self.processes().await?.into_iter().filter(|(_, entry)| !entry.session.is_empty());
                let there: Vec<_> = there.map(|(name, _)| (self.keys.candidate(&name, seat), name)).collect();
                let mut notes = Vec::new();
                for some in there.chunks(OPS) {
                    let entries = kv::get(&self.client, some.iter().map(|(key, _)| key.clone())).await?;
                    for entry in &entries {
                        let name = some.iter().find(|(key, _)| *key == entry.key).map(|(_, name)| name.as_str());
                        notes.push(note_of(kind, name, entry)?);
                    }
                }
                Ok(notes)
            }
        }
    }

    pub(crate) async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        let key = match kind {
            NoteKind::Request => self.keys.request(seat, key),
            NoteKind::Announcement => self.keys.candidate(key, seat),
        };
        kv::remove(&self.client, &key).await
    }

    /// Removes what all processes have announced for a seat.
    pub(crate) async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let processes = self.processes().await?;
        for some in processes.chunks(OPS) {
            let ops = some.iter().map(|(name, _)| Op::delete(self.keys.candidate(name, seat))).collect();
            self.must(kv::transact(&self.client, ops).await?, "the board could not be cleared")?;
        }
        Ok(())
    }

    /// Removes what is left of processes that are gone, unless they are back by then.
    async fn clear_away(&self) -> Result<(), StoreError> {
        let gone = self.processes().await?.into_iter().filter(|(_, entry)| entry.session.is_empty());
        for (name, entry) in gone {
            let ops = vec![
                Op::check_index(&entry.key, entry.modify_index),
                Op::delete(&entry.key),
                Op::delete_tree(self.keys.candidates(&name)),
            ];
            kv::transact(&self.client, ops).await?;
        }
        Ok(())
    }

    /// The session that says that a process is there.
    async fn session_of(&self, process: &str) -> Result<Option<String>, StoreError> {
        let entries = kv::get(&self.client, [process.to_owned()]).await?;
        let entry = entries.into_iter().find(|entry| entry.key == process && !entry.session.is_empty());
        Ok(entry.map(|entry| entry.session))
    }

    async fn processes(&self) -> Result<Vec<(String, Entry)>, StoreError> {
        let folder = self.keys.processes();
        let entries = kv::get(&self.client, [folder.clone()]).await?;
        let named = entries.into_iter().filter_map(|entry| Some((unescaped(entry.key.strip_prefix(&folder)?)?, entry)));
        Ok(named.collect())
    }

    /// The time of a session that lasts this long: whole seconds, and what the server keeps.
    fn time(&self, lifetime: Duration) -> Duration {
        let seconds = lifetime.as_secs() + u64::from(lifetime.subsec_nanos() > 0);
        Duration::from_secs(seconds).clamp(self.min_lease, Duration::from_secs(86_400))
    }

    fn must(&self, outcome: Outcome, otherwise: &str) -> Result<(), StoreError> {
        match outcome {
            Outcome::Done(_) => Ok(()),
            Outcome::Unmet(unmet) => Err(self.obstacle(&unmet).unwrap_or_else(|| StoreError::refused(otherwise))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (String, Moment)>> {
        self.attending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn obstacle(&self, unmet: &[Unmet]) -> Option<StoreError> {
        kv::is_session_over(&self.client, unmet).err()
    }
}

fn note_of(kind: NoteKind, key: Option<&str>, entry: &Entry) -> Result<Note, StoreError> {
    let form: Option<Form> = serde_json::from_str(&entry.text()?).ok();
    match (key.and_then(unescaped), form) {
        (Some(key), Some(form)) => {
            Ok(Note { kind, key, value: form.value, lifetime: Duration::from_millis(form.lifetime_ms) })
        }
        _ => Err(StoreError::denied(format!("the key {} holds something that Tenure did not write", entry.key))),
    }
}
