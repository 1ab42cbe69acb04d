//! The thread that talks to the database, and commits what came in together as one.
//!
//! ```text
//!  calls ──▶ queue ──▶ BEGIN  act, act, act, …  COMMIT ──▶ bells ──▶ answers
//! ```
//!
//! A call is answered only after the commit that its writes were part of. If that fails, none of them
//! has happened.

use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{Clock, Identity, Moment, SeatName, StoreError, Token};
use tokio::sync::oneshot;

use crate::bells::{Bell, Bells};
use crate::boot::{self, Boot};
use crate::database::{BUSY, Database};
use crate::faults;
use crate::liveness::Liveness;
use crate::place::Place;

/// What a call needs of its transaction, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To write, and to be on disk before it is answered.
    Durable,
}

/// What calls act on.
pub(crate) struct Batch<'a> {
    pub(crate) connection: &'a Connection,
    path: &'a Path,
    pub(crate) identity: &'a Identity,
    /// Tokens of all seats stay above this.
    pub(crate) floor: Token,
    pub(crate) liveness: &'a Liveness,
    /// When this batch began: on the clock of the machine, and of the engine.
    pub(crate) now: i64,
    pub(crate) moment: Moment,
    /// Our last heartbeat, on the engine's clock.
    pub(crate) beat: Option<Moment>,
    /// The longest lease of a seat that we hold.
    lease: Duration,
    /// To be rung after the commit.
    rings: Vec<(SeatName, Bell)>,
}

impl Batch<'_> {
    /// Acts on a seat. If a row of it cannot be read, this call alone fails and the others of the batch go on;
    /// but all of them fail if it has written already, as that can only be undone with the rest.
    pub(crate) fn of_seat<T>(
        &mut self,
        seat: &SeatName,
        act: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Result<T, StoreError>> {
        let changes = self.connection.total_changes();
        match act(self) {
            Err(error) if faults::is_about_a_value(&error) && self.connection.total_changes() == changes => {
                Ok(Err(faults::unreadable(self.path, seat, error)))
            }
            acted => acted.map(Ok),
        }
    }

    pub(crate) fn ring(&mut self, seat: &SeatName, bell: Bell) {
        self.rings.push((seat.clone(), bell));
    }

    /// Notes that a seat is held for this long from our last heartbeat.
    pub(crate) fn holds(&mut self, lease: Duration) {
        self.lease = self.lease.max(lease);
    }

    /// Gives all seats of this session another lease: once for all calls of a batch.
    pub(crate) fn beat(&mut self, session: &str) -> rusqlite::Result<()> {
        if self.beat == Some(self.moment) {
            return Ok(());
        }
        let boot = Boot::this();
        self.connection
            .prepare_cached(
                "INSERT INTO sessions (id, kernel, clock, beats, beat_at) VALUES (?1, ?2, ?3, 1, ?4)
                 ON CONFLICT (id) DO UPDATE SET beats = beats + 1, beat_at = excluded.beat_at",
            )?
            .execute((session, &boot.kernel, &boot.clock, self.now))?;
        self.beat = Some(self.moment);
        Ok(())
    }
}

/// What the worker's thread works with.
pub(crate) struct Context {
    pub(crate) place: Place,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) clock: Arc<OnceLock<Clock>>,
}

/// The way to the worker's thread.
pub(crate) struct Worker(mpsc::Sender<Box<dyn Job>>);

impl Worker {
    /// Starts the thread. It ends when this is dropped and what was asked is done.
    pub(crate) fn start(context: Context) -> std::io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        std::thread::Builder::new().name("tenure-sqlite".to_owned()).spawn(move || Desk::new(context).run(&inbox))?;
        Ok(Self(jobs))
    }

    /// Has this done in the next transaction. If the future is dropped before that has begun, it is
    /// not done.
    pub(crate) async fn run<T, F>(&self, need: Need, act: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Batch<'_>) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Call { need, act: Some(act), result: None, reply };
        let gone = || StoreError::unknown("the thread of the store is gone");
        self.0.send(Box::new(job)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// A call, without its types.
trait Job: Send {
    fn need(&self) -> Need;
    fn is_given_up(&self) -> bool;
    fn act(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()>;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

struct Call<T, F> {
    need: Need,
    act: Option<F>,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Call<T, F>
where
    T: Send,
    F: FnOnce(&mut Batch<'_>) -> rusqlite::Result<Result<T, StoreError>> + Send,
{
    fn need(&self) -> Need {
        self.need
    }

    fn is_given_up(&self) -> bool {
        self.reply.is_closed()
    }

    fn act(&mut self, batch: &mut Batch<'_>) -> rusqlite::Result<()> {
        if let Some(act) = self.act.take() {
            self.result = Some(act(batch)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        let _ = reply.send(committed.and_then(|()| result.unwrap_or_else(|| Err(StoreError::refused("not done")))));
    }
}

/// The worker's side.
struct Desk {
    context: Context,
    database: Option<Database>,
    /// A transaction could be neither committed nor rolled back: the database is to be opened again.
    is_stuck: bool,
    /// How long to wait for others that open the database: not again after that was in vain.
    patience: Duration,
    beat: Option<Moment>,
    lease: Duration,
}

/// So many calls are committed together at the most.
const LARGEST_BATCH: usize = 1000;

impl Desk {
    fn new(context: Context) -> Self {
        Self { context, database: None, is_stuck: false, patience: BUSY, beat: None, lease: Duration::ZERO }
    }

    fn run(&mut self, inbox: &mpsc::Receiver<Box<dyn Job>>) {
        while let Ok(first) = inbox.recv() {
            let mut jobs = vec![first];
            jobs.extend(inbox.try_iter().take(LARGEST_BATCH - 1));
            jobs.retain(|job| !job.is_given_up());
            if !jobs.is_empty() {
                self.commit(jobs);
            }
        }
    }

    fn commit(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        let outcome = self.transact(&mut jobs);
        for job in jobs {
            job.answer(match &outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(error.clone()),
            });
        }
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let need = jobs.iter().map(|job| job.need()).max().unwrap_or(Need::Read);
        let Context { liveness, bells, clock, .. } = &self.context;
        let (liveness, bells, clock) = (liveness.clone(), bells.clone(), clock.clone());
        let (last_beat, longest_lease) = (self.beat, self.lease);
        let database = self.database()?;
        if need > Need::Read {
            database.set_durable(need == Need::Durable)?;
        }
        database
            .run(|connection| connection.execute_batch(if need == Need::Read { "BEGIN" } else { "BEGIN IMMEDIATE" }))?;
        // First what the leader counts from, then what its followers do: were it the other way round, a
        // pause in between would let it count on more than it has.
        let moment = now_on(&clock);
        let now = boot::now();
        let mut batch = Batch {
            connection: &database.connection,
            path: database.path(),
            identity: &database.identity,
            floor: database.floor,
            liveness: &liveness,
            now,
            moment,
            beat: last_beat,
            lease: longest_lease,
            rings: Vec::new(),
        };
        let acted = jobs.iter_mut().try_for_each(|job| job.act(&mut batch));
        let Batch { beat, lease, rings, .. } = batch;
        let committed = acted.and_then(|()| database.connection.execute_batch("COMMIT"));
        if let Err(error) = committed {
            let error = faults::of_sqlite(database.path(), error);
            self.is_stuck =
                !database.connection.is_autocommit() && database.connection.execute_batch("ROLLBACK").is_err();
            return Err(error);
        }
        (self.beat, self.lease) = (beat, lease);
        for (seat, bell) in rings {
            bells.ring(&seat, bell);
        }
        Ok(())
    }

    /// The database at its path, opened if need be.
    fn database(&mut self) -> Result<&mut Database, StoreError> {
        if let Some(missing) = self.database.as_ref().and_then(Database::missing) {
            let (file, database) = (missing.display(), self.context.place.database.display());
            // Others can open the database once this connection is closed, and may find nothing in it.
            let may_lead = self.beat.is_some_and(|beat| now_on(&self.context.clock).since(beat) < self.lease);
            if may_lead {
                return Err(StoreError::refused(format!(
                    "{file} was removed or replaced while this process has {database} open: terms end with their \
                     lease, then the database is opened again"
                )));
            }
            let (file, database) = (file.to_string(), database.to_string());
            // Calls wait for this thread, so it does not wait for the subscriber.
            tenure_core::log::emit(tracing::Level::WARN, move || {
                tracing::warn!(%file, %database, "a file was removed or replaced: opening the database again");
            });
            self.database = None;
            self.beat = None;
        }
        if std::mem::take(&mut self.is_stuck) {
            self.database = None;
        }
        match &mut self.database {
            Some(_) => {}
            empty => {
                let patience = std::mem::take(&mut self.patience);
                let database = Database::open(&self.context.place, patience)?;
                clear_away(&database, &self.context.liveness)?;
                self.patience = BUSY;
                *empty = Some(database);
            }
        }
        self.database.as_mut().ok_or_else(|| StoreError::refused("the database is closed"))
    }
}

fn now_on(clock: &OnceLock<Clock>) -> Moment {
    clock.get().unwrap_or(&Clock::system()).now()
}

/// Removes what processes have left behind that are gone, and that no seat names.
fn clear_away(database: &Database, liveness: &Liveness) -> Result<(), StoreError> {
    let named: Vec<String> = database.run(|connection| {
        connection
            .prepare("SELECT DISTINCT session FROM seats WHERE session IS NOT NULL")?
            .query_map([], |row| Ok(row.get_ref(0)?.as_str().unwrap_or_default().to_owned()))?
            .collect()
    })?;
    for session in liveness.sessions() {
        if !named.contains(&session) {
            liveness.remove_if_gone(&session);
        }
    }
    // Sessions without a seat renew nothing. A process that lives makes its own again when it bids.
    database.run(|connection| {
        connection
            .execute("DELETE FROM sessions WHERE id NOT IN (SELECT session FROM seats WHERE session IS NOT NULL)", [])
    })?;
    Ok(())
}
