//! The board: notes are objects of their own, so that they never change a seat.
//!
//! | object | labels | who hears of it |
//! |---|---|---|
//! | request | the seat's mark, as the seat has it | whoever watches the seat |
//! | announcement | the seat's mark, under another label | whoever lists the board |
//! | process | that it is one | the same |
//!
//! *Who is there.* A process writes its own object every so often, once for all elections that it stands
//! in. Whether it still does is judged without comparing the clocks of hosts: whoever has seen the object
//! change counts its lifetime from then, on its own clock. Only at first sight, when there is nothing to
//! compare with, the API server's clock is asked: what time it is there stands in its answer, and what time
//! it was there stands in the object, as whoever wrote it had it from the server's answer before, counted on
//! by its own clock since. Servers whose clocks are apart can make that first answer wrong, for no longer than a
//! lifetime; nobody leads by it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use tenure_core::{Attended, Board, Clock, Incarnation, Moment, Note, NoteKind, SeatName, StoreError};
use tokio::task::JoinSet;

use crate::api::{Api, Which};
use crate::lease::{Lease, micro_time};
use crate::names;
use crate::store::KubernetesStore;

/// What is known of boards.
#[derive(Default)]
pub(crate) struct Notes {
    clock: OnceLock<Clock>,
    /// By the uid of the object: which write of it was seen, since when, and whether it is the first that
    /// was.
    sights: Mutex<HashMap<String, Sight>>,
    /// Processes that attend by way of this store: their objects, and until when each is there.
    attending: Mutex<HashMap<Incarnation, (Lease, Moment)>>,
    tidying: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Sight {
    version: String,
    since: Moment,
    is_first: bool,
}

/// How long a process has been gone before others remove what it has left. One that comes back after all
/// finds its object gone, and announces itself anew.
const LONG_GONE: Duration = Duration::from_secs(20);

impl Notes {
    pub(crate) fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    fn now(&self) -> Moment {
        self.clock.get_or_init(Clock::system).now()
    }

    fn attending(&self) -> MutexGuard<'_, HashMap<Incarnation, (Lease, Moment)>> {
        self.attending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether an object has outlived its lifetime, as far as can be seen from here.
    fn is_over(&self, object: &Lease, date: Option<Timestamp>) -> bool {
        let lifetime = lifetime(object);
        let now = self.now();
        let mut sights = self.sights.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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

fn annotate(object: &mut Lease, pairs: &[(&str, &str)]) {
    object.metadata.annotations.extend(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
}

/// In milliseconds, never less than it is.
fn milliseconds(span: Duration) -> String {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).to_string()
}

fn note_of(kind: NoteKind, object: &Lease) -> Option<Note> {
    let text = |key| object.annotation(key).map(ToOwned::to_owned);
    Some(Note { kind, key: text(names::KEY)?, value: text(names::VALUE)?, lifetime: lifetime(object) })
}

impl KubernetesStore {
    /// Makes an object, or replaces the one of that name whatever it says.
    async fn put_object(&self, mut object: Lease) -> Result<Lease, StoreError> {
        if let Some(made) = self.api.create(&object).await? {
            return Ok(made);
        }
        let found = self.api.list(&Which::Name(object.metadata.name.clone())).await?.items.into_iter().next();
        let contended = || StoreError::refused("somebody else writes the same note right now");
        let found = found.ok_or_else(contended)?;
        object.metadata.uid = found.metadata.uid;
        object.metadata.resource_version = found.metadata.resource_version;
        self.api.replace(&object).await?.ok_or_else(contended)
    }

    /// Writes on an object what time it is for the server, as far as that is known.
    fn date(&self, object: &mut Lease) {
        if let Some(now) = self.api.server_time() {
            annotate(object, &[(names::AT, &now.to_string())]);
        }
    }

    /// Removes what processes have left that are long gone. Nobody waits for it, and what goes wrong the
    /// next one does.
    fn tidy(&self) {
        let mut tidying = self.notes.tidying.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while tidying.try_join_next().is_some() {}
        tidying.spawn(tidy(self.api.clone()));
    }
}

async fn tidy(api: Arc<Api>) {
    let Ok(list) = api.list(&Which::Labels(names::BOARD.to_owned())).await else { return };
    let gone = |object: &Lease| age(object, list.date).is_some_and(|age| age >= lifetime(object) + LONG_GONE);
    let (processes, notes): (Vec<_>, Vec<_>) =
        list.items.iter().partition(|object| object.label(names::BOARD) == Some(names::PROCESS));
    let is_there =
        |key: &str| processes.iter().any(|process| !gone(process) && process.annotation(names::KEY) == Some(key));
    let left = notes.into_iter().filter(|note| gone(note) && !note.annotation(names::KEY).is_some_and(is_there));
    for object in left.chain(processes.iter().copied().filter(|process| gone(process))).take(100) {
        if api.delete(&object.metadata.name).await.is_err() {
            return;
        }
    }
}

impl Board for KubernetesStore {
    async fn put(&self, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
        self.api.admit()?;
        let name = names::note(seat, note.kind, &note.key);
        let mut object = Lease::new(name.clone());
        let label = if note.kind == NoteKind::Request { names::SEAT } else { names::BOARD };
        object.metadata.labels.insert(label.to_owned(), names::mark_of(seat));
        object.metadata.labels.insert(names::NOTE.to_owned(), note.kind.as_str().to_owned());
        let lifetime = milliseconds(note.lifetime);
        let pairs = [(names::KEY, &*note.key), (names::VALUE, &*note.value), (names::LIFETIME, &*lifetime)];
        annotate(&mut object, &pairs);
        annotate(&mut object, &[(names::NAME, seat.as_str())]);
        self.date(&mut object);
        // So that one that is put again differs from the one before, and is as young as it is.
        object.spec.renew_time = Some(micro_time(Timestamp::now()));
        if let Some(post) = self.ears.existing(seat) {
            post.request(&name, true);
        }
        self.put_object(object).await.map(drop)
    }

    async fn attend(&self, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
        let sent = self.notes.now();
        let known = self.notes.attending().get(&process).cloned();
        self.api.admit()?;
        let was_there = known.as_ref().is_some_and(|(_, until)| sent < *until);
        let (mut object, is_new) = match known {
            Some((object, _)) => (object, false),
            None => (Lease::new(names::process(process)), true),
        };
        let key = process.to_string();
        object.metadata.labels.insert(names::BOARD.to_owned(), names::PROCESS.to_owned());
        annotate(&mut object, &[(names::KEY, &key), (names::LIFETIME, &milliseconds(lifetime))]);
        self.date(&mut object);
        object.spec.holder_identity = Some(key);
        object.spec.renew_time = Some(micro_time(Timestamp::now()));
        let kept = if is_new { None } else { self.api.replace(&object).await? };
        let (written, attended) = match kept {
            Some(written) if was_there => (written, Attended::Still),
            Some(written) => (written, Attended::Anew),
            None => {
                object.metadata.uid.clear();
                object.metadata.resource_version.clear();
                (self.put_object(object).await?, Attended::Anew)
            }
        };
        self.notes.attending().insert(process, (written, sent + lifetime));
        if attended == Attended::Anew {
            self.tidy();
        }
        Ok(attended)
    }

    async fn list(&self, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
        self.api.admit()?;
        let mark = names::mark_of(seat);
        if kind == NoteKind::Announcement {
            let which = format!("{} in ({mark},{})", names::BOARD, names::PROCESS);
            let list = self.api.list(&Which::Labels(which)).await?;
            let (processes, notes): (Vec<_>, Vec<_>) =
                list.items.iter().partition(|object| object.label(names::BOARD) == Some(names::PROCESS));
            let there: Vec<_> = processes
                .into_iter()
                .filter(|process| !self.notes.is_over(process, list.date))
                .filter_map(|process| process.annotation(names::KEY))
                .collect();
            let notes = notes.into_iter().filter_map(|object| note_of(kind, object));
            return Ok(notes.filter(|note| there.contains(&note.key.as_str())).collect());
        }
        let which = format!("{}={mark},{}={}", names::SEAT, names::NOTE, kind.as_str());
        let list = self.api.list(&Which::Labels(which)).await?;
        let (over, notes): (Vec<_>, Vec<_>) =
            list.items.iter().partition(|object| self.notes.is_over(object, list.date));
        for object in over {
            // Or it would wake every leader to come.
            self.api.delete(&object.metadata.name).await?;
            if let Some(post) = self.ears.existing(seat) {
                post.request(&object.metadata.name, false);
            }
        }
        Ok(notes.into_iter().filter_map(|object| note_of(kind, object)).collect())
    }

    async fn remove(&self, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
        let name = names::note(seat, kind, key);
        self.api.delete(&name).await?;
        if let Some(post) = self.ears.existing(seat).filter(|_| kind == NoteKind::Request) {
            post.request(&name, false);
        }
        Ok(())
    }
}
