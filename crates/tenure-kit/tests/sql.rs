//! Seats as rows, and seats that the locks of a session hold: what a statement's result means for each seat, and that no
//! lock is left behind.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure_core::{
    Answers, Call, Candidate, Expect, Incarnation, Interest, Life, News, Promises, Push, Reading, Record, Seat,
    SeatName, SeatStore, Seen, SingleSeat, Store, StoreError, Swap, Token, Version, Write, record,
};
use tenure_kit::sql::{
    LockConnection, LockServer, LockSession, Mode, Noticed, SeatLocks, SeatRow, VersionParts, WAIT_SLICE, WriteKind,
    WriteSet, Written, reading,
};
use tenure_kit::{Connection, Liveness, nonce_of};

const LEASE: Duration = Duration::from_secs(12);

/// A database: its rows, each with the number of its write and the session that it names, and what was asked of it.
#[derive(Default)]
struct Database {
    rows: Mutex<HashMap<SeatName, (String, i64)>>,
    /// The sessions that have written, and those that have released leftovers.
    written_by: Mutex<Vec<i64>>,
    released: Mutex<Vec<Vec<SeatName>>>,
    heartbeats: Mutex<usize>,
    /// The connections that wait for sessions of other processes.
    waiting: Mutex<Vec<Weak<FakeConnection>>>,
    behaviour: Mutex<Behaviour>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Behaviour {
    #[default]
    Answers,
    /// Writes fail.
    Refuses,
    /// All statements fail.
    Fails,
    /// Statements are never answered.
    Silent,
}

impl Database {
    async fn answer(&self, fails_on: &[Behaviour]) -> Result<(), StoreError> {
        let behaviour = *self.behaviour.lock().unwrap();
        if behaviour == Behaviour::Silent {
            std::future::pending::<()>().await;
        }
        if fails_on.contains(&behaviour) { Err(StoreError::refused("the server says no")) } else { Ok(()) }
    }

    fn behaves(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }
}

/// A connection, and how many of its lifelines were taken.
#[derive(Default)]
struct FakeConnection(Liveness, AtomicUsize);

impl Connection for FakeConnection {
    fn liveness(&self) -> &Liveness {
        &self.0
    }
}

impl LockConnection for FakeConnection {
    fn abort(&self) {
        self.0.close();
    }

    #[cfg(unix)]
    fn lifeline(&self) -> std::io::Result<tenure_core::Lifeline> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(std::fs::File::open("/dev/null")?.into())
    }
}

impl LockServer for Database {
    type Connection = FakeConnection;

    fn number_of(&self, record: &Record) -> String {
        nonce_of(record)
    }

    async fn open(&self, _: i64, _: Duration) -> Result<Arc<FakeConnection>, StoreError> {
        Ok(Arc::default())
    }

    async fn heartbeat(&self, session: &LockSession<Self>) -> Result<Vec<String>, StoreError> {
        self.answer(&[Behaviour::Fails]).await?;
        *self.heartbeats.lock().unwrap() += 1;
        let rows = self.rows.lock().unwrap();
        Ok(rows.values().filter(|(_, holder)| *holder == session.id).map(|(number, _)| number.clone()).collect())
    }

    async fn write(&self, session: &LockSession<Self>, set: &WriteSet) -> Result<Written, StoreError> {
        self.answer(&[Behaviour::Fails, Behaviour::Refuses]).await?;
        self.written_by.lock().unwrap().push(session.id);
        let mut written = Written { identity: "data".into(), ..Written::default() };
        for row in &set.rows {
            self.rows.lock().unwrap().insert(row.write.seat.clone(), (row.number.clone(), session.id));
            written.outcomes.insert(row.number.clone(), true);
        }
        Ok(written)
    }

    async fn release_leftovers(&self, _: &LockSession<Self>, seats: &[SeatName]) -> Result<(), StoreError> {
        self.answer(&[Behaviour::Fails]).await?;
        self.released.lock().unwrap().push(seats.to_vec());
        Ok(())
    }

    async fn connect_to_wait(&self) -> Result<Arc<FakeConnection>, StoreError> {
        let connection = Arc::default();
        self.waiting.lock().unwrap().push(Arc::downgrade(&connection));
        Ok(connection)
    }

    async fn wait(&self, _: &Arc<FakeConnection>, _: i64) -> Result<Noticed, StoreError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_renewed_by_a_heartbeat_that_names_its_write_and_one_heartbeat_serves_many_seats() {
    let (database, locks) = database();
    let versions = [won(&locks, "a").await, won(&locks, "b").await];
    for version in versions.iter().zip(["a", "b"]).map(|(version, name)| renewal(name, version)) {
        assert!(matches!(swap(&locks, LEASE, version).await, Ok(Swap::Done { .. })));
    }
    assert_eq!(*database.heartbeats.lock().unwrap(), 1);
    // The heartbeat does not name this write of the seat.
    let other = VersionParts { write: "other".to_owned(), ..VersionParts::parse(&versions[0]).unwrap() };
    assert!(matches!(swap(&locks, LEASE, renewal("a", &other.version())).await, Ok(Swap::Lost)));
}

#[tokio::test(start_paused = true)]
async fn a_seat_whose_row_was_removed_is_lost_and_its_lock_is_released_a_lease_later() {
    let (database, locks) = database();
    let version = won(&locks, "a").await;
    database.rows.lock().unwrap().clear();
    assert!(matches!(swap(&locks, LEASE, renewal("a", &version)).await, Ok(Swap::Lost)));
    tokio::time::sleep(LEASE - Duration::from_millis(1)).await;
    assert!(database.released.lock().unwrap().is_empty(), "the lock protects the work of a leader for a lease");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(*database.released.lock().unwrap(), [[seat("a")]]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_leaves_no_lock_behind_or_ends_the_session() {
    let (database, locks) = database();
    let session = locks.session(LEASE).await.unwrap();
    database.behaves(Behaviour::Refuses);
    assert!(swap(&locks, LEASE, bid("a")).await.is_err());
    assert_eq!(*database.released.lock().unwrap(), [[seat("a")]]);
    assert!(!session.connection.0.is_closed());
    database.behaves(Behaviour::Fails);
    assert!(swap(&locks, LEASE, bid("a")).await.is_err());
    assert!(session.connection.0.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_dropped_runs_to_its_end_and_a_lease_of_silence_ends_the_session() {
    let (database, locks) = database();
    let session = locks.session(LEASE).await.unwrap();
    database.behaves(Behaviour::Silent);
    let dropped = tokio::time::timeout(LEASE / 3, swap(&locks, LEASE, bid("a"))).await;
    assert!(dropped.is_err() && !session.connection.0.is_closed());
    tokio::time::sleep(LEASE).await;
    assert!(session.connection.0.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_written_on_the_session_that_holds_it_and_lost_without_that_session() {
    let (database, locks) = database();
    let version = won(&locks, "a").await;
    let next = Write { expect: Expect::Version(version.clone()), ..bid("a") };
    assert!(matches!(swap(&locks, LEASE * 2, next).await, Ok(Swap::Done { .. })));
    let [first, second] = database.written_by.lock().unwrap()[..] else { panic!("two writes") };
    assert_eq!(first, second);
    let elsewhere = VersionParts { session: Some(first ^ 1), ..VersionParts::parse(&version).unwrap() };
    assert!(matches!(swap(&locks, LEASE, renewal("a", &elsewhere.version())).await, Ok(Swap::Lost)));
    #[cfg(unix)]
    assert!(locks.lifeline(&seat("a")).unwrap().is_some() && locks.lifeline(&seat("b")).unwrap().is_none());
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_lifeline_is_that_of_the_session_that_won_the_seat_last() {
    // Several times, as sessions are in no order.
    for _ in 0..16 {
        let (database, locks) = database();
        won(&locks, "a").await;
        let first = locks.session(LEASE).await.unwrap();
        first.connection.0.doubt();
        database.rows.lock().unwrap().clear();
        won(&locks, "a").await;
        let second = locks.session(LEASE).await.unwrap();
        assert_ne!(first.id, second.id);
        assert!(locks.lifeline(&seat("a")).unwrap().is_some());
        let taken = [&first, &second].map(|session| session.connection.1.load(Ordering::Relaxed));
        assert_eq!(taken, [0, 1], "the lifeline of another session");
        assert!(first.connection.0.is_closed(), "a session without seats that was replaced stays open");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_session_is_ended_a_lease_after_its_last_seat_was_lost() {
    let (database, locks) = database();
    let version = won(&locks, "a").await;
    let first = locks.session(LEASE).await.unwrap();
    database.rows.lock().unwrap().clear();
    assert!(matches!(swap(&locks, LEASE, renewal("a", &version)).await, Ok(Swap::Lost)));
    first.connection.0.doubt();
    locks.session(LEASE).await.unwrap();
    assert!(!first.connection.0.is_closed(), "the lock protects the work of a leader for a lease");
    tokio::time::sleep(LEASE + Duration::from_millis(1)).await;
    locks.session(LEASE).await.unwrap();
    assert!(first.connection.0.is_closed());
}

/// A store whose seat another process holds.
struct Followed(Arc<SeatLocks<Database>>);

impl Store for Followed {
    fn promises(&self) -> Promises {
        Promises { push: Push::Hint, ..Promises::of("followed") }
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        (0..seats.len()).for_each(|place| to.set(place, Ok(Reading::of(Some(theirs())))));
        Ok(())
    }

    async fn write(&self, _: &Call, _: &[Write], _: &Answers<Swap>) -> Result<(), StoreError> {
        Err(StoreError::refused("another process leads"))
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.0.follow(interest, news, None).await
    }
}

fn theirs() -> Seat {
    let parts = VersionParts { write: "1".to_owned(), identity: "data".to_owned(), session: Some(7) };
    Seat { record: bid("a").record, version: parts.version(), life: Life::Held }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_outlives_its_watch_by_a_slice_unless_another_watch_takes_it_over() {
    let (database, locks) = database();
    let locks = Arc::new(locks);
    let count = || {
        let waiting = database.waiting.lock().unwrap();
        (waiting.len(), waiting.iter().filter(|connection| connection.upgrade().is_some()).count())
    };
    let seen = Seen { seat: Some(theirs()), requests: false };
    for _ in 0..3 {
        let follower = SingleSeat::new(Followed(locks.clone()));
        let followed = tokio::time::timeout(WAIT_SLICE * 2, follower.changed(&seat("a"), &seen)).await;
        assert!(followed.is_err(), "nothing has changed");
        assert_eq!(count(), (1, 1), "one connection, whatever the number of watches");
    }
    tokio::time::sleep(WAIT_SLICE * 2).await;
    assert_eq!(count(), (1, 0), "a connection still waits, although no election follows");
}

#[test]
fn each_seat_of_a_statement_gets_its_own_answer() {
    let (answers, to) = answers();
    let odd = Write { expect: Expect::Version(Version::new("odd")), ..bid("odd") };
    let writes = [bid("done"), bid("lost"), odd, bid("locked")];
    let mut numbers = ["1", "2", "3"].into_iter();
    let numbers = Mutex::new(&mut numbers);
    let sets = WriteSet::split(writes.iter().enumerate(), |_| numbers.lock().unwrap().next().unwrap().to_owned(), &to);
    let [set] = &sets[..] else { panic!("one set") };
    assert_eq!((set.kind, set.seats()), (WriteKind::New, ["done", "lost", "locked"].map(seat).to_vec()));
    let outcomes = HashMap::from([("1".to_owned(), true), ("3".to_owned(), false)]);
    let done = |_: &Write, parts: VersionParts| Swap::Done { version: parts.version(), since: None, granted: None };
    set.answer(Ok(Written { identity: "data".into(), outcomes }), &to, done).unwrap();
    let said = |place: usize| match answers.lock().unwrap()[&place].as_ref() {
        Ok(Swap::Done { version, .. }) => version.as_str().to_owned(),
        Ok(Swap::Lost) => "lost".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!([0, 1, 2].map(said), ["1/data/-/", "lost", "lost"]);
    assert!(said(3).contains("locked by another transaction"));
    // An error that one seat may have caused is reported to none of them.
    answers.lock().unwrap().clear();
    let error = set.answer(Err(StoreError::denied("too long").caused_by_one()), &to, done).unwrap_err();
    assert!(error.is_caused_by_one() && answers.lock().unwrap().is_empty());
    set.answer(Err(StoreError::unknown("broken")), &to, done).unwrap();
    assert_eq!(answers.lock().unwrap().len(), 3);
}

#[test]
fn a_row_is_read_by_its_mode_and_refused_in_the_other_one() {
    let row = |session: Option<i64>, record: Record| SeatRow {
        record: record::to_json(&record),
        write: "1".to_owned(),
        session,
        is_alive: session == Some(7),
        written: 1,
        now: 2,
    };
    let read = |row: SeatRow, mode: Mode| reading(Some(row), mode, "data".to_owned(), 5);
    let life = |row: SeatRow, mode: Mode| read(row, mode).unwrap().seat.unwrap().life;
    assert_eq!(life(row(Some(7), bid("a").record), Mode::Session), Life::Held);
    assert_eq!(life(row(Some(8), bid("a").record), Mode::Session), Life::Over);
    assert!(matches!(life(row(None, bid("a").record), Mode::Lease), Life::Clock { .. }));
    let vacant = || Record::new(None, Token::new(3), LEASE);
    assert_eq!(life(row(None, vacant()), Mode::Session), Life::Over);
    for (session, mode) in [(None, Mode::Session), (Some(7), Mode::Lease)] {
        let error = read(row(session, bid("a").record), mode).unwrap_err().to_string();
        assert!(error.contains("use the same mode in all candidates"), "{error}");
    }
}

// -------------------------------------------------------------------------------------------------

fn database() -> (Arc<Database>, SeatLocks<Database>) {
    let database = Arc::<Database>::default();
    (database.clone(), SeatLocks::new(database))
}

fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap()
}

fn bid(name: &str) -> Write {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) };
    let record = Record { nonce: rand::random(), ..Record::new(Some(holder), Token::new(1), LEASE) };
    Write { seat: seat(name), expect: Expect::Absent(None), record }
}

fn renewal(name: &str, version: &Version) -> Write {
    Write { expect: Expect::Held(version.clone()), ..bid(name) }
}

type Given = Arc<Mutex<HashMap<usize, Result<Swap, StoreError>>>>;

fn answers() -> (Given, Answers<Swap>) {
    let given = Given::default();
    let to = given.clone();
    (given, Answers::new(move |place, answer| drop(to.lock().unwrap().insert(place, answer))))
}

async fn swap(locks: &SeatLocks<Database>, lease: Duration, write: Write) -> Result<Swap, StoreError> {
    let (answers, to) = answers();
    locks.write(lease, &[write], &to).await?;
    answers.lock().unwrap().remove(&0).expect("an answer")
}

async fn won(locks: &SeatLocks<Database>, name: &str) -> Version {
    match swap(locks, LEASE, bid(name)).await {
        Ok(Swap::Done { version, .. }) => version,
        other => panic!("{other:?}"),
    }
}
