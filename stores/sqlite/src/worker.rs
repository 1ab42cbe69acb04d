//! The thread that talks to the database, and commits calls that came in together as one.
//!
//! ```text
//!  calls ──▶ queue ──▶ BEGIN  act, act, act, …  COMMIT ──▶ notifications ──▶ answers
//! ```
//!
//! A call is answered only after the commit that its writes were part of. If that fails, none of them
//! has happened. Calls are acted on in the order in which they were made, so a read sees what an earlier write has
//! done, also one that nobody waits for any more.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{Clock, Moment, News, SeatName, StoreError};
use tokio::sync::oneshot;

use crate::boot::{self, Boot};
use crate::database::{BUSY, Database};
use crate::errors;
use crate::liveness::Liveness;
use crate::notifier::{About, Notifier};
use crate::place::Place;

/// What a call needs of its transaction, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To write, on a session of ours, and to be on disk before it is answered.
    Durable,
}

/// What the threads of a store have in common.
pub(crate) struct Context {
    pub(crate) place: Place,
    pub(crate) liveness: Liveness,
    /// Names us in our notifications.
    pub(crate) sender: u64,
    pub(crate) clock: OnceLock<Clock>,
    pub(crate) news: OnceLock<News>,
}

impl Context {
    fn now(&self) -> Moment {
        self.clock.get().unwrap_or(&Clock::system()).now()
    }
}

/// The heartbeat that keeps all seats of this process.
#[derive(Clone, Copy, Default)]
pub(crate) struct Heart {
    /// The last one, on the engine's clock.
    pub(crate) last: Option<Moment>,
    /// How many there were.
    pub(crate) beats: i64,
    /// The longest lease of a seat that we have held.
    lease: Duration,
}

/// A transaction, for calls to act in.
pub(crate) struct Batch<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: &'a Database,
    pub(crate) context: &'a Context,
    /// When it began: on the clock of the machine, and of the engine.
    pub(crate) now: i64,
    moment: Moment,
    pub(crate) heart: Heart,
    /// To be sent after the commit.
    notifications: Vec<(SeatName, About)>,
}

impl Batch<'_> {
    /// Acts on a seat or a board of this name. If a row of it cannot be read, it alone fails and the others of the
    /// transaction go on; but all of them fail if something was written for it already, as that can only be undone with the rest.
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

    /// Notifies this process at once, and the others after the commit, that something about a seat has changed.
    ///
    /// At once, because the seat is then read on this very thread, after the commit; and because no other process can
    /// commit before, so that the news of this change never come after those of a later one. If the commit fails, the
    /// seat is looked at for nothing.
    pub(crate) fn changed(&mut self, seat: &SeatName, about: About, tell: impl FnOnce(&News)) {
        self.context.news.get().map(tell);
        self.notifications.push((seat.clone(), about));
    }

    /// Gives all seats of our session another lease, once in a transaction, unless the last heartbeat is younger than
    /// this. Notes that one of them is held for this lease.
    pub(crate) fn beat(&mut self, session: &str, lease: Duration, younger: Duration) -> rusqlite::Result<()> {
        self.heart.lease = self.heart.lease.max(lease);
        if self.heart.last.is_some_and(|last| last == self.moment || self.moment.since(last) < younger) {
            return Ok(());
        }
        let boot = Boot::this();
        self.heart.beats = self
            .connection
            .prepare_cached(
                "INSERT INTO sessions (id, kernel, clock, beats, beat_at) VALUES (?1, ?2, ?3, 1, ?4)
                 ON CONFLICT (id) DO UPDATE SET beats = beats + 1, beat_at = excluded.beat_at RETURNING beats",
            )?
            .query_row((session, &boot.kernel, &boot.clock, self.now), |row| row.get(0))?;
        self.heart.last = Some(self.moment);
        Ok(())
    }
}

/// The way to the worker's thread.
pub(crate) struct Worker(mpsc::Sender<Job>);

type Act = dyn FnOnce(&mut Batch<'_>) -> rusqlite::Result<()> + Send;

struct Job {
    need: Need,
    act: Box<Act>,
    /// Closed when nobody waits any more.
    committed: oneshot::Sender<Result<(), StoreError>>,
}

impl Worker {
    /// Starts the thread. It ends when this is dropped and what was asked is done.
    pub(crate) fn start(context: Arc<Context>) -> std::io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        std::thread::Builder::new()
            .name("tenure-sqlite".to_owned())
            .spawn(move || WorkerThread::new(context).run(&inbox))?;
        Ok(Self(jobs))
    }

    /// Has this done in the next transaction. If the future is dropped before that has begun, it is
    /// not done.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        need: Need,
        act: impl FnOnce(&mut Batch<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (result, acted) = oneshot::channel();
        let (committed, commit) = oneshot::channel();
        let act = Box::new(move |batch: &mut Batch<'_>| act(batch).map(|acted| drop(result.send(acted))));
        let gone = || StoreError::unknown("the thread of the store is gone");
        self.0.send(Job { need, act, committed }).map_err(|_| gone())?;
        commit.await.map_err(|_| gone())??;
        acted.await.map_err(|_| gone())
    }
}

/// The worker's side.
struct WorkerThread {
    context: Arc<Context>,
    notifier: Notifier,
    database: Option<Database>,
    /// How long to wait for others that open the database: not again after that was in vain.
    patience: Duration,
    heart: Heart,
}

impl WorkerThread {
    fn new(context: Arc<Context>) -> Self {
        let notifier = Notifier::new(context.place.clone(), context.sender);
        Self { context, notifier, database: None, patience: BUSY, heart: Heart::default() }
    }

    fn run(&mut self, inbox: &mpsc::Receiver<Job>) {
        while let Ok(first) = inbox.recv() {
            let mut jobs = vec![first];
            // As many as the engine lets leave at once.
            jobs.extend(inbox.try_iter());
            jobs.retain(|job| !job.committed.is_closed());
            let Some(need) = jobs.iter().map(|job| job.need).max() else { continue };
            let (acts, waiting): (Vec<_>, Vec<_>) = jobs.into_iter().map(|job| (job.act, job.committed)).unzip();
            let outcome = self.transact(need, |batch| acts.into_iter().try_for_each(|act| act(batch)));
            for committed in waiting {
                let _ = committed.send(outcome.clone());
            }
        }
    }

    fn transact(
        &mut self,
        need: Need,
        act: impl FnOnce(&mut Batch<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        let (context, heart) = (self.context.clone(), self.heart);
        let database = self.database()?;
        if need > Need::Read {
            database.set_durable(need == Need::Durable)?;
        }
        if need == Need::Durable {
            context.liveness.begin()?;
        }
        let begin = if need == Need::Read { "BEGIN" } else { "BEGIN IMMEDIATE" };
        database.run(|connection| connection.execute_batch(begin))?;
        // First what the leader counts from, then what its followers do: were it the other way round, a
        // pause in between would let it count on more than it has.
        let moment = context.now();
        let now = boot::now();
        let (connection, notifications) = (&database.connection, Vec::new());
        let mut batch = Batch { connection, database, context: &context, now, moment, heart, notifications };
        let acted = act(&mut batch);
        let Batch { heart, notifications, .. } = batch;
        if let Err(error) = acted.and_then(|()| connection.execute_batch("COMMIT")) {
            let error = errors::of_sqlite(database.path(), error);
            if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
                // It is opened again by the next call.
                self.database = None;
            }
            return Err(error);
        }
        self.heart = heart;
        for (seat, about) in notifications {
            self.notifier.notify(&seat, about);
        }
        Ok(())
    }

    /// The database at its path, opened if need be.
    fn database(&mut self) -> Result<&mut Database, StoreError> {
        if let Some(missing) = self.database.as_ref().and_then(Database::missing) {
            let (file, database) = (missing.display().to_string(), self.context.place.database.display().to_string());
            // Others can open the database once this connection is closed, and may find nothing in it.
            if self.heart.last.is_some_and(|last| self.context.now().since(last) < self.heart.lease) {
                return Err(StoreError::refused(format!(
                    "{file} was removed or replaced while this process has {database} open: terms end with their \
                     lease, then the database is opened again"
                )));
            }
            // Calls wait for this thread, so it does not wait for the subscriber.
            tenure_core::log::emit(tracing::Level::WARN, move || {
                tracing::warn!(%file, %database, "a file was removed or replaced: opening the database again");
            });
            self.database = None;
            self.heart.last = None;
        }
        match &mut self.database {
            Some(database) => Ok(database),
            empty => {
                let database = Database::open(&self.context.place, std::mem::take(&mut self.patience))?;
                clear_away(&database, &self.context)?;
                self.patience = BUSY;
                Ok(empty.insert(database))
            }
        }
    }
}

/// Removes what processes have left behind that are gone, and that no seat names. A notification file is made again by its process
/// when it notifies others.
fn clear_away(database: &Database, context: &Context) -> Result<(), StoreError> {
    let named: Vec<String> = database.run(|connection| {
        connection
            .prepare("SELECT DISTINCT session FROM seats WHERE session IS NOT NULL")?
            .query_map([], |row| Ok(row.get_ref(0)?.as_str().unwrap_or_default().to_owned()))?
            .collect()
    })?;
    for file in std::fs::read_dir(&context.place.side).into_iter().flatten().flatten() {
        match file.file_name().to_str().and_then(|name| name.split_once('.')) {
            Some((session, "lock")) if !named.iter().any(|named| named == session) => {
                context.liveness.remove_if_gone(session);
            }
            Some((_, rest)) if rest.ends_with(".bell") => drop(std::fs::remove_file(file.path())),
            _ => {}
        }
    }
    // Sessions without a seat renew nothing. A process that lives makes its own again when it bids.
    database.run(|connection| {
        connection
            .execute("DELETE FROM sessions WHERE id NOT IN (SELECT session FROM seats WHERE session IS NOT NULL)", [])
    })?;
    Ok(())
}
