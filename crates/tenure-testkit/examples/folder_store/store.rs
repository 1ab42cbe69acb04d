//! A store in a folder, with one file per seat, for the processes of one machine. `docs/writing-a-store.md` builds it
//! step by step.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tenure_core::{
    Answers, Board, DynNotes, Life, Note, NoteState, NoteWrite, Notes, Promises, Reading, Record, Seat, SeatName,
    SeatStore, StoreError, Swap, Token, Version, record,
};

/// A store that keeps its seats in a folder.
#[derive(Clone, Debug)]
pub(crate) struct FolderStore {
    folder: Arc<Path>,
    turns: Arc<Mutex<BTreeMap<SeatName, Arc<Turn>>>>,
}

/// The turn of one call about a seat.
type Turn = tokio::sync::Mutex<()>;

impl FolderStore {
    /// Creates a store in this folder. It does not touch the folder before the first call.
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into().into(), turns: Arc::default() }
    }

    /// Runs blocking work on another thread. If the caller gives up, the work still runs to its end, so that nothing
    /// stays locked or half done, and the next call about the seat begins after it.
    async fn run<T: Send + 'static>(
        &self,
        seat: &SeatName,
        act: impl FnOnce(&Files) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let files = Files::of(&self.folder, seat);
        let turn = self.turns.lock().unwrap().entry(seat.clone()).or_default().clone();
        // A call that was dropped keeps its turn until its work has ended.
        let turn = turn.lock_owned().await;
        run(move || {
            let _turn = turn;
            act(&files)
        })
        .await
    }
}

async fn run<T: Send + 'static>(act: impl FnOnce() -> Result<T, StoreError> + Send + 'static) -> Result<T, StoreError> {
    let ran = tokio::task::spawn_blocking(act).await;
    ran.unwrap_or_else(|gone| Err(StoreError::unknown("the thread of the call has ended").because(gone)))
}

impl SeatStore for FolderStore {
    fn promises(&self) -> Promises {
        Promises {
            durability: "a write is on the disk before it is confirmed",
            broken_by: &[
                "The folder is on a network file system that does not keep locks.",
                "A seat's file is removed or restored by hand while a candidate leads.",
            ],
            ..Promises::of("folder")
        }
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.run(seat, |files| {
            let seat = files.record()?.map(|record| Seat {
                version: version_of(&record),
                record,
                // The file system does not know whether the holder is alive: followers observe the version.
                life: Life::Observe,
            });
            Ok(Reading { seat, floor: files.floor()?, identity: None })
        })
        .await
    }

    /// # Correctness
    /// The check and the write are one step: every process takes the lock before it writes this file or its floor, so no
    /// other write comes in between. The kernel frees the lock when its process ends. The new file is synced
    /// to the disk and then renamed into place, so a reader sees the old file or the new one, both complete.
    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let (expected, next) = (expected.cloned(), next.clone());
        self.run(seat, move |files| {
            let _lock = files.lock()?;
            let current = files.record()?;
            // A bid from before the seat was forgotten has a token that another term may have had.
            let is_spent = current.is_none() && next.token <= files.floor()?;
            if current.as_ref().map(version_of) != expected || is_spent {
                return Ok(Swap::Lost);
            }
            files.write(&files.seat, &record::to_json(&next))?;
            Ok(Swap::Done { version: version_of(&next), since: None, granted: None })
        })
        .await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.run(seat, |files| {
            let _lock = files.lock()?;
            let last = files.record()?.map_or(Token::ZERO, |record| record.token);
            let floor = files.floor()?.max(last);
            // The floor is written before the seat is removed, so that a crash in between loses no token.
            files.write(&files.floor, &floor.to_string())?;
            for gone in [&files.seat, &files.notes] {
                match fs::remove_file(gone) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused(error)),
                    _ => {}
                }
            }
            Ok(())
        })
        .await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        let folder = self.folder.clone();
        run(move || {
            let mut seats = Vec::new();
            collect_seats(&folder, "", &mut seats)?;
            Ok(seats)
        })
        .await
    }
}

/// Collects the seats in a folder. `parent` is the part of their names that the path of the folder encodes.
fn collect_seats(folder: &Path, parent: &str, seats: &mut Vec<SeatName>) -> Result<(), StoreError> {
    let entries = match fs::read_dir(folder) {
        // The first candidate creates the folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(refused)?,
    };
    for entry in entries {
        let path = entry.map_err(refused)?.path();
        let name = format!("{parent}{}", path.file_stem().unwrap_or_default().display());
        if path.is_dir() {
            collect_seats(&path, &name, seats)?;
        } else if path.extension().is_some_and(|extension| extension == "seat") {
            seats.extend(decoded(&name));
        }
    }
    Ok(())
}

/// Returns the seat of a name in hexadecimal, as [`Files::of`] encodes it.
fn decoded(hex: &str) -> Option<SeatName> {
    let digits = hex.as_bytes().chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
    SeatName::new(String::from_utf8(digits.collect::<Option<_>>()?).ok()?).ok()
}

/// Returns the nonce as the version: the engine creates a new nonce for every write, so the nonce identifies the write.
fn version_of(record: &Record) -> Version {
    Version::new(format!("{:016x}", record.nonce))
}

impl Notes for FolderStore {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        for (place, note) in notes.iter().cloned().enumerate() {
            let files = Files::with_notes(&self.folder, &note.board);
            to.set(place, run(move || files.write_note(&note)).await);
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        for (place, board) in boards.iter().cloned().enumerate() {
            let files = Files::with_notes(&self.folder, &board);
            to.set(place, run(move || files.list(&board)).await);
        }
        Ok(())
    }
}

/// The files of one seat.
struct Files {
    seat: PathBuf,
    floor: PathBuf,
    notes: PathBuf,
    lock: PathBuf,
}

impl Files {
    /// Encodes the name of a seat in hexadecimal, split into nested folders, because a name can contain any character
    /// and be longer than a file name.
    fn of(folder: &Path, seat: &SeatName) -> Self {
        let mut path = folder.to_owned();
        for part in seat.as_str().as_bytes().chunks(100) {
            path.push(part.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        Self::at(&path)
    }

    /// Returns the files with the notes of a board: those of its seat, which the lock of the seat protects.
    fn with_notes(folder: &Path, board: &Board) -> Self {
        // No seat has this path, because it is not a hexadecimal number.
        board.seat().map_or_else(|| Self::at(&folder.join("processes")), |seat| Self::of(folder, seat))
    }

    fn at(path: &Path) -> Self {
        let file = |extension| path.with_extension(extension);
        Self { seat: file("seat"), floor: file("floor"), notes: file("notes"), lock: file("lock") }
    }

    /// Takes the lock of the seat. It is held until the file is dropped or the process ends.
    fn lock(&self) -> Result<File, StoreError> {
        let folder = self.lock.parent().unwrap_or(&self.lock);
        fs::create_dir_all(folder).map_err(refused)?;
        let lock = File::create(&self.lock).map_err(refused)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| refused(error.into()))?;
        Ok(lock)
    }

    fn record(&self) -> Result<Option<Record>, StoreError> {
        self.text(&self.seat)?.map(|text| record::from_json(&text)).transpose()
    }

    fn floor(&self) -> Result<Token, StoreError> {
        let text = self.text(&self.floor)?.unwrap_or_default();
        Ok(Token::new(text.parse().unwrap_or(0)))
    }

    fn notes(&self) -> Result<Vec<Value>, StoreError> {
        let text = self.text(&self.notes)?.unwrap_or_else(|| "[]".to_owned());
        serde_json::from_str(&text).map_err(|error| {
            StoreError::denied("cannot read the notes: the file was not written by this store").because(error)
        })
    }

    /// Puts or removes a note, and removes all expired notes.
    fn write_note(&self, note: &NoteWrite) -> Result<NoteState, StoreError> {
        let _lock = self.lock()?;
        let mut notes = self.notes()?;
        notes.retain(lasts);
        let before = notes.len();
        notes.retain(|old| old["board"] != note.board.kind() || old["key"] != note.key.as_str());
        let was = if notes.len() < before { NoteState::Present } else { NoteState::Absent };
        if let Some(value) = &note.value {
            let until = now_ms().saturating_add(note.lifetime.as_millis() as u64);
            notes.push(json!({ "board": note.board.kind(), "key": note.key, "value": value, "until_ms": until }));
        }
        self.write(&self.notes, &Value::from(notes).to_string())?;
        Ok(was)
    }

    fn list(&self, board: &Board) -> Result<Vec<Note>, StoreError> {
        let text = |note: &Value, name: &str| note[name].as_str().unwrap_or_default().to_owned();
        let notes = self.notes()?.into_iter().filter(|note| note["board"] == board.kind() && lasts(note));
        Ok(notes.map(|note| Note { key: text(&note, "key"), value: text(&note, "value") }).collect())
    }

    fn text(&self, path: &Path) -> Result<Option<String>, StoreError> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Writes a file completely or not at all. It is on the disk when this returns. The caller holds the lock.
    fn write(&self, path: &Path, text: &str) -> Result<(), StoreError> {
        let draft = path.with_extension("draft");
        let mut file = File::create(&draft).map_err(refused)?;
        file.write_all(text.as_bytes()).map_err(refused)?;
        file.sync_all().map_err(refused)?;
        fs::rename(&draft, path).map_err(refused)?;
        // From here on the write has happened. It can be lost only if the machine stops now.
        let folder = path.parent().unwrap_or(path);
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| StoreError::unknown("the file was written, but may not be on the disk yet").because(error))
    }
}

/// Returns whether a note has not expired.
fn lasts(note: &Value) -> bool {
    note["until_ms"].as_u64().is_some_and(|until| until > now_ms())
}

/// Classifies an error of a write that did not happen: denied if an operator must act, refused if a retry can help.
fn refused(error: io::Error) -> StoreError {
    use io::ErrorKind::{InvalidInput, NotADirectory, PermissionDenied, ReadOnlyFilesystem};
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem | NotADirectory | InvalidInput => {
            StoreError::denied("cannot use the folder of the seats; check its path and permissions").because(error)
        }
        _ => StoreError::refused("cannot access the folder of the seats").because(error),
    }
}

/// Returns the time of this machine's clock, by which notes expire. All processes that use the folder share it.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
