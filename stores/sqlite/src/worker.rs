//! The thread that runs all transactions, and commits calls that arrive together as one.
//!
//! ```text
//!  calls ──▶ queue ──▶ BEGIN  act, act, act, …  COMMIT ──▶ notifications ──▶ answers
//! ```
//!
//! Notifications come first, because a process may exit as soon as it has its answer: other processes must learn of its
//! release. Only the answers to bids do not wait for them.
//!
//! A call is answered only after the commit that contains its writes. If the commit fails, none of the writes has
//! taken effect. Calls run in the order in which they were made, so a read sees the effect of every earlier write,
//! even of a write whose caller no longer waits.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{Clock, Moment, News, SeatName, StoreError, Token};
use tokio::sync::oneshot;

use crate::boot::{self, Boot};
use crate::database::{BUSY, Database};
use crate::errors;
use crate::notifier::{self, About, Notifier};
use crate::place::Place;
use crate::process_locks::ProcessLocks;
use crate::reservation;

/// What a call needs of its transaction. The most demanding call of a transaction decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// Only read.
    Read,
    /// Write, without waiting for the disk.
    Write,
    /// Write on a session of this process, with tokens up to this one. Waits for the disk only if the tokens are not
    /// reserved (see [`Database::reserved`]).
    Bid(Token),
    /// Write on a session of this process, and be on disk before it is answered.
    Durable,
}

/// What the threads of a store share.
pub(crate) struct Context {
    pub(crate) place: Place,
    pub(crate) process_locks: ProcessLocks,
    /// Every call opens the database for itself, and can only read.
    pub(crate) read_only: bool,
    /// Marks the notifications of this process.
    pub(crate) sender: u64,
    pub(crate) clock: OnceLock<Clock>,
    pub(crate) news: OnceLock<News>,
}

impl Context {
    fn now(&self) -> Moment {
        self.clock.get().unwrap_or(&Clock::system()).now()
    }
}

/// The state of the one heartbeat, which renews all seats of this process.
#[derive(Clone, Copy, Default)]
pub(crate) struct HeartbeatState {
    /// When the last heartbeat was made, on the engine's clock.
    pub(crate) last: Option<Moment>,
    /// The number of heartbeats so far.
    pub(crate) beats: i64,
    /// The longest lease of a seat that this process has held.
    lease: Duration,
}

/// A transaction in which calls act.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: &'a Database,
    pub(crate) context: &'a Context,
    /// When the transaction began, on the machine's clock and on the engine's clock.
    pub(crate) now: i64,
    moment: Moment,
    pub(crate) heartbeat: HeartbeatState,
    /// Notifications to send after the commit.
    notifications: Vec<(SeatName, About)>,
}

impl Transaction<'_> {
    /// Acts on the seat or board of this name. If one of its rows cannot be decoded, only this seat fails and
    /// the transaction continues. But if something was already written for it, the whole transaction fails,
    /// because the writes can only be undone together.
    pub(crate) fn about<T>(
        &mut self,
        name: &str,
        act: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Result<T, StoreError>> {
        let changes = self.connection.total_changes();
        match act(self) {
            Err(error) if errors::is_about_a_value(&error) && self.connection.total_changes() == changes => {
                Ok(Err(errors::unreadable(self.database.path(), name, error)))
            }
            acted => acted.map(Ok),
        }
    }

    /// Notifies this process at once, and other processes after the commit, that something about a seat has
    /// changed.
    ///
    /// Notifying this process at once is safe: its elections read the seat on this thread, after the commit.
    /// And no other process can commit earlier, so the notification of this change never comes after that of a
    /// later one. If the commit fails, the notification causes one unnecessary look.
    pub(crate) fn changed(&mut self, seat: &SeatName, about: About, notify: impl FnOnce(&News)) {
        self.context.news.get().map(notify);
        self.notifications.push((seat.clone(), about));
    }

    /// Makes a heartbeat, which extends all seats of this session by a lease: at most one per transaction, and
    /// none if the last one is younger than `younger`. Remembers the lease of the seat.
    pub(crate) fn beat(&mut self, session: &str, lease: Duration, younger: Duration) -> rusqlite::Result<()> {
        self.heartbeat.lease = self.heartbeat.lease.max(lease);
        if self.heartbeat.last.is_some_and(|last| last == self.moment || self.moment.since(last) < younger) {
            return Ok(());
        }
        let boot = Boot::this();
        self.heartbeat.beats = self
            .connection
            .prepare_cached(
                "INSERT INTO sessions (id, kernel, clock, beats, beat_at) VALUES (?1, ?2, ?3, 1, ?4)
                 ON CONFLICT (id) DO UPDATE SET beats = beats + 1, beat_at = excluded.beat_at RETURNING beats",
            )?
            .query_row((session, &boot.kernel, &boot.clock, self.now), |row| row.get(0))?;
        self.heartbeat.last = Some(self.moment);
        Ok(())
    }
}

/// A handle to the worker thread.
pub(crate) struct Worker(mpsc::Sender<Job>);

type Act = dyn FnOnce(&mut Transaction<'_>) -> rusqlite::Result<()> + Send;

struct Job {
    need: Need,
    act: Box<Act>,
    /// Closed when the caller no longer waits.
    committed: oneshot::Sender<Result<(), StoreError>>,
}

impl Worker {
    /// Starts the thread. It ends when the handle is dropped and all jobs are done.
    pub(crate) fn start(context: Arc<Context>) -> std::io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        std::thread::Builder::new()
            .name("tenure-sqlite".to_owned())
            .spawn(move || WorkerThread::new(context).run(&inbox))?;
        Ok(Self(jobs))
    }

    /// Runs `act` in the next transaction, and returns after the commit. If the future is dropped before the
    /// transaction begins, `act` does not run.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        need: Need,
        act: impl FnOnce(&mut Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (result, acted) = oneshot::channel();
        let (committed, commit) = oneshot::channel();
        let act = Box::new(move |tx: &mut Transaction<'_>| act(tx).map(|acted| drop(result.send(acted))));
        let gone = || StoreError::unknown("the database thread has ended unexpectedly");
        self.0.send(Job { need, act, committed }).map_err(|_| gone())?;
        commit.await.map_err(|_| gone())??;
        acted.await.map_err(|_| gone())
    }
}

/// The state of the worker thread.
struct WorkerThread {
    context: Arc<Context>,
    notifier: Notifier,
    database: Option<Database>,
    /// How long to wait for other processes that open the database. Zero after a wait that timed out, until the
    /// database was opened.
    max_wait: Duration,
    heartbeat: HeartbeatState,
}

impl WorkerThread {
    fn new(context: Arc<Context>) -> Self {
        let notifier = Notifier::new(context.place.clone(), context.sender);
        Self { context, notifier, database: None, max_wait: BUSY, heartbeat: HeartbeatState::default() }
    }

    fn run(&mut self, inbox: &mpsc::Receiver<Job>) {
        while let Ok(first) = inbox.recv() {
            let mut jobs = vec![first];
            // The engine limits how many calls are in flight.
            jobs.extend(inbox.try_iter());
            jobs.retain(|job| !job.committed.is_closed());
            let Some(need) = jobs.iter().map(|job| job.need).max() else { continue };
            let (acts, waiting): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.act, job.committed)).unzip();
            let outcome = self.transact(need, |tx| acts.into_iter().try_for_each(|act| act(tx)));
            if self.context.read_only {
                self.database = None;
            }
            let (outcome, notifications) = match outcome {
                Ok(notifications) => (Ok(()), notifications),
                Err(error) => (Err(error), Vec::new()),
            };
            let answer = || waiting.into_iter().for_each(|committed| drop(committed.send(outcome.clone())));
            if notifications.iter().all(|(_, about)| *about == About::Won) {
                answer();
                self.notify(notifications);
            } else {
                self.notify(notifications);
                answer();
            }
        }
    }

    fn notify(&mut self, notifications: Vec<(SeatName, About)>) {
        for (seat, about) in notifications {
            self.notifier.notify(&seat, about);
        }
    }

    /// Runs a transaction. Returns the notifications to send.
    fn transact(
        &mut self,
        need: Need,
        act: impl FnOnce(&mut Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<Vec<(SeatName, About)>, StoreError> {
        let (context, heartbeat) = (self.context.clone(), self.heartbeat);
        if context.read_only {
            if need > Need::Read {
                return Err(errors::read_only(&context.place.database));
            }
            self.database = Some(Database::open_to_read(&context.place)?);
        }
        let database = self.database()?;
        let unreserved = match need {
            Need::Bid(token) => Some(token).filter(|token| *token > database.reserved),
            _ => None,
        };
        if need > Need::Read {
            database.set_durable(need == Need::Durable || unreserved.is_some())?;
        }
        if need > Need::Write {
            context.process_locks.begin()?;
        }
        let begin = if need == Need::Read { "BEGIN" } else { "BEGIN IMMEDIATE" };
        database.run(|connection| connection.execute_batch(begin))?;
        // The leader's time is read before the followers' time. In the other order, a pause in between would
        // let the leader rely on more time than it has.
        let moment = context.now();
        let now = boot::now();
        let (connection, notifications) = (&database.connection, Vec::new());
        let mut tx = Transaction { connection, database, context: &context, now, moment, heartbeat, notifications };
        let acted = act(&mut tx);
        let Transaction { heartbeat, notifications, .. } = tx;
        let reserve = || unreserved.map(|token| reservation::reserve(connection, token)).transpose();
        let committed = acted.and_then(|()| reserve()).and_then(|reserved| {
            connection.execute_batch("COMMIT")?;
            Ok(reserved)
        });
        match committed {
            Ok(reserved) => database.reserved = reserved.unwrap_or(database.reserved),
            Err(error) => {
                let error = errors::of_sqlite(database.path(), error);
                if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
                    // The next call opens the database again.
                    self.database = None;
                }
                return Err(error);
            }
        }
        self.heartbeat = heartbeat;
        Ok(notifications)
    }

    /// Returns the database at its path, and opens it if necessary.
    fn database(&mut self) -> Result<&mut Database, StoreError> {
        if let Some(missing) = self.database.as_ref().and_then(Database::missing) {
            let (file, database) = (missing.display().to_string(), self.context.place.database.display().to_string());
            // Once this connection is closed, other processes can open the database, and may find nothing in
            // it.
            if self.heartbeat.last.is_some_and(|last| self.context.now().since(last) < self.heartbeat.lease) {
                return Err(StoreError::refused(format!(
                    "{file} was removed or replaced while this process has {database} open; its terms end with their \
                     lease, and then the database is opened again"
                )));
            }
            // Calls wait for this thread, so it does not wait for the `tracing` subscriber.
            tenure_core::log::emit(tracing::Level::WARN, move || {
                tracing::warn!(%file, %database, "a file was removed or replaced; opening the database again");
            });
            self.database = None;
            self.heartbeat.last = None;
        }
        match &mut self.database {
            Some(database) => Ok(database),
            empty => {
                let database = Database::open(&self.context.place, std::mem::take(&mut self.max_wait))?;
                remove_leftovers(&database, &self.context)?;
                self.max_wait = BUSY;
                Ok(empty.insert(database))
            }
        }
    }
}

/// Removes the locks of processes that are gone and that no seat names, and the notification files. A live
/// process creates its notification file again with its next notification.
fn remove_leftovers(database: &Database, context: &Context) -> Result<(), StoreError> {
    let named: Vec<String> = database.run(|connection| {
        connection
            .prepare("SELECT DISTINCT session FROM seats WHERE session IS NOT NULL")?
            .query_map([], |row| Ok(row.get_ref(0)?.as_str().unwrap_or_default().to_owned()))?
            .collect()
    })?;
    for file in std::fs::read_dir(&context.place.side).into_iter().flatten().flatten() {
        match file.file_name().to_str().and_then(|name| name.split_once('.')) {
            Some((session, "lock")) if !named.iter().any(|named| named == session) => {
                context.process_locks.remove_if_gone(session);
            }
            Some((_, rest)) if rest.ends_with(notifier::SUFFIX) => drop(std::fs::remove_file(file.path())),
            _ => {}
        }
    }
    // Sessions without a seat renew nothing. A live process creates its row again with its next bid.
    database.run(|connection| {
        connection
            .execute("DELETE FROM sessions WHERE id NOT IN (SELECT session FROM seats WHERE session IS NOT NULL)", [])
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tenure_testkit::servers::Folder;

    use super::*;
    use crate::SqliteOptions;
    use crate::database::get_about;

    #[tokio::test]
    async fn a_bid_above_the_reserved_tokens_reserves_more() {
        let folder = Folder::new("reserves");
        let place = Place::new(SqliteOptions { path: Some(folder.path().join("jobs.db")) });
        let process_locks = ProcessLocks::new(place.clone());
        let (clock, news) = (OnceLock::new(), OnceLock::new());
        let context = Context { place, process_locks, read_only: false, sender: 1, clock, news };
        let worker = Worker::start(Arc::new(context)).unwrap();
        let reserved = async |token, fails: bool| {
            let act = move |_: &mut Transaction<'_>| if fails { Err(rusqlite::Error::InvalidQuery) } else { Ok(()) };
            assert_eq!(worker.run(Need::Bid(Token::new(token)), act).await.is_err(), fails);
            let read = |tx: &mut Transaction<'_>| Ok((get_about(tx.connection, "reserved")?, tx.database.reserved));
            let (stored, known) = worker.run(Need::Read, read).await.unwrap();
            assert_eq!(stored.unwrap().split(' ').next(), Some(&*known.to_string()));
            known.get()
        };
        assert_eq!(reserved(1000, false).await, 1000);
        assert_eq!(reserved(1001, true).await, 1000, "nothing is reserved by a transaction that failed");
        assert_eq!(reserved(1001, false).await, 2001);
        assert_eq!(reserved(5, false).await, 2001);
    }
}
