//! A store in a folder: one file for each seat, for the processes of one machine. It is what
//! `docs/writing-a-store.md` builds, step by step.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tenure_core::{
    Answers, Board, DynNotes, Life, Note, NoteState, NoteWrite, Notes, Promises, Reading, Record, Seat, SeatName,
    SeatStore, StoreError, Swap, Token, Version, record,
};

/// Seats in a folder.
#[derive(Clone, Debug)]
pub(crate) struct FolderStore {
    folder: Arc<Path>,
}

impl FolderStore {
    /// Seats in this folder. Nothing is touched before the first call.
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into().into() }
    }

    /// Runs something on a thread that may block. If the caller gives up, it runs to its end all
    /// the same, so that nothing stays locked or half done.
    async fn run<T: Send + 'static>(
        &self,
        seat: &SeatName,
        act: impl FnOnce(&Files) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let files = Files::of(&self.folder, seat);
        run(move || act(&files)).await
    }
}

async fn run<T: Send + 'static>(act: impl FnOnce() -> Result<T, StoreError> + Send + 'static) -> Result<T, StoreError> {
    let ran = tokio::task::spawn_blocking(act).await;
    ran.unwrap_or_else(|gone| Err(StoreError::unknown("the thread that did it is gone").because(gone)))
}

impl SeatStore for FolderStore {
    fn promises(&self) -> Promises {
        Promises {
            durability: "what was written is on the disk before it counts",
            broken_by: &[
                "The folder is on a network file system that does not keep locks.",
                "A seat's file is removed or restored by hand while somebody leads.",
            ],
            ..Promises::of("folder")
        }
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.run(seat, |files| {
            let seat = files.record()?.map(|record| Seat {
                version: version_of(&record),
                record,
                // The file system says nothing about the holder: only that the version changes.
                life: Life::Observe,
            });
            Ok(Reading { seat, floor: files.floor()?, identity: None })
        })
        .await
    }

    /// # Correctness
    /// The lock makes the check and the write one: nobody else writes this file in between, as
    /// everybody takes the lock first, and the kernel frees it when its process is gone. The file
    /// appears whole or not at all, as it is renamed into place, and is on the disk before that.
    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let (expected, next) = (expected.cloned(), next.clone());
        self.run(seat, move |files| {
            let _lock = files.lock()?;
            let current = files.record()?;
            if current.as_ref().map(version_of) != expected {
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
            // First what must stay, then what may go.
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
}

/// Every write of the engine has a nonce of its own, so the nonce names the write.
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
    /// A name may be anything, and longer than a file's: in hexadecimal, in folders within folders.
    fn of(folder: &Path, seat: &SeatName) -> Self {
        let mut path = folder.to_owned();
        for part in seat.as_str().as_bytes().chunks(100) {
            path.push(part.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        Self::at(&path)
    }

    /// The files with the notes of a board: those of its seat, which are under the lock of the seat.
    fn with_notes(folder: &Path, board: &Board) -> Self {
        // No seat has this path, as it is no hexadecimal number.
        board.seat().map_or_else(|| Self::at(&folder.join("processes")), |seat| Self::of(folder, seat))
    }

    fn at(path: &Path) -> Self {
        let file = |extension| path.with_extension(extension);
        Self { seat: file("seat"), floor: file("floor"), notes: file("notes"), lock: file("lock") }
    }

    /// Held until it is dropped, or the process is gone.
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
        serde_json::from_str(&text)
            .map_err(|error| StoreError::denied("the file with the notes is not one of ours").because(error))
    }

    /// Puts or removes a note, and takes what has expired off the board.
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

    /// Whole or not at all, and on the disk when it returns. Only under the lock.
    fn write(&self, path: &Path, text: &str) -> Result<(), StoreError> {
        let draft = path.with_extension("draft");
        let mut file = File::create(&draft).map_err(refused)?;
        file.write_all(text.as_bytes()).map_err(refused)?;
        file.sync_all().map_err(refused)?;
        fs::rename(&draft, path).map_err(refused)?;
        // From here on it has happened, and may be lost again only if the machine stops now.
        let folder = path.parent().unwrap_or(path);
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| StoreError::unknown("it was written, but may not be on the disk yet").because(error))
    }
}

/// Whether a note has not expired.
fn lasts(note: &Value) -> bool {
    note["until_ms"].as_u64().is_some_and(|until| until > now_ms())
}

/// It did not happen. Some errors go away by themselves, others only if somebody does something.
fn refused(error: io::Error) -> StoreError {
    use io::ErrorKind::{InvalidInput, NotADirectory, PermissionDenied, ReadOnlyFilesystem};
    match error.kind() {
        PermissionDenied | ReadOnlyFilesystem | NotADirectory | InvalidInput => {
            StoreError::denied("the folder of the seats cannot be used: check its path and permissions").because(error)
        }
        _ => StoreError::refused("the folder of the seats failed").because(error),
    }
}

/// Notes live by the clock of this machine, which all who use the folder share.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}
