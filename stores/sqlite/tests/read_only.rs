//! A store that is read only: it sees what candidates have written, creates nothing, changes nothing, and cannot write.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use tenure_core::{Candidate, Fault, Incarnation, Record, SeatName, SeatStore, SingleSeat, StoreError, Swap, Token};
use tenure_sqlite::SqliteStore;
use tenure_testkit::servers::Folder;

fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap()
}

fn record(token: u64) -> Record {
    let holder = Candidate { id: "web-1".into(), incarnation: Incarnation::from_bits(7) };
    Record { nonce: token, ..Record::new(Some(holder), Token::new(token), std::time::Duration::from_secs(15)) }
}

fn reader(path: &Path) -> SingleSeat {
    SingleSeat::new(SqliteStore::at(path).read_only())
}

async fn write(store: &SingleSeat, name: &str, token: u64) {
    let reading = store.read(&seat(name)).await.unwrap();
    let version = reading.seat.map(|seat| seat.version);
    let written = store.swap(&seat(name), version.as_ref(), &record(token)).await.unwrap();
    assert!(matches!(written, Swap::Done { .. }));
    // A bid is answered before the other processes are notified of it, and the next call is made after that.
    store.read(&seat(name)).await.unwrap();
}

/// Returns the seats that a store lists, with their tokens.
async fn tokens(store: &SingleSeat) -> Result<BTreeMap<String, u64>, StoreError> {
    let mut tokens = BTreeMap::new();
    for seat in store.list_seats().await? {
        let token = store.read(&seat).await?.seat.map_or(0, |seat| seat.record.token.get());
        tokens.insert(seat.to_string(), token);
    }
    Ok(tokens)
}

/// Returns all files of a folder and of its folders, each with its size and its time of modification. The time of a
/// `-shm` file is left out: SQLite shares its memory within a process, so here the reader uses that of the writer.
fn files(folder: &Path) -> BTreeMap<String, (u64, Option<SystemTime>)> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, metadata) = (entry.path().display().to_string(), entry.metadata().unwrap());
        let modified = (!path.ends_with("-shm")).then(|| metadata.modified().unwrap());
        files.insert(path, (metadata.len(), modified));
        if metadata.is_dir() {
            files.append(&mut self::files(&entry.path()));
        }
    }
    files
}

/// Reads the database, checks that nothing in its folder has changed, and returns the seats and their tokens.
async fn untouched(folder: &Path, path: &Path) -> BTreeMap<String, u64> {
    let before = files(folder);
    let reader = reader(path);
    let tokens = tokens(&reader).await.unwrap();
    let notes = reader.notes().unwrap().list_one(&tenure_core::Board::Candidates(seat("a"))).await.unwrap();
    assert!(notes.is_empty());
    drop(reader);
    assert_eq!(files(folder), before, "a file was created or changed");
    tokens
}

#[tokio::test]
async fn a_database_that_does_not_exist_or_is_empty_has_no_elections_and_is_not_created() {
    let folder = Folder::new("nothing");
    let path = folder.path().join("t.db");
    assert!(untouched(folder.path(), &path).await.is_empty());
    std::fs::write(&path, "").unwrap();
    assert!(untouched(folder.path(), &path).await.is_empty());
    std::fs::write(&path, "something else, and longer than the header of a database: ".repeat(10)).unwrap();
    let error = reader(&path).list_seats().await.unwrap_err();
    assert!(error.fault() == Fault::Denied && error.to_string().contains("not a database of Tenure"), "{error}");
    let error = reader(&folder.path().join("no/t.db")).list_seats().await.unwrap_err();
    assert!(error.to_string().contains("mkdir -p"), "{error}");
}

#[tokio::test]
async fn a_database_is_read_while_it_is_open_after_it_was_closed_and_after_a_kill() {
    let folder = Folder::new("states");
    let path = folder.path().join("100% odd? #1.db");
    let expected = |token| BTreeMap::from([("a".to_owned(), token), ("b".to_owned(), 1)]);
    let writer = SingleSeat::new(SqliteStore::at(&path));
    write(&writer, "a", 1).await;
    write(&writer, "b", 1).await;
    assert_eq!(untouched(folder.path(), &path).await, expected(1));
    write(&writer, "a", 2).await;
    assert_eq!(untouched(folder.path(), &path).await, expected(2));

    // The files as a process that is killed now leaves them: the last writes are in the -wal file alone.
    let killed = Folder::new("killed");
    for suffix in ["", "-wal", "-shm"] {
        let name = format!("100% odd? #1.db{suffix}");
        std::fs::copy(folder.path().join(&name), killed.path().join(&name)).unwrap();
    }
    let copy = killed.path().join("100% odd? #1.db");
    assert_eq!(untouched(killed.path(), &copy).await, expected(2));

    drop(writer);
    while folder.path().join("100% odd? #1.db-wal").exists() {
        tokio::task::yield_now().await;
    }
    assert_eq!(untouched(folder.path(), &path).await, expected(2));
}

#[tokio::test]
async fn every_write_is_denied() {
    let folder = Folder::new("denied");
    let path = folder.path().join("t.db");
    let writer = SingleSeat::new(SqliteStore::at(&path));
    write(&writer, "a", 1).await;
    let reader = reader(&path);
    let version = reader.read(&seat("a")).await.unwrap().seat.unwrap().version;
    let errors = [
        reader.swap(&seat("b"), None, &record(1)).await.unwrap_err(),
        reader.swap(&seat("a"), Some(&version), &record(2)).await.unwrap_err(),
        reader.forget(&seat("a")).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.fault() == Fault::Denied && error.to_string().contains("read only"), "{error}");
    }
    assert_eq!(tokens(&reader).await.unwrap(), BTreeMap::from([("a".to_owned(), 1)]));
}

/// The database is opened, written and closed all the time, so that its `-wal` file comes and goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_is_always_seen_while_processes_open_and_close_the_database() {
    let folder = Folder::new("torn");
    let path = folder.path().join("t.db");
    write(&SingleSeat::new(SqliteStore::at(&path)), "a", 1).await;
    let is_done = AtomicBool::new(false);
    let writes = async {
        for token in 2..60 {
            let writer = SingleSeat::new(SqliteStore::at(&path));
            write(&writer, "a", token).await;
            write(&writer, &"x".repeat(token as usize * 8), 1).await;
        }
        is_done.store(true, Ordering::Relaxed);
    };
    let reads = async {
        let (reader, mut last, mut reads) = (reader(&path), 0, 0);
        while !is_done.load(Ordering::Relaxed) {
            let token = tokens(&reader).await.unwrap()["a"];
            assert!(token >= last, "the seat went back from {last} to {token}");
            (last, reads) = (token, reads + 1);
        }
        (last, reads)
    };
    let ((), (last, reads)) = tokio::join!(writes, reads);
    assert!(last > 1 && reads > 10, "{reads} reads, of which the last saw {last}");
}
