//! What can be wrong with a file, a directory or a disk. Each case is one clear error, and damages nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure_core::{
    Answers, Call, Candidate, Elections, EndReason, EventKind, Expect, Fault, Incarnation, Record, SeatName, SeatStore,
    SingleSeat, StoreError, Swap, Token, Write, record,
};
use tenure_sqlite::SqliteStore;

#[test]
fn a_missing_parent_directory_is_named_with_the_command_that_creates_it() {
    let folder = Folder::new("missing");
    let error = fails(&folder.path().join("no/such/t.db"), Fault::Denied);
    let missing = folder.path().join("no/such");
    assert_eq!(error, format!("directory {0} does not exist; run: mkdir -p {0}", missing.display()));
    assert!(!missing.exists());
}

#[test]
fn a_directory_in_place_of_the_file_is_refused() {
    let folder = Folder::new("folder");
    assert!(fails(folder.path(), Fault::Denied).contains("is a directory; name a file in it"));
}

#[test]
fn an_in_memory_database_is_refused_because_each_process_would_have_its_own() {
    assert!(fails(Path::new(":memory:"), Fault::Denied).contains("name a file"));
    assert!(!Path::new(":memory:").exists());
}

#[test]
fn a_file_that_is_not_a_database_is_refused_and_not_changed() {
    let folder = Folder::new("foreign");
    let path = folder.path().join("t.db");
    let poem = "there once was a file that was not a database, and it was longer than its header\n".repeat(20);
    std::fs::write(&path, &poem).unwrap();
    assert!(fails(&path, Fault::Denied).contains("is not a database of Tenure; use another file"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), poem);
}

#[test]
fn a_database_of_another_program_is_refused_and_not_changed() {
    let folder = Folder::new("else");
    let path = folder.path().join("t.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE seats (name TEXT); INSERT INTO seats VALUES ('x')")
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(fails(&path, Fault::Denied).contains("is not a database of Tenure"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_not_changed() {
    let folder = Folder::new("newer");
    let path = folder.path().join("t.db");
    works(&path);
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = fails(&path, Fault::Denied);
    assert!(error.contains("newer version of Tenure (schema 99, known up to 1); upgrade this program"), "{error}");
}

#[test]
fn a_damaged_database_is_reported() {
    let folder = Folder::new("damaged");
    let path = folder.path().join("t.db");
    works(&path);
    // The thread of the store closes the database, and then all of its content is in this file.
    while folder.path().join("t.db-wal").exists() {
        std::thread::yield_now();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 8192, "the file has more than a header");
    bytes[100..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let error = fails(&path, Fault::Denied);
    assert!(error.contains("is damaged") || error.contains("is not a database"), "{error}");
}

#[test]
fn a_record_that_tenure_did_not_write_is_reported_and_not_changed() {
    let folder = Folder::new("record");
    let path = folder.path().join("t.db");
    works(&path);
    let database = Connection::open(&path).unwrap();
    database.execute("UPDATE seats SET record = '\"mine\"'", []).unwrap();
    let error = fails(&path, Fault::Denied);
    assert!(error.contains("content that Tenure did not write"), "{error}");
    let kept: String = database.query_row("SELECT record FROM seats", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "\"mine\"");
}

/// Calls of many elections share a transaction: one seat that cannot be decoded must not fail the others.
#[test]
fn a_seat_that_cannot_be_decoded_fails_only_its_own_calls_and_is_named() {
    let folder = Folder::new("blob");
    let path = folder.path().join("t.db");
    let database = || Connection::open(&path).unwrap();
    let (good, bad, blank) = (seat(), SeatName::new("bad").unwrap(), blank());
    let store = open(&path);
    runtime().block_on(async {
        let Swap::Done { version, .. } = store.swap(&bad, None, &blank).await.unwrap() else { panic!() };
        let Swap::Done { version: held, .. } = store.swap(&good, None, &blank).await.unwrap() else { panic!() };
        for broken in ["record = x'ff00'", "record = CAST(x'ff00' AS TEXT)", "nonce = x'ff00'", "record = '\"mine\"'"] {
            database().execute(&format!("UPDATE seats SET {broken} WHERE name = 'bad'"), []).unwrap();
            for _ in 0..20 {
                // The lock keeps the worker from writing, so these calls share a transaction.
                let writer = database();
                writer.execute_batch("BEGIN IMMEDIATE").unwrap();
                let calls = async {
                    tokio::join!(
                        store.renew(&good, &held, &blank),
                        store.read(&bad),
                        store.swap(&bad, Some(&version), &blank),
                        store.read(&good),
                        store.renew(&good, &held, &blank),
                    )
                };
                let free = async { drop(writer) };
                let ((first, read, _, other, last), ()) = tokio::join!(calls, free);
                assert!(matches!((first, last), (Ok(Swap::Done { .. }), Ok(Swap::Done { .. }))), "{broken}");
                assert!(other.unwrap().seat.is_some(), "{broken}");
                let error = read.unwrap_err();
                let message = format!("seat \"bad\" in {} has content that Tenure did not write", path.display());
                assert!(error.fault() == Fault::Denied && error.to_string().starts_with(&message), "{broken}: {error}");
                assert!(error.to_string().contains("tenure forget"), "{broken}: {error}");
            }
        }
        store.forget(&bad).await.unwrap();
        assert!(store.read(&bad).await.unwrap().seat.is_none());
    });
}

#[test]
fn a_seat_that_cannot_be_decoded_does_not_fail_the_other_seats_of_a_call() {
    let folder = Folder::new("call");
    let path = folder.path().join("t.db");
    let (store, names) = (SqliteStore::at(&path), ["a", "bad", "c"].map(|name| SeatName::new(name).unwrap()));
    let call = Call { lease: blank().lease, within: blank().lease };
    let write = |expect: &dyn Fn() -> Expect| {
        names.clone().map(|seat| Write { seat, expect: expect(), record: Record { nonce: 7, ..blank() } })
    };
    runtime().block_on(async {
        let (to, won) = answers();
        tenure_core::Store::write(&store, &call, &write(&|| Expect::Absent(None)), &to).await.unwrap();
        let versions: Vec<_> = won.try_iter().map(|(_, swap)| swap.unwrap()).collect();
        let [Swap::Done { version, .. }, Swap::Done { .. }, Swap::Done { .. }] = &versions[..] else { panic!() };
        Connection::open(&path).unwrap().execute("UPDATE seats SET nonce = x'ff00' WHERE name = 'bad'", []).unwrap();
        let (to, read) = answers();
        tenure_core::Store::read(&store, &call, &names, &to).await.unwrap();
        let [(0, Ok(_)), (1, Err(error)), (2, Ok(_))] = &read.try_iter().collect::<Vec<_>>()[..] else { panic!() };
        assert!(error.fault() == Fault::Denied && error.to_string().starts_with("seat \"bad\""), "{error}");
        let (to, kept) = answers();
        tenure_core::Store::write(&store, &call, &write(&|| Expect::Held(version.clone())), &to).await.unwrap();
        let kept: Vec<_> = kept.try_iter().collect();
        let [(0, Ok(Swap::Done { .. })), (1, Err(_)), (2, Ok(Swap::Done { .. }))] = &kept[..] else {
            panic!("{kept:?}")
        };
    });
}

#[test]
fn a_seat_whose_row_was_deleted_is_reported_as_vanished() {
    let folder = Folder::new("deleted");
    let path = folder.path().join("t.db");
    let elections = Elections::new(SqliteStore::at(&path));
    let election = elections.election("jobs").lease(Duration::from_secs(3)).start().unwrap();
    runtime().block_on(async {
        let mut events = election.events();
        election.elected().await.unwrap();
        let database = Connection::open(&path).unwrap();
        database.busy_timeout(Duration::from_secs(10)).unwrap();
        database.execute("DELETE FROM seats", []).unwrap();
        let why = loop {
            if let EventKind::LostLeadership { why, .. } = events.next().await.expect("the election continues").kind {
                break why;
            }
        };
        assert_eq!(why, EndReason::SeatVanished);
    });
}

/// Any user that can read a file can lock it, and keep candidates out.
#[test]
fn files_are_accessible_to_exactly_the_users_that_can_write_the_database() {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (database, folder_mode) in [(None, 0o700), (Some(0o660), 0o770), (Some(0o666), 0o777), (Some(0o644), 0o700)] {
        let folder = Folder::new("modes");
        let path = folder.path().join("t.db");
        if let Some(mode) = database {
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        works(&path);
        assert_eq!(mode(&path), database.unwrap_or(0o600));
        let side = folder.path().join("t.db.d");
        assert_eq!(mode(&side), folder_mode, "{database:?}");
        let mut files = 0;
        for file in std::fs::read_dir(&side).unwrap() {
            assert_eq!(mode(&file.unwrap().path()), folder_mode & 0o666, "{database:?}");
            files += 1;
        }
        assert!(files >= 4, "two locks of the database, one of the process, and a notification");
        // The mode that older versions gave it.
        std::fs::set_permissions(&side, Permissions::from_mode(0o755)).unwrap();
        works(&path);
        assert_eq!(mode(&side), folder_mode, "{database:?}");
    }
}

#[test]
fn a_process_that_keeps_others_from_opening_is_named() {
    let folder = Folder::new("locked");
    let path = folder.path().join("t.db");
    works(&path);
    let gate = folder.path().join("t.db.d/opening");
    let locked = std::fs::File::open(&gate).unwrap();
    locked.lock().unwrap();
    let store = open(&path);
    let begin = Instant::now();
    let error = runtime().block_on(store.read(&seat())).unwrap_err();
    let message = format!("{} is locked by process {}", gate.display(), std::process::id());
    assert!(error.fault() == Fault::Refused && error.to_string().contains(&message), "{error}");
    // The second call does not wait again, so it fails in time.
    let (first, begin) = (begin.elapsed(), Instant::now());
    assert!(runtime().block_on(store.read(&seat())).unwrap_err().to_string().contains(&message));
    assert!(begin.elapsed() < first / 2);
    drop(locked);
    runtime().block_on(store.read(&seat())).unwrap();
}

/// Processes of two versions can run at the same time: unknown fields are kept.
#[test]
fn fields_of_a_newer_version_are_kept() {
    let folder = Folder::new("fields");
    let path = folder.path().join("t.db");
    works(&path);
    let database = Connection::open(&path).unwrap();
    database.execute("UPDATE seats SET record = json_set(record, '$.colour', 'green')", []).unwrap();
    works(&path);
    let colour: String =
        database.query_row("SELECT json_extract(record, '$.colour') FROM seats", [], |row| row.get(0)).unwrap();
    assert_eq!(colour, "green");
}

#[test]
fn a_directory_without_write_permission_is_reported() {
    let folder = Folder::new("rights");
    std::fs::create_dir(folder.path().join("locked")).unwrap();
    let path = folder.path().join("locked/t.db");
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    if !rustix::process::geteuid().is_root() {
        unprivileged = Command::new("env");
        std::fs::set_permissions(folder.path().join("locked"), Permissions::from_mode(0o555)).unwrap();
    }
    let error = in_child(unprivileged, &path);
    assert!(error.contains("cannot open") || error.contains("permission denied"), "{error}");
}

#[test]
fn a_full_disk_is_reported_and_the_term_continues_once_there_is_space() {
    let folder = Folder::new("full");
    let mut unshared = Command::new("unshare");
    let script = r#"mount -t tmpfs -o size=512k tmpfs "$1" && shift && exec "$@""#;
    unshared.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]).arg(folder.path());
    let error = in_child(unshared, &folder.path().join("t.db"));
    assert!(error.contains("no space left"), "{error}");
    assert!(error.contains("then works"), "{error}");
}

#[test]
fn a_database_that_was_removed_is_created_again_and_its_tokens_stay_above_all_earlier_ones() {
    let folder = Folder::new("replaced");
    let path = folder.path().join("t.db");
    let runtime = runtime();
    let store = open(&path);
    let first = runtime.block_on(store.read(&seat())).unwrap();
    assert_eq!(first.floor, Token::ZERO, "nothing was lost");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    let second = runtime.block_on(store.read(&seat())).unwrap();
    assert_ne!(first.identity, second.identity, "candidates must notice the loss");
    assert!(second.floor.get() > 1_700_000_000_000, "tokens may have been lost: {:?}", second.floor);
}

#[test]
fn a_removed_file_is_reported_and_opened_again_once_no_term_can_be_left() {
    for suffix in ["-shm", "-wal"] {
        let folder = Folder::new("beside");
        let path = folder.path().join("t.db");
        let (store, other) = (open(&path), open(&path));
        runtime().block_on(async {
            let next = Record { lease: Duration::from_millis(500), token: Token::new(7), ..blank() };
            let Swap::Done { version, .. } = store.swap(&seat(), None, &next).await.unwrap() else { panic!() };
            let removed = format!("{}{suffix}", path.display());
            std::fs::remove_file(&removed).unwrap();
            let error = store.renew(&seat(), &version, &next).await.unwrap_err();
            assert_eq!(error.fault(), Fault::Refused);
            assert!(error.to_string().starts_with(&format!("{removed} was removed or replaced")), "{error}");
            // The first process may still lead, so no other process gets in.
            let error = other.read(&seat()).await.unwrap_err();
            let process = format!("in use by process {}", std::process::id());
            assert!(error.fault() == Fault::Refused && error.to_string().contains(&process), "{error}");
            tokio::time::sleep(next.lease).await;
            let seat_now = store.read(&seat()).await.unwrap().seat.unwrap();
            assert_eq!(seat_now.record.token, next.token, "the latest commits were in the -wal file");
            assert_eq!(other.read(&seat()).await.unwrap().seat.unwrap().version, seat_now.version);
        });
    }
}

/// The next process cannot know which tokens were used.
#[test]
fn tokens_rise_above_those_that_were_lost_with_a_killed_process() {
    let folder = Folder::new("killed");
    let path = folder.path().join("killed.db");
    in_child(Command::new("env"), &path);
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", path.display())).unwrap();
    }
    runtime().block_on(async {
        let store = open(&path);
        let reading = store.read(&seat()).await.unwrap();
        assert!(reading.seat.is_none() && reading.floor.get() > 1_700_000_000_000, "{reading:?}");
        let bid = |token| Record { token: Token::new(token), ..blank() };
        let old = store.swap(&seat(), None, &bid(reading.floor.get())).await.unwrap();
        assert_eq!(old, Swap::Lost, "a bid that rests on what was read before the loss");
        assert!(store.swap(&seat(), None, &bid(reading.floor.get() + 1)).await.unwrap() != Swap::Lost);
    });
}

/// A process that is killed between the write of a commit and its sync leaves a commit that the next process sees, and that a
/// power failure loses.
#[test]
fn what_a_killed_process_has_not_synced_is_synced_before_the_next_process_uses_it() {
    let folder = Folder::new("unsynced");
    let (path, trace) = (folder.path().join("killed.db"), folder.path().join("trace"));
    in_child(Command::new("env"), &path);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-e", "trace=fdatasync,pread64", "-o"]).arg(&trace);
    in_child(strace, &path);
    let trace = std::fs::read_to_string(trace).unwrap();
    let first = trace.lines().find(|line| line.contains("killed.db-wal>")).unwrap();
    assert!(first.contains("fdatasync("), "{first}");
}

#[test]
fn tokens_rise_above_those_of_a_database_that_was_removed_while_no_process_ran() {
    for replacement in [None, Some("")] {
        let folder = Folder::new("gone");
        let path = folder.path().join("t.db");
        works(&path);
        is_closed(&path);
        let reading = runtime().block_on(open(&path).read(&seat())).unwrap();
        assert_eq!(reading.floor, Token::new(2), "nothing was lost");
        is_closed(&path);
        std::fs::remove_file(&path).unwrap();
        if let Some(replacement) = replacement {
            std::fs::write(&path, replacement).unwrap();
        }
        let reading = runtime().block_on(open(&path).read(&seat())).unwrap();
        assert!(reading.seat.is_none() && reading.floor.get() > 1_700_000_000_000, "{reading:?}");
    }
}

#[test]
fn if_the_thread_cannot_be_started_the_next_call_tries_again() {
    let folder = Folder::new("thread");
    let printed = in_child(Command::new("env"), &folder.path().join("thread.db"));
    assert!(printed.contains("cannot start the database thread"), "{printed}");
    assert!(printed.contains("then works"), "{printed}");
}

#[test]
fn a_lifeline_that_cannot_be_duplicated_is_an_error() {
    let folder = Folder::new("lifeline");
    let printed = in_child(Command::new("env"), &folder.path().join("lifeline.db"));
    assert!(printed.contains("open files"), "{printed}");
}

// -------------------------------------------------------------------------------------------------

/// What a child process of a test does: it prints the error that it gets.
fn main_of_child(path: &Path) {
    let runtime = runtime();
    if path.ends_with("locked/t.db") {
        let error = runtime.block_on(open(path).read(&seat())).unwrap_err();
        assert_eq!(error.fault(), Fault::Denied);
        println!("{error}");
        return;
    }
    if path.ends_with("killed.db") {
        let store = open(path);
        runtime.block_on(store.swap(&seat(), None, &blank())).unwrap();
        // As if killed: the files are not closed in good order.
        std::process::exit(0);
    }
    if path.ends_with("thread.db") {
        return has_no_thread(path);
    }
    if path.ends_with("lifeline.db") {
        return has_no_descriptor(path);
    }
    // The disk is filled completely, and then freed again.
    let elections = Elections::new(SqliteStore::at(path));
    let election = elections.election("jobs").lease(Duration::from_secs(6)).start().unwrap();
    runtime.block_on(async {
        let mut events = election.events();
        election.elected().await.unwrap();
        let filler = path.with_file_name("filler");
        let mut size = 1 << 20;
        let mut filled = Vec::new();
        while size > 0 {
            if std::fs::write(&filler, vec![1; filled.len() + size]).is_err() {
                size /= 2;
            } else {
                filled.resize(filled.len() + size, 1);
            }
        }
        let error = loop {
            match events.next().await.expect("the election continues").kind {
                EventKind::Error { error } => break error,
                EventKind::LostLeadership { .. } => panic!("a full disk ended the term at once"),
                _ => {}
            }
        };
        print!("{error} ");
        std::fs::remove_file(&filler).unwrap();
        while !matches!(
            events.next().await.expect("the election continues").kind,
            EventKind::Recovered | EventKind::BecameLeader { .. }
        ) {}
        println!("then works");
    });
}

/// Makes a call while no memory is left for the stack of another thread, and another call once there is.
fn has_no_thread(path: &Path) {
    let (runtime, store) = (runtime(), open(path));
    let before = getrlimit(Resource::As);
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let room = pages * rustix::param::page_size() as u64 + (1 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(room), ..before }).unwrap();
    let error = runtime.block_on(store.read(&seat())).unwrap_err();
    setrlimit(Resource::As, before).unwrap();
    assert_eq!(error.fault(), Fault::Refused, "{error}");
    print!("{error} ");
    runtime.block_on(store.read(&seat())).unwrap();
    println!("then works");
}

/// Holds a seat, and requests its lifeline while no further file can be opened.
fn has_no_descriptor(path: &Path) {
    let store = open(path);
    runtime().block_on(store.swap(&seat(), None, &blank())).unwrap();
    let before = getrlimit(Resource::Nofile);
    assert!(store.lifeline(&seat()).unwrap().is_some());
    setrlimit(Resource::Nofile, Rlimit { current: Some(4), ..before }).unwrap();
    let lifeline = store.lifeline(&seat());
    setrlimit(Resource::Nofile, before).unwrap();
    println!("{}", lifeline.unwrap_err());
}

#[test]
fn child() {
    if let Ok(path) = std::env::var("TENURE_TEST_CHILD") {
        main_of_child(Path::new(&path));
    }
}

/// Runs this test program under a wrapper, and returns what it printed.
fn in_child(mut wrapper: Command, path: &Path) -> String {
    let output = wrapper
        .arg(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env("TENURE_TEST_CHILD", path)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {wrapper:?}: {error}; run: apt-get install util-linux strace"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

type Answered<T> = mpsc::Receiver<(usize, Result<T, StoreError>)>;

/// Returns a sink for the answers of a store, and the channel that receives them.
fn answers<T: Send + 'static>() -> (Answers<T>, Answered<T>) {
    let (put, answered) = mpsc::channel();
    (Answers::new(move |place, answer| drop(put.send((place, answer)))), answered)
}

/// Opens a store that is called for one seat at a time.
fn open(path: &Path) -> SingleSeat {
    SingleSeat::new(SqliteStore::at(path))
}

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

/// Reads a seat, and returns the message of the error.
fn fails(path: &Path, fault: Fault) -> String {
    runtime().block_on(async {
        let store = open(path);
        let read: StoreError = store.read(&seat()).await.unwrap_err();
        assert_eq!(read.fault(), fault, "{read}");
        assert_eq!(read.to_string().lines().count(), 1, "{read}");
        read.to_string()
    })
}

/// Takes the seat, whichever candidate held it.
fn works(path: &Path) {
    runtime().block_on(async {
        let store = open(path);
        let seat_now = store.read(&seat()).await.unwrap().seat;
        let mut next = seat_now.as_ref().map_or_else(blank, |seat| seat.record.clone());
        next.token = next.token.next().unwrap();
        next.nonce = rand::random();
        let swap = store.swap(&seat(), seat_now.as_ref().map(|seat| &seat.version), &next).await.unwrap();
        assert!(matches!(swap, Swap::Done { .. }));
        assert_eq!(
            store.read(&seat()).await.unwrap().seat.unwrap().record,
            record::from_json(&record::to_json(&next)).unwrap()
        );
    });
}

/// Waits until an unused database is closed, which its store does on its own thread.
fn is_closed(path: &Path) {
    let wal = format!("{}-wal", path.display());
    while Path::new(&wal).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // This lock is held from before that file is removed until the database is closed.
    std::fs::File::open(format!("{}.d/opening", path.display())).unwrap().lock().unwrap();
}

fn blank() -> Record {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) };
    Record::new(Some(holder), Token::new(1), Duration::from_secs(15))
}

/// A directory for one test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "tenure-sqlite-{name}-{}-{:08x}",
            std::process::id(),
            rand::random::<u32>()
        ));
        std::fs::create_dir(&path).unwrap();
        // Other users may enter, so that a child without permissions gets as far as the directory in question.
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
