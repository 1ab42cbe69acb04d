//! The store itself: what the engine asks, in terms of Lease objects.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use kube::Config;
use tenure_core::{
    Answers, BatchLimits, Call, Clock, DynNotes, Expect, Identity, Interest, Life, LifeKind, Moment, News, Promises,
    Push, Reading, Scope, Seat, SeatName, Store, StoreError, Swap, Token, Version, Write,
};
use tokio::sync::Notify;

use crate::api::{Api, Which};
use crate::connection::KubeConnections;
use crate::lease::Lease;
use crate::names;
use crate::notes::Known;
use crate::options::{KubernetesOptions, Place};
use crate::seats::{Seats, version_of};
use crate::watch::Watch;

/// Seats in a Kubernetes cluster.
///
/// Nothing is read and nothing is connected by making one: the engine does when it first asks for a
/// seat.
pub struct KubernetesStore {
    pub(crate) api: Arc<Api>,
    pub(crate) known: Known,
    seats: Mutex<Seats>,
    /// Something was read or written that the watch should tell of, too.
    pub(crate) awaits: Notify,
    clock: OnceLock<Clock>,
    news: OnceLock<News>,
    /// Whether it was logged that the role does not permit to watch.
    warned: AtomicBool,
}

/// Each call under way has a connection of its own, and a server does not like thousands. A seat is read by its name,
/// which is one key of etcd. A list by labels would read every Lease of the namespace, notes included, and would not show
/// those that other clients have made.
const ROOM: BatchLimits = BatchLimits { seats: 1, calls: 64 };

/// How often a watch is tried that the role does not permit.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

impl KubernetesStore {
    /// Seats where the options say.
    ///
    /// # Errors
    /// In one line, if the options contradict each other.
    pub fn new(options: KubernetesOptions) -> Result<Self, String> {
        options.check()?;
        Ok(Self::at(Place::Options(options)))
    }

    /// Seats where the URL says: see [`KubernetesOptions::from_url`].
    ///
    /// # Errors
    /// In one line, if the URL cannot be read.
    pub fn from_url(url: &str) -> Result<Self, String> {
        Self::new(KubernetesOptions::from_url(url)?)
    }

    /// Seats in the cluster that a configuration of the `kube` crate names, and in this namespace of it,
    /// or in its default one. The client is the store's own: it is not slowed down by what yours does.
    pub fn from_config(config: Config, namespace: Option<&str>) -> Self {
        Self::at(Place::Config(Box::new(config), namespace.map(ToOwned::to_owned)))
    }

    fn at(place: Place) -> Self {
        Self {
            api: Arc::new(Api::new(KubeConnections::new(place))),
            known: Known::default(),
            seats: Mutex::default(),
            awaits: Notify::new(),
            clock: OnceLock::new(),
            news: OnceLock::new(),
            warned: AtomicBool::new(false),
        }
    }

    pub(crate) fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.get_or_init(Clock::system).now()
    }

    /// What is there as a seat, as of now: one call, answered from the store of the cluster itself. The list's own
    /// revision is above every token that was ever minted here, be the seat there or not. Returns the life of the
    /// cluster, the revision and the object.
    async fn look(&self, seat: &SeatName) -> Result<(u64, u64, Option<Lease>), StoreError> {
        let (asked, _) = self.seats().now();
        let list = self.api.list(&Which::Name(names::object_of(seat))).await?;
        let object = list.items.into_iter().next();
        let mut seats = self.seats();
        let life = seats.take_revision(asked, list.revision);
        seats.take(seat, object.clone(), false);
        if seats.is_unmarked(seat)
            && let Some(news) = self.news.get()
        {
            // The engine looks every third of a lease, until one of ours has written it and so marked it.
            news.gap(Scope::Seat(seat));
        }
        Ok((life, list.revision, object))
    }

    async fn read_seat(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        let is_ours = self.seats().is_ours(seat);
        if !is_ours {
            self.api.admit()?;
        }
        let (life, floor, object) = self.look(seat).await?;
        let seat = match &object {
            None => None,
            Some(object) => {
                let (record, revision) = (object.record(seat)?, object.revision()?);
                self.await_echo(seat, revision, record.lease);
                let received = self.seats().received(seat, revision);
                let life_of_holder = received.map_or(Life::Observe, |at| Life::Received { at });
                Some(Seat { record, version: version_of(life, object), life: life_of_holder })
            }
        };
        Ok(Reading { seat, floor: Token::new(floor), identity: Some(Identity::new(life.to_string())) })
    }

    /// The object that has this version, if that is still the one.
    async fn object(&self, seat: &SeatName, version: &Version) -> Result<Option<Lease>, StoreError> {
        let known = self.seats().object(seat, version);
        if known.is_none() {
            self.look(seat).await?;
            return Ok(self.seats().object(seat, version));
        }
        Ok(known)
    }

    /// The conditional write.
    ///
    /// # Correctness
    /// *One winner.* A seat that was read is replaced with its resourceVersion and uid, and one that was not
    /// there is created: see [`Api::replace`]. The server does either in one transaction of etcd, which
    /// compares and writes, and answers once a majority has it. Every write has a new nonce, so none is
    /// ever taken for the one before and skipped.
    ///
    /// *A renewal* is such a replacement, too. The version that it replaces named this holder and term, as that is what
    /// we wrote or read with that version. So the answer is `Done` only if the seat named them up to this write, which
    /// names them again. If another write came first, even one of our own whose answer was lost, the server says conflict
    /// (409), the answer is `Lost`, and the engine reads who holds the seat.
    ///
    /// *The token* is in what is written, and above that of the seat as it was read. It is also above the
    /// revision that the reading had, and so above every token of this seat: each of those was at most the
    /// revision of the write that won with it. That holds also if the seat was deleted, or taken by a client
    /// that knows nothing of tokens.
    ///
    /// *In between.* Whatever becomes of us before the answer, the object is as it was or as it was to be,
    /// and the next reading tells. A write that was sent and is still on its way can only land on
    /// the very version that it was meant for.
    async fn write_seat(&self, Write { seat, expect, record }: &Write) -> Result<Swap, StoreError> {
        // A leader keeps its seat by what it writes anew, too.
        let keeps = matches!(expect, Expect::Held(_)) || record.holder.is_none() || self.seats().is_ours(seat);
        if !keeps {
            self.api.admit()?;
        }
        let mut object = match expect {
            Expect::Version(version) | Expect::Held(version) => match self.object(seat, version).await? {
                Some(object) => object,
                None => return Ok(Swap::Lost),
            },
            Expect::Absent(_) if expect.is_absent_elsewhere(&self.seats().now().1.to_string()) => {
                return Ok(Swap::Lost);
            }
            Expect::Absent(_) => Lease::new(names::object_of(seat)),
        };
        if let Some(theirs) = object.duration_of_another().filter(|theirs| *theirs != record.lease) {
            tracing::warn!(
                %seat,
                ?theirs,
                ours = ?record.lease,
                "another client has held this Lease with another duration: give all the same while both take part"
            );
        }
        object.put(seat, record, Timestamp::now())?;
        let (asked, life) = self.seats().now();
        let written = match expect {
            Expect::Absent(_) => self.api.create(&object).await?,
            Expect::Version(_) | Expect::Held(_) => self.api.replace(&object).await?,
        };
        let Some(written) = written else { return Ok(Swap::Lost) };
        let (version, revision) = (version_of(life, &written), written.revision()?);
        {
            let mut seats = self.seats();
            if seats.take_revision(asked, revision) != life {
                return Err(StoreError::unknown(
                    "the cluster has been set back to an earlier state: who leads is not known",
                ));
            }
            seats.take(seat, Some(written), true);
        }
        self.await_echo(seat, revision, record.lease);
        Ok(Swap::Done { version, since: None, granted: None })
    }

    /// A seat was read or written as of this revision: the watch should tell of that, too.
    fn await_echo(&self, seat: &SeatName, revision: u64, lease: Duration) {
        if self.seats().await_echo(seat, revision, lease) {
            self.awaits.notify_one();
        }
    }
}

impl std::fmt::Debug for KubernetesStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesStore").finish_non_exhaustive()
    }
}

impl Store for KubernetesStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Observe,
            push: Push::Proven,
            reads: ROOM,
            writes: ROOM,
            durability: "in the cluster's etcd, on a majority of its disks, before it counts",
            min_lease: Duration::from_secs(1),
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "The cluster's etcd is restored from a backup: a candidate that is started afterwards cannot know what \
                 was lost. Those that were there wait a lease, and tokens may repeat.",
                "A Lease is deleted by hand while somebody leads: a candidate that is started afterwards cannot know, and \
                 takes the seat at once. The leader ends as soon as it hears of it, at its next renewal at the latest. \
                 Candidates that were there wait a lease.",
                "A Lease is edited by hand while somebody leads: candidates go by what it then says. The leader ends as \
                 soon as it hears that the Lease names another holder or none, at its next renewal at the latest.",
                "A Lease is moved to another cluster by hand while somebody leads.",
                "Other clients take part in the same election with another lease duration than ours, or by \
                 comparing the wall clocks of hosts.",
            ],
            ..Promises::of("kubernetes")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        let _ = self.clock.set(clock.clone());
        let _ = self.news.set(news.clone());
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let each = seats.iter().enumerate().map(async |(at, seat)| to.set(at, self.read_seat(seat).await));
        join_all(each).await;
        Ok(())
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let each = writes.iter().enumerate().map(async |(at, write)| to.set(at, self.write_seat(write).await));
        join_all(each).await;
        Ok(())
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        let mut watch = Watch::new(self, news);
        let Err(error) = watch.listen(interest).await;
        if !watch.forbidden {
            return error;
        }
        drop(watch);
        news.gap(Scope::All);
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %error,
                "changes cannot be watched: candidates look every third of a lease instead; \
                 add `verbs: [watch]` on leases.coordination.k8s.io to the role"
            );
        }
        // Half of it at least, so that many processes do not ask at the same time.
        let pause = FORBIDDEN_PAUSE.mul_f64(rand::random_range(0.5..=1.0));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.api.credential_refused() => {}
        }
        error
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    /// Removes the objects. There is nothing to keep: the floor of tokens is the cluster's revision.
    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let (_, revision, object) = self.look(seat).await?;
        // A record that cannot be read has no token to keep, and above the highest there is none.
        if let Some(record) = object.as_ref().and_then(|object| object.record(seat).ok()) {
            let token = record.token.get();
            if token > revision && record.token < Token::MAX {
                return Err(StoreError::denied(format!(
                    "the seat has token {token}, which is above the revision of this cluster ({revision}), so it was made \
                     elsewhere: without it, tokens would start over"
                )));
            }
        }
        for label in [names::SEAT, names::BOARD] {
            let notes = self.api.list(&Which::Labels(format!("{label}={}", names::mark_of(seat)))).await?;
            for note in notes.items {
                self.api.delete(&note.metadata.name).await?;
            }
        }
        if let Some(object) = object {
            self.api.delete(&object.metadata.name).await?;
        }
        Ok(())
    }
}
