//! Notes: Lease objects of their own, so that they never change a seat.
//!
//! | board | label | found by |
//! |---|---|---|
//! | requests | the seat, under the same label as the seat itself | the watch of the seat |
//! | candidates | the seat, under another label | a list of the board |
//! | processes | `processes`, under that label | a list of the board |
//!
//! *Whether a note has expired* is decided without comparing the clocks of hosts. A reader that has seen the
//! object change counts its lifetime from then, on its own clock. Only at first sight there is nothing to compare
//! with, and the reader uses the API server's clock: the answer contains the server's current time, and the
//! object contains the server's time when it was written. The writer derived the latter from an earlier answer of
//! the server and its own clock since then. If the clocks of several servers differ, the first decision can be
//! wrong, for at most a lifetime. It decides which candidates are listed, never which one leads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use tenure_core::{Answers, Board, Moment, Note, NoteState, NoteWrite, Notes, StoreError};
use tenure_kit::lock;
use tokio::task::JoinSet;

use crate::api::{Api, Which};
use crate::lease::{Lease, micro_time};
use crate::names;
use crate::store::KubernetesStore;

/// What this process knows about notes.
#[derive(Default)]
pub(crate) struct Known {
    /// By the uid of the object: the version that was last seen, since when, and whether it was the first one.
    sightings: Mutex<HashMap<String, Sighting>>,
    /// The notes that this process announces, by object name, as last written and when. Each is put again and again.
    announced: Mutex<HashMap<String, (Lease, Moment)>>,
    tidying: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Sighting {
    version: String,
    since: Moment,
    is_first: bool,
}

/// A note that expired this long ago is removed by any process.
const LONG_GONE: Duration = Duration::from_secs(20);

impl Known {
    /// Whether a note has expired, as far as this process can know.
    fn is_expired(&self, object: &Lease, date: Option<Timestamp>, now: Moment) -> bool {
        let lifetime = lifetime(object);
        let mut sightings = lock(&self.sightings);
        let version = &object.metadata.resource_version;
        let before = sightings.get(&object.metadata.uid);
        let sight = match before.filter(|before| before.version == *version) {
            Some(sight) => sight.clone(),
            None => Sighting { version: version.clone(), since: now, is_first: before.is_none() },
        };
        sightings.insert(object.metadata.uid.clone(), sight.clone());
        if sightings.len() > 10_000 {
            // Forgets old entries. If one is still needed, it only costs another decision at first sight.
            sightings.retain(|_, sight| now.since(sight.since) < Duration::from_secs(600));
        }
        now.since(sight.since) >= lifetime || (sight.is_first && age(object, date).is_some_and(|age| age >= lifetime))
    }
}

/// Returns a lower bound for the age of an object's last write, by the server's clock.
fn age(object: &Lease, date: Option<Timestamp>) -> Option<Duration> {
    let span = date?.as_second().checked_sub(object.touched()?.as_second())?;
    // Both times are in whole seconds, and the answer arrived a moment later.
    u64::try_from(span.checked_sub(2)?).ok().map(Duration::from_secs)
}

fn lifetime(object: &Lease) -> Duration {
    Duration::from_millis(object.annotation(names::LIFETIME).and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn note_of(object: &Lease) -> Option<Note> {
    let text = |key| object.annotation(key).map(ToOwned::to_owned);
    Some(Note { key: text(names::KEY)?, value: text(names::VALUE)? })
}

/// Returns the label that selects the notes of a board, and its value.
fn label(board: &Board) -> (&'static str, String) {
    let value = board.seat().map_or_else(|| board.kind().to_owned(), names::label_of);
    (if matches!(board, Board::Requests(_)) { names::SEAT } else { names::BOARD }, value)
}

impl KubernetesStore {
    async fn write_note(&self, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let name = names::note(&note.board, &note.key);
        let Some(value) = &note.value else {
            lock(&self.known.announced).remove(&name);
            return self.api.delete(&name).await.map(|was| if was { NoteState::Present } else { NoteState::Absent });
        };
        self.api.admit()?;
        let is_announced = !matches!(note.board, Board::Requests(_));
        let (before, now) = (lock(&self.known.announced).get(&name).cloned(), self.now());
        // If this process was paused for so long, readers no longer list its note, although the object still exists.
        let has_expired = before.as_ref().is_some_and(|(object, put_at)| now.since(*put_at) >= lifetime(object));
        let before = before.map(|(object, _)| object);
        let mut object = before.clone().unwrap_or_else(|| Lease::new(name.clone()));
        let (label, label_value) = label(&note.board);
        object.metadata.labels.insert(label.to_owned(), label_value);
        object.metadata.labels.insert(names::NOTE.to_owned(), note.board.kind().to_owned());
        // In milliseconds, rounded up.
        let lifetime = note.lifetime.as_nanos().div_ceil(1_000_000).to_string();
        // The server's current time, as far as it is known.
        let at = self.api.server_time().map(|now| (names::AT, now.to_string()));
        let seat = note.board.seat().map(|seat| (names::NAME, seat.as_str().to_owned()));
        let pairs = [(names::KEY, note.key.clone()), (names::VALUE, value.clone()), (names::LIFETIME, lifetime)];
        let pairs = pairs.into_iter().chain(at).chain(seat);
        object.metadata.annotations.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
        // Makes the object differ from the one before, so that a note that is put again counts as new.
        object.spec.renew_time = Some(micro_time(Timestamp::now()));
        let kept = if before.is_some() { self.api.replace(&object).await? } else { None };
        let (written, was) = match kept {
            Some(written) => (written, if has_expired { NoteState::Absent } else { NoteState::Present }),
            None => self.put_object(object).await?,
        };
        if is_announced {
            lock(&self.known.announced).insert(name, (written, now));
        }
        if note.board == Board::Processes && was == NoteState::Absent {
            self.tidy();
        }
        Ok(was)
    }

    /// Creates an object, or replaces the one with that name, whatever it contains.
    async fn put_object(&self, mut object: Lease) -> Result<(Lease, NoteState), StoreError> {
        object.metadata.uid.clear();
        object.metadata.resource_version.clear();
        if let Some(made) = self.api.create(&object).await? {
            return Ok((made, NoteState::Absent));
        }
        let found = self.api.list(&Which::Name(object.metadata.name.clone())).await?.items.into_iter().next();
        let contended = || StoreError::refused("another process is writing the same note; retry");
        let found = found.ok_or_else(contended)?;
        object.metadata.uid = found.metadata.uid;
        object.metadata.resource_version = found.metadata.resource_version;
        self.api.replace(&object).await?.map(|written| (written, NoteState::Present)).ok_or_else(contended)
    }

    async fn list_board(&self, board: &Board) -> Result<Vec<Note>, StoreError> {
        self.api.admit()?;
        let (label, label_value) = label(board);
        let which = format!("{label}={label_value},{}={}", names::NOTE, board.kind());
        let list = self.api.list(&Which::Labels(which)).await?;
        let (over, notes): (Vec<_>, Vec<_>) =
            list.items.iter().partition(|object| self.known.is_expired(object, list.date, self.now()));
        if matches!(board, Board::Requests(_)) {
            for object in over {
                // Otherwise it would wake every later leader.
                self.api.delete_unchanged(object).await?;
            }
        }
        Ok(notes.into_iter().filter_map(note_of).collect())
    }

    /// Removes the notes of processes that ended long ago. No call waits for this. If it fails, the next process
    /// that starts removes them.
    fn tidy(&self) {
        let mut tidying = lock(&self.known.tidying);
        while tidying.try_join_next().is_some() {}
        tidying.spawn(tidy(self.api.clone()));
    }
}

async fn tidy(api: Arc<Api>) {
    let Ok(list) = api.list(&Which::Labels(names::BOARD.to_owned())).await else { return };
    let gone = |object: &&Lease| age(object, list.date).is_some_and(|age| age >= lifetime(object) + LONG_GONE);
    for object in list.items.iter().filter(gone).take(100) {
        if api.delete_unchanged(object).await.is_err() {
            return;
        }
    }
}

impl Notes for KubernetesStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        let each = notes.iter().enumerate().map(async |(at, note)| to.set(at, self.write_note(note).await));
        join_all(each).await;
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        let each = boards.iter().enumerate().map(async |(at, board)| to.set(at, self.list_board(board).await));
        join_all(each).await;
        Ok(())
    }
}
