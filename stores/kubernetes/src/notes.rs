//! Notes are objects of their own, so that they never change a seat.
//!
//! | board | labels | who hears of it |
//! |---|---|---|
//! | requests | the seat's mark, as the seat has it | whoever watches the seat |
//! | candidates | the seat's mark, under another label | whoever lists the board |
//! | processes | that it is one, under the same label | the same |
//!
//! *When a note has expired* is judged without comparing the clocks of hosts: a reader that has seen the object
//! change counts its lifetime from then, on its own clock. Only at first sight, when there is nothing to
//! compare with, the API server's clock is asked: what time it is there stands in its answer, and what time
//! it was there stands in the object, as its writer had it from the server's answer before, counted on
//! by its own clock since. Servers whose clocks are apart can make that first answer wrong, for no longer than a
//! lifetime; nobody leads by it.

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

/// What is known of notes.
#[derive(Default)]
pub(crate) struct Known {
    /// By the uid of the object: which write of it was seen, since when, and whether it is the first that
    /// was.
    sights: Mutex<HashMap<String, Sight>>,
    /// What this process announces, by the names of the objects, as they were last written: each is put again and again.
    announced: Mutex<HashMap<String, Lease>>,
    tidying: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Sight {
    version: String,
    since: Moment,
    is_first: bool,
}

/// How long a note has expired before others remove it.
const LONG_GONE: Duration = Duration::from_secs(20);

impl Known {
    /// Whether a note has expired, as far as can be seen from here.
    fn is_over(&self, object: &Lease, date: Option<Timestamp>, now: Moment) -> bool {
        let lifetime = lifetime(object);
        let mut sights = lock(&self.sights);
        let version = &object.metadata.resource_version;
        let before = sights.get(&object.metadata.uid);
        let sight = match before.filter(|before| before.version == *version) {
            Some(sight) => sight.clone(),
            None => Sight { version: version.clone(), since: now, is_first: before.is_none() },
        };
        sights.insert(object.metadata.uid.clone(), sight.clone());
        if sights.len() > 10_000 {
            // What was there long ago: it costs no more than another first sight.
            sights.retain(|_, sight| now.since(sight.since) < Duration::from_secs(600));
        }
        now.since(sight.since) >= lifetime || (sight.is_first && age(object, date).is_some_and(|age| age >= lifetime))
    }
}

/// How old the last write of an object is at least, by the server's clock.
fn age(object: &Lease, date: Option<Timestamp>) -> Option<Duration> {
    let span = date?.as_second().checked_sub(object.touched()?.as_second())?;
    // It was told in whole seconds, and heard a moment later.
    u64::try_from(span.checked_sub(2)?).ok().map(Duration::from_secs)
}

fn lifetime(object: &Lease) -> Duration {
    Duration::from_millis(object.annotation(names::LIFETIME).and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn note_of(object: &Lease) -> Option<Note> {
    let text = |key| object.annotation(key).map(ToOwned::to_owned);
    Some(Note { key: text(names::KEY)?, value: text(names::VALUE)? })
}

/// The label that the notes of a board go by, and its value.
fn label(board: &Board) -> (&'static str, String) {
    let mark = board.seat().map_or_else(|| board.kind().to_owned(), names::mark_of);
    (if matches!(board, Board::Requests(_)) { names::SEAT } else { names::BOARD }, mark)
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
        let before = lock(&self.known.announced).get(&name).cloned();
        let mut object = before.clone().unwrap_or_else(|| Lease::new(name.clone()));
        let (label, mark) = label(&note.board);
        object.metadata.labels.insert(label.to_owned(), mark);
        object.metadata.labels.insert(names::NOTE.to_owned(), note.board.kind().to_owned());
        // In milliseconds, never less than it is.
        let lifetime = note.lifetime.as_nanos().div_ceil(1_000_000).to_string();
        // What time it is for the server, as far as that is known.
        let at = self.api.server_time().map(|now| (names::AT, now.to_string()));
        let seat = note.board.seat().map(|seat| (names::NAME, seat.as_str().to_owned()));
        let pairs = [(names::KEY, note.key.clone()), (names::VALUE, value.clone()), (names::LIFETIME, lifetime)];
        let pairs = pairs.into_iter().chain(at).chain(seat);
        object.metadata.annotations.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
        // So that one that is put again differs from the one before, and is as young as it is.
        object.spec.renew_time = Some(micro_time(Timestamp::now()));
        let kept = if before.is_some() { self.api.replace(&object).await? } else { None };
        let (written, was) = match kept {
            Some(written) => (written, NoteState::Present),
            None => self.put_object(object).await?,
        };
        if is_announced {
            lock(&self.known.announced).insert(name, written);
        }
        if note.board == Board::Processes && was == NoteState::Absent {
            self.tidy();
        }
        Ok(was)
    }

    /// Makes an object, or replaces the one of that name whatever it says.
    async fn put_object(&self, mut object: Lease) -> Result<(Lease, NoteState), StoreError> {
        object.metadata.uid.clear();
        object.metadata.resource_version.clear();
        if let Some(made) = self.api.create(&object).await? {
            return Ok((made, NoteState::Absent));
        }
        let found = self.api.list(&Which::Name(object.metadata.name.clone())).await?.items.into_iter().next();
        let contended = || StoreError::refused("another process writes the same note right now");
        let found = found.ok_or_else(contended)?;
        object.metadata.uid = found.metadata.uid;
        object.metadata.resource_version = found.metadata.resource_version;
        self.api.replace(&object).await?.map(|written| (written, NoteState::Present)).ok_or_else(contended)
    }

    async fn list_board(&self, board: &Board) -> Result<Vec<Note>, StoreError> {
        self.api.admit()?;
        let (label, mark) = label(board);
        let which = format!("{label}={mark},{}={}", names::NOTE, board.kind());
        let list = self.api.list(&Which::Labels(which)).await?;
        let (over, notes): (Vec<_>, Vec<_>) =
            list.items.iter().partition(|object| self.known.is_over(object, list.date, self.now()));
        if matches!(board, Board::Requests(_)) {
            for object in over {
                // Or it would wake every leader to come.
                self.api.delete(&object.metadata.name).await?;
            }
        }
        Ok(notes.into_iter().filter_map(note_of).collect())
    }

    /// Removes what processes have left that are long gone. Nobody waits for it, and the next process removes what this
    /// one could not.
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
        if api.delete(&object.metadata.name).await.is_err() {
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
