//! Notes: keys that expire with a lease of their own.
//!
//! A process announces itself again and again by the same note. After the first time, this only keeps the lease
//! of the note alive, and writes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use tenure_core::{Answers, Board, Note, NoteState, NoteWrite, Notes, StoreError};

use crate::connection::EtcdConnection;
use crate::lock;
use crate::store::EtcdStore;
use crate::wire::{TxnRequest, delete, get_key, put, range, under};

/// The notes by which this process has announced itself, by key: the note, and its etcd lease.
pub(crate) type Processes = Mutex<HashMap<String, (NoteWrite, i64)>>;

impl Notes for EtcdStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        if let [note] = notes
            && self.keep_alive_note(&connection, note).await?
        {
            to.set(0, Ok(NoteState::Present));
            return Ok(());
        }
        let puts = notes.iter().filter(|note| note.value.is_some());
        let mut leases = BTreeMap::new();
        for seconds in puts.map(|note| seconds(note.lifetime)).collect::<BTreeSet<_>>() {
            leases.insert(seconds, connection.grant(seconds).await?.id);
        }
        let keys: Vec<_> = notes.iter().map(|note| self.keys.board(&note.board) + &note.key).collect();
        // A transaction of its own, because a member accepts 128 operations in one. Each note has one writer at a
        // time.
        let mut before = connection.txn(TxnRequest::of(keys.iter().map(|key| get_key(key)))).await?;
        let write = |(note, key): (&NoteWrite, &String)| match &note.value {
            Some(value) => put(key, value.clone(), leases[&seconds(note.lifetime)]),
            None => delete(key),
        };
        connection.txn(TxnRequest::of(notes.iter().zip(&keys).map(write))).await?;
        for place in 0..notes.len() {
            let was = if before.found(place).is_empty() { NoteState::Absent } else { NoteState::Present };
            to.set(place, Ok(was));
        }
        for note in notes.iter().filter(|note| note.board == Board::Processes) {
            match leases.get(&seconds(note.lifetime)).filter(|_| note.value.is_some()) {
                Some(lease) => lock(&self.processes).insert(note.key.clone(), (note.clone(), *lease)),
                None => lock(&self.processes).remove(&note.key),
            };
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let keys: Vec<_> = boards.iter().map(|board| self.keys.board(board)).collect();
        let mut answer = connection.txn(TxnRequest::of(keys.iter().map(|key| range(under(key))))).await?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
        for (place, board) in keys.iter().enumerate() {
            let found = answer.found(place);
            let note = |key: &[u8], value| Some(Note { key: text(key.get(board.len()..)?)?, value: text(value)? });
            to.set(place, Ok(found.iter().filter_map(|kv| note(&kv.key, &kv.value)).collect()));
        }
        Ok(())
    }
}

impl EtcdStore {
    /// Keeps the lease of a note alive if this process has put the same note before. Returns whether the note
    /// still exists.
    async fn keep_alive_note(&self, connection: &EtcdConnection, note: &NoteWrite) -> Result<bool, StoreError> {
        let known = lock(&self.processes).get(&note.key).filter(|(put, _)| put == note).map(|(_, lease)| *lease);
        let Some(lease) = known else { return Ok(false) };
        if !connection.keep_alive(lease).await? {
            return Ok(false);
        }
        let key = self.keys.board(&note.board) + &note.key;
        Ok(!connection.txn(TxnRequest::of([get_key(&key)])).await?.found(0).is_empty())
    }
}

/// Converts to whole seconds, rounded up, and at most ten years.
fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX).clamp(1, 315_360_000)
}
