//! The board: requests, which expire, and announcements, which last while their process attends.
//!
//! ```text
//!  tenure:{SEAT}:requests        key → expires lifetime value
//!  tenure:{SEAT}:announcements   process → nonce lifetime value      written once
//!  tenure:{PROCESS}:present      expires unless the process attends  one for all its seats
//! ```
//!
//! # Why nobody is swept away who stands
//!
//! An announcement is swept only if its process was found absent after it was read, and only if it is
//! still the very one that was read: every put has a nonce of its own. A process that was absent is told
//! so when it attends next, and puts its announcements again after that, with other nonces.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use redis::Value;
use tenure_core::{Attended, Board, Incarnation, Note, NoteKind, SeatName, StoreError};

use crate::keys::presence;
use crate::scripts;
use crate::store::{RedisStore, still_open};

/// At every so many announcements on a board, those of processes that are gone are swept away.
const SWEEP_AT: i64 = 8;

/// A process that was there so recently is not asked for again: lists of many boards ask once for all.
const RECENTLY: Duration = Duration::from_secs(1);

/// What is known of processes.
#[derive(Default)]
pub(crate) struct Presence {
    /// Until when others are taken to be there, as their keys had as long to live when asked for.
    there: Mutex<HashMap<String, Instant>>,
    /// How often servers may have lost something when a process of ours attended.
    attended: Mutex<HashMap<Incarnation, u64>>,
}

impl Board for RedisStore {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        let keys = self.keys(seat);
        let (board, lifetime) = (keys.board(note.kind), millis(note.lifetime).to_string());
        if note.kind == NoteKind::Request {
            let with = [&note.key, &note.value, &lifetime, &keys.channel];
            return self.ask(keys.slot, &scripts::PUT, &[board], &with.map(String::as_str)).await.map(drop);
        }
        let text = format!("{:016x} {lifetime} {}", rand::random::<u64>(), note.value);
        let (_, answer) = self.ask(keys.slot, &scripts::ANNOUNCE, &[board], &[&note.key, &text]).await?;
        if matches!(answer, Value::Int(count) if count > 0 && count % SWEEP_AT == 0) {
            // Ours is there whatever becomes of this.
            if let Err(error) = self.announced(seat).await {
                tracing::debug!(%seat, %error, "announcements of processes that are gone could not be swept away");
            }
        }
        Ok(())
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        let (key, slot) = presence(&self.prefix, &process.to_string());
        let (_, answer) = self.ask(slot, &scripts::ATTEND, &[&key], &[&millis(lifetime).to_string()]).await?;
        // What another server was told may be lost although this one has our presence.
        let losses = self.servers.losses();
        let before = lock(&self.presence.attended).insert(process, losses);
        Ok(if answer == Value::Int(1) && before == Some(losses) { Attended::Still } else { Attended::Anew })
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        match kind {
            NoteKind::Request => self.requests(seat).await,
            NoteKind::Announcement => self.announced(seat).await,
        }
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        let keys = self.keys(seat);
        self.ask(keys.slot, &scripts::REMOVE, &[keys.board(kind)], &[key]).await.map(drop)
    }
}

impl RedisStore {
    async fn requests(&self, seat: &SeatName) -> Result<Vec<Note>, StoreError> {
        let kind = NoteKind::Request;
        let keys = self.keys(seat);
        let ear = self.servers.existing(keys.slot).and_then(|link| link.ear(&keys.channel));
        let requests = ear.as_ref().map_or(0, |ear| ear.heard().requests);
        let (link, answer) = self.ask(keys.slot, &scripts::LIST, &[keys.board(kind)], &[]).await?;
        let notes: Vec<_> = texts(&link.address, answer)?
            .chunks_exact(3)
            .map(|note| Note {
                kind,
                key: note[0].clone(),
                lifetime: Duration::from_millis(note[1].parse().unwrap_or_default()),
                value: note[2].clone(),
            })
            .collect();
        if notes.is_empty()
            && let Some(ear) = still_open(&link, &keys, ear)
        {
            ear.heard().no_requests = Some(requests);
        }
        Ok(notes)
    }

    /// The announcements of those who attend; the others are swept away.
    async fn announced(&self, seat: &SeatName) -> Result<Vec<Note>, StoreError> {
        let keys = self.keys(seat);
        let board = keys.board(NoteKind::Announcement);
        let (link, answer) = self.ask(keys.slot, &scripts::ANNOUNCED, &[board], &[]).await?;
        let all = texts(&link.address, answer)?;
        let there = try_join_all(all.chunks_exact(2).map(|note| self.is_there(&note[0]))).await?;
        let (mut notes, mut gone) = (Vec::new(), Vec::new());
        for (note, there) in all.chunks_exact(2).zip(there) {
            let mut parts = note[1].splitn(3, ' ').skip(1);
            match (parts.next().and_then(|lifetime| lifetime.parse().ok()), parts.next()) {
                (Some(lifetime), Some(value)) if there => notes.push(Note {
                    kind: NoteKind::Announcement,
                    key: note[0].clone(),
                    lifetime: Duration::from_millis(lifetime),
                    value: value.to_owned(),
                }),
                _ => gone.extend(note.iter().map(String::as_str)),
            }
        }
        if !gone.is_empty() {
            self.ask(keys.slot, &scripts::SWEEP, &[board], &gone).await?;
        }
        Ok(notes)
    }

    /// Whether a process attends.
    async fn is_there(&self, process: &str) -> Result<bool, StoreError> {
        let asked = Instant::now();
        if lock(&self.presence.there).get(process).is_some_and(|until| asked < *until) {
            return Ok(true);
        }
        let (key, slot) = presence(&self.prefix, process);
        let (_, answer) = self.ask(slot, &scripts::ATTENDS, &[&key], &[]).await?;
        let Value::Int(left) = answer else { return Ok(false) };
        let mut there = lock(&self.presence.there);
        there.retain(|_, until| asked < *until);
        if let Ok(left) = u64::try_from(left) {
            there.insert(process.to_owned(), asked + Duration::from_millis(left).min(RECENTLY));
        }
        // Not there is -2; -1 is for ever, which nobody here has said.
        Ok(left > -2)
    }
}

/// In whole milliseconds. Ten years are as good as for ever, and a number that every server takes.
fn millis(lifetime: Duration) -> u128 {
    lifetime.min(Duration::from_secs(315_360_000)).as_nanos().div_ceil(1_000_000).max(1)
}

fn texts(address: &str, answer: Value) -> Result<Vec<String>, StoreError> {
    redis::from_redis_value(answer)
        .map_err(|_| StoreError::denied(format!("{address} answers with something that is no board")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
