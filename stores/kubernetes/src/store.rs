//! The store: its constructors, its promises, and its calls in terms of Lease objects.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use kube::Config;
use tenure_core::{
    Answers, BatchLimits, Call, Clock, ConfigError, DataIdentity, DynNotes, Expect, Interest, Life, LifeKind, Moment,
    News, Promises, Push, Reading, Scope, Seat, SeatName, Store, StoreError, Swap, Token, Version, Write,
};
use tenure_kit::PendingWrites;
use tokio::sync::Notify;

use crate::api::{Api, Which};
use crate::connection;
use crate::lease::Lease;
use crate::names;
use crate::notes::Known;
use crate::options::{ConfigSource, KubernetesOptions};
use crate::seats::{Seats, version_of};
use crate::watch::Watch;

/// Keeps seats in the Lease objects of a Kubernetes cluster. One watch serves all elections of a process; each
/// renewal is one write.
///
/// A new store has neither read its configuration nor connected; the first call does both.
pub struct KubernetesStore {
    pub(crate) api: Arc<Api>,
    pub(crate) known: Known,
    seats: Mutex<Seats>,
    /// Notified when a seat was read or written at a revision that the watch must report as well.
    pub(crate) echo_awaited: Notify,
    clock: OnceLock<Clock>,
    news: OnceLock<News>,
    /// Whether the missing permission to watch was logged.
    warned: AtomicBool,
    pending: PendingWrites,
}

/// Each pending call has a connection of its own, so their number is limited: to 32 of each group, and there are about six
/// groups. A read selects one object by name,
/// which is one key of etcd. A list by labels would read every Lease of the namespace, notes included, and would
/// not find objects that other clients have created.
const LIMITS: BatchLimits = BatchLimits { seats: 1, calls: 32 };

/// The pause before another attempt to watch without permission.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

impl KubernetesStore {
    /// Creates a store with these options. It connects at the first call, so an unreachable cluster is not an
    /// error here.
    ///
    /// # Errors
    /// Returns one line if the options are not valid or contradict each other.
    pub fn new(options: KubernetesOptions) -> Result<Self, ConfigError> {
        options.check()?;
        Ok(Self::from_source(ConfigSource::Options(options)))
    }

    /// Creates a store from a URL; see [`KubernetesOptions::from_url`] for its form. It connects at the first
    /// call.
    ///
    /// # Errors
    /// Returns one line if the URL is not valid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(KubernetesOptions::from_url(url)?)
    }

    /// Creates a store from a configuration of the `kube` crate, in this namespace or in the configuration's
    /// default one. The store creates a client of its own, so calls of your client do not delay it.
    pub fn with_config(config: Config, namespace: Option<&str>) -> Self {
        Self::from_source(ConfigSource::Config(Box::new(config), namespace.map(ToOwned::to_owned)))
    }

    fn from_source(source: ConfigSource) -> Self {
        Self {
            api: Arc::new(Api::new(connection::reconnect(source))),
            known: Known::default(),
            seats: Mutex::default(),
            echo_awaited: Notify::new(),
            clock: OnceLock::new(),
            news: OnceLock::new(),
            warned: AtomicBool::new(false),
            pending: PendingWrites::default(),
        }
    }

    pub(crate) fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.get_or_init(Clock::system).now()
    }

    /// Reads the object of a seat: one call, answered from the cluster's etcd. The revision of the list is above
    /// every token that was ever minted for the seat, whether it exists or not. Returns the epoch, the revision
    /// and the object.
    async fn read_object(&self, seat: &SeatName) -> Result<(u64, u64, Option<Lease>), StoreError> {
        let (asked, _) = self.seats().now();
        let list = self.api.list(&Which::Name(names::object_of(seat))).await?;
        let object = list.items.into_iter().next();
        let mut seats = self.seats();
        let epoch = seats.take_revision(asked, list.revision);
        seats.take(seat, object.clone(), false);
        if seats.is_unlabelled(seat)
            && let Some(news) = self.news.get()
        {
            // Makes the engine poll every third of a lease, until a candidate of Tenure has written the object
            // and its label.
            news.gap(Scope::Seat(seat));
        }
        Ok((epoch, list.revision, object))
    }

    async fn read_seat(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        let is_ours = self.seats().is_ours(seat);
        if !is_ours {
            self.api.admit()?;
        }
        let (epoch, floor, object) = self.read_object(seat).await?;
        let seat = match &object {
            None => None,
            Some(object) => {
                let (record, revision) = (object.record(seat)?, object.revision()?);
                self.await_echo(seat, revision, record.lease);
                let received = self.seats().received(seat, revision);
                let life = received.map_or(Life::Observe, |at| Life::Received { at });
                Some(Seat { record, version: version_of(epoch, object), life })
            }
        };
        Ok(Reading { seat, floor: Token::new(floor), identity: Some(DataIdentity::new(epoch.to_string())) })
    }

    /// Returns the object with this version, or `None` if the seat has another version now.
    async fn object(&self, seat: &SeatName, version: &Version) -> Result<Option<Lease>, StoreError> {
        let known = self.seats().object(seat, version);
        if known.is_none() {
            self.read_object(seat).await?;
            return Ok(self.seats().object(seat, version));
        }
        Ok(known)
    }

    /// Writes a seat on condition.
    ///
    /// # Correctness
    /// *One winner.* A seat that was read is replaced with its resourceVersion and uid, and a seat that did not
    /// exist is created; see [`Api::replace`]. The server does either in one transaction of etcd, which compares
    /// and writes, and answers once a majority has it. Every write has a new nonce, so the server never treats
    /// one as a repetition of the write before and skips it.
    ///
    /// *A renewal* is such a replacement as well. The version that it replaces named this holder and term,
    /// because this process wrote or read them with that version. So `Done` means that the seat named them up to
    /// this write, and this write names them again. If another write came first, even one of our own whose answer
    /// was lost, the server reports a conflict (409), the answer is `Lost`, and the engine reads who holds the
    /// seat.
    ///
    /// *The token* is part of the write, and above the token of the seat as it was read. It is also above the
    /// revision of that read, and so above every token of this seat, because each of those was at most the
    /// revision of the write that won with it. This holds even if the seat was deleted, or was taken by a client
    /// that does not know tokens. It does not hold for a bid on an absent seat that arrives after the seat was led and
    /// removed: a creation has no condition but that the object does not exist, and a removed object leaves no token
    /// that the server could compare. Only an object that outlives the seat could. The store's promises name this.
    ///
    /// *Interruptions.* Whatever happens to this process before the answer, the object is either unchanged or
    /// fully written, and the next read shows which. A write that is still in flight can only replace the version
    /// that it was meant for.
    async fn write_seat(&self, Write { seat, expect, record }: &Write) -> Result<Swap, StoreError> {
        // A leader also keeps its seat when it rewrites its record.
        let is_urgent = matches!(expect, Expect::Held(_)) || record.holder.is_none() || self.seats().is_ours(seat);
        if !is_urgent {
            self.api.admit()?;
        }
        let mut object = match expect.version() {
            Some(version) => match self.object(seat, version).await? {
                Some(object) => object,
                None => return Ok(Swap::Lost),
            },
            None if expect.is_absent_elsewhere(&self.seats().now().1.to_string()) => return Ok(Swap::Lost),
            None => Lease::new(names::object_of(seat)),
        };
        if let Some(theirs) = object.foreign_duration().filter(|theirs| *theirs != record.lease) {
            tracing::warn!(
                %seat,
                ?theirs,
                ours = ?record.lease,
                "another client held this Lease with a different duration; use the same duration everywhere while both \
                 take part"
            );
        }
        object.put(seat, record, Timestamp::now())?;
        let (asked, epoch) = self.seats().now();
        let (api, is_new) = (self.api.clone(), matches!(expect, Expect::Absent(_)));
        let write = async move { if is_new { api.create(&object).await } else { api.replace(&object).await } };
        // The answer to a renewal is not waited for: a leader that could not read its seat would lose its term.
        let written = if is_urgent { write.await? } else { self.bid(seat, record.lease, write).await? };
        let Some(written) = written else { return Ok(Swap::Lost) };
        let (version, revision) = (version_of(epoch, &written), written.revision()?);
        {
            let mut seats = self.seats();
            if seats.take_revision(asked, revision) != epoch {
                return Err(StoreError::unknown(
                    "the cluster was restored to an earlier state, so it is not known who leads",
                ));
            }
            seats.take(seat, Some(written), true);
        }
        self.await_echo(seat, revision, record.lease);
        Ok(Swap::Done { version, since: None, granted: None })
    }

    /// Makes a bid. It runs to its end even if this is dropped, and reads of its seat wait for it: the server could
    /// otherwise process the bid after the read.
    async fn bid(
        &self,
        seat: &SeatName,
        lease: Duration,
        bid: impl Future<Output = Result<Option<Lease>, StoreError>> + Send + 'static,
    ) -> Result<Option<Lease>, StoreError> {
        let late = |_| Err(StoreError::unknown("the API server did not answer a bid in time"));
        let bid = async move { tokio::time::timeout(lease / 5, bid).await.unwrap_or_else(late) };
        self.pending.run([seat.clone()], bid).await
    }

    /// Records that a seat was read or written at this revision, which the watch must report as well.
    fn await_echo(&self, seat: &SeatName, revision: u64, lease: Duration) {
        if self.seats().await_echo(seat, revision, lease) {
            self.echo_awaited.notify_one();
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
            reads: LIMITS,
            writes: LIMITS,
            durability: "a write counts once a majority of the cluster's etcd members has it on disk",
            min_lease: Duration::from_secs(1),
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "The cluster's etcd is restored from a backup: a candidate that starts afterwards cannot know what was \
                 lost. Candidates that were running wait for a lease, and tokens can repeat.",
                "A Lease is deleted by hand during a term: a candidate that starts afterwards cannot know of it, and \
                 takes the seat at once. The leader stops as soon as it is notified, at its next renewal at the \
                 latest. Candidates that were running wait for a lease.",
                "A Lease is edited by hand during a term: candidates follow what it then says. The leader stops as \
                 soon as it is notified that the Lease names another holder or none, at its next renewal at the \
                 latest.",
                "A Lease is moved to another cluster by hand during a term.",
                "A bid reaches the API server only after its seat was led, released and removed (tenure forget, or the Lease \
                 was deleted by hand): no token of the removed terms is left to compare with, so the bid creates the Lease \
                 again, and its token can be one that a removed term had, or lower.",
                "Other clients take part in the same election with a different lease duration, or compare the wall \
                 clocks of hosts.",
            ],
            ..Promises::of("kubernetes")
        }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        let _ = self.clock.set(clock.clone());
        let _ = self.news.set(news.clone());
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let read = async |seats: Vec<SeatName>, to: Answers<Reading>| {
            let each = seats.iter().enumerate().map(async |(at, seat)| to.set(at, self.read_seat(seat).await));
            join_all(each).await;
            Ok(())
        };
        self.pending.read(seats, to, read).await
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
                "cannot watch for changes; candidates poll every third of a lease instead; add `verbs: [watch]` on \
                 leases.coordination.k8s.io to the role"
            );
        }
        // A random part of it, at least half, so that many processes do not retry at the same time.
        let pause = FORBIDDEN_PAUSE.mul_f64(rand::random_range(0.5..=1.0));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.api.credential_rejected() => {}
        }
        error
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    /// Removes the objects of a seat and its notes. No floor needs to be kept, because the cluster's revision is
    /// one.
    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let (_, revision, object) = self.read_object(seat).await?;
        // A record that is not readable has no token to keep. No token can follow the highest one, so it is not
        // kept either.
        if let Some(record) = object.as_ref().and_then(|object| object.record(seat).ok()) {
            let token = record.token.get();
            if token > revision && record.token < Token::MAX {
                return Err(StoreError::denied(format!(
                    "cannot remove the seat: its token {token} is above the revision of this cluster ({revision}), so \
                     it was minted elsewhere, and without the seat tokens would start over"
                )));
            }
        }
        for label in [names::SEAT, names::BOARD] {
            let notes = self.api.list(&Which::Labels(format!("{label}={}", names::label_of(seat)))).await?;
            for note in notes.items {
                self.api.delete(&note.metadata.name).await?;
            }
        }
        if let Some(object) = object {
            self.api.delete(&object.metadata.name).await?;
        }
        Ok(())
    }

    /// Lists the Leases with the label of a seat. A Lease that only other clients have written has no such label, and is
    /// not listed.
    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.api.admit()?;
        let seats = Which::Labels(format!("{},!{}", names::SEAT, names::NOTE));
        let objects = self.api.list_in_pages(&seats).await?;
        // A Lease that was copied to another name is no seat.
        let seat = |object: &Lease| {
            let seat = SeatName::new(object.annotation(names::NAME)?).ok()?;
            (names::object_of(&seat) == object.metadata.name).then_some(seat)
        };
        Ok(objects.iter().filter_map(seat).collect())
    }
}
