//! The store itself: what the engine asks, in terms of Lease objects.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use kube::Config;
use tenure_core::{
    Change, Clock, DynBoard, Identity, Life, LifeKind, Promises, Push, Reading, Record, Seat, SeatName, SeatStore,
    Seen, StoreError, Swap, Token, Version,
};

use crate::api::{Api, Which};
use crate::board::Notes;
use crate::ears::Ears;
use crate::lease::Lease;
use crate::link::Links;
use crate::names;
use crate::options::{KubernetesOptions, Place};
use crate::post::Heard;

/// Seats in a Kubernetes cluster.
///
/// Nothing is read and nothing is connected by making one: the engine does when it first asks for a
/// seat.
pub struct KubernetesStore {
    pub(crate) api: Arc<Api>,
    pub(crate) ears: Ears,
    pub(crate) notes: Notes,
    seats: Mutex<Seats>,
}

/// What was last seen of the cluster.
#[derive(Default)]
struct Seats {
    /// As which revision the cluster is known, and how often it was found to have gone backwards.
    revision: u64,
    life: u64,
    /// What each seat was, and in which life; `None`: there was none.
    known: HashMap<SeatName, (u64, Option<Lease>)>,
    /// Seats that were last written by us, and name a holder: one of ours.
    held: HashSet<SeatName>,
}

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
        let api = Arc::new(Api::new(Links::new(place)));
        Self { ears: Ears::new(api.clone()), notes: Notes::default(), api, seats: Mutex::default() }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes in the revision of an answer to what was asked when the cluster was known as `asked`. Every
    /// answer comes from the one history of the cluster, so it cannot be older than what was known when it was
    /// asked for; if it is, the cluster was set back, and may have forgotten who leads. Returns in which
    /// life of the cluster we are.
    fn take_revision(&self, asked: u64, revision: u64) -> u64 {
        let mut seats = self.seats();
        if revision < asked {
            seats.life += 1;
            seats.revision = revision;
            self.ears.forget();
        }
        seats.revision = seats.revision.max(revision);
        seats.life
    }

    /// What is there as a seat, as of now: one call, answered from the store of the cluster itself. The list's own
    /// revision is above every token that was ever minted here, be the seat there or not.
    async fn look(&self, seat: &SeatName) -> Result<(u64, u64, Option<Lease>), StoreError> {
        let asked = self.seats().revision;
        let list = self.api.list(&Which::Name(names::object_of(seat))).await?;
        let object = list.items.into_iter().next();
        let life = self.take_revision(asked, list.revision);
        if let Some(post) = self.ears.existing(seat) {
            post.looked(object.as_ref(), list.revision);
        }
        let mut seats = self.seats();
        let known = seats.known.insert(seat.clone(), (life, object.clone()));
        // A renewal of our own may have landed unseen: who holds it counts, not which write it is.
        let holder = |object: &Option<Lease>| object.as_ref().and_then(|object| object.spec.holder_identity.clone());
        if known.is_none_or(|(_, known)| holder(&known) != holder(&object)) {
            seats.held.remove(seat);
        }
        drop(seats);
        Ok((life, list.revision, object))
    }

    /// The object that has this version, if that is still the one.
    async fn object(&self, seat: &SeatName, version: &Version) -> Result<Option<Lease>, StoreError> {
        let is_it = |known: &(u64, Option<Lease>)| {
            known.1.as_ref().is_some_and(|object| version_of(known.0, &object.metadata.resource_version) == *version)
        };
        let known = self.seats().known.get(seat).filter(|known| is_it(known)).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let (life, _, object) = self.look(seat).await?;
                (life, object)
            }
        };
        let now = self.seats().life;
        Ok(if is_it(&known) && known.0 == now { known.1 } else { None })
    }

    /// The conditional write.
    ///
    /// # Correctness
    /// *One winner.* A seat that was read is replaced with its resourceVersion and uid, and one that was not
    /// there is created: see [`Api::replace`]. The server does either in one transaction of etcd, which
    /// compares and writes, and answers once a majority has it. Every write has a new nonce, so none is
    /// ever taken for the one before and skipped.
    ///
    /// *The token* is in what is written, and above that of the seat as it was read. It is also above the
    /// revision that the reading had, and so above every token of this seat: each of those was at most the
    /// revision of the write that won with it. That holds also if the seat was deleted, or taken by a client
    /// that knows nothing of tokens.
    ///
    /// *In between.* Whatever becomes of us before the answer, the object is as it was or as it was to be,
    /// and the next reading tells. A write that was sent and is still on its way can only land on
    /// the very version that it was meant for.
    async fn write(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let mut object = match expected {
            Some(version) => match self.object(seat, version).await? {
                Some(object) => object,
                None => return Ok(Swap::Lost),
            },
            None => {
                let seats = self.seats();
                // There was none in a cluster that has been set back since.
                if seats.known.get(seat).is_some_and(|(life, object)| object.is_none() && *life != seats.life) {
                    return Ok(Swap::Lost);
                }
                Lease::new(names::object_of(seat))
            }
        };
        if let Some(theirs) = object.duration_of_another().filter(|theirs| *theirs != next.lease) {
            tracing::warn!(
                %seat,
                ?theirs,
                ours = ?next.lease,
                "another client has held this Lease with another duration: give all the same while both take part"
            );
        }
        object.put(seat, next, Timestamp::now())?;
        let asked = self.seats().revision;
        let written = match expected {
            Some(_) => self.api.replace(&object).await?,
            None => self.api.create(&object).await?,
        };
        let Some(written) = written else { return Ok(Swap::Lost) };
        let (before, revision) = (self.seats().life, written.revision()?);
        let life = self.take_revision(asked, revision);
        if life != before {
            return Err(StoreError::unknown(
                "the cluster has been set back to an earlier state: who leads is not known",
            ));
        }
        let version = version_of(life, &written.metadata.resource_version);
        let mut seats = self.seats();
        seats.known.insert(seat.clone(), (life, Some(written)));
        if next.holder.is_some() {
            seats.held.insert(seat.clone());
        } else {
            seats.held.remove(seat);
        }
        drop(seats);
        if self.ears.existing(seat).is_some() {
            self.ears.await_echo(revision, next.lease);
        }
        Ok(Swap::Done { version, since: None, granted: None })
    }

    /// Returns once there is news.
    async fn wait_for_news(&self, seat: &SeatName, seen: &Seen, lease: Duration) {
        let post = self.ears.post(seat);
        *post.lease() = lease;
        let seen_at = seen.seat.as_ref().and_then(|seat| revision_of(&seat.version));
        if !post.is_marked() {
            // Others have made it, and it is not among what we hear of before we have written it ourselves.
            return tokio::time::sleep(lease / 3).await;
        }
        let (mut news, mut silence) = (post.heard.subscribe(), post.heard.subscribe());
        let unheard = async {
            // What cannot be heard must be looked for.
            loop {
                let _ = silence.wait_for(|heard: &Heard| !heard.served).await;
                let served = silence.wait_for(|heard: &Heard| heard.served);
                if tokio::time::timeout(lease / 3, served).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = news.wait_for(|heard| post.is_news(heard, seen, seen_at)) => {}
            () = unheard => tracing::debug!(%seat, "changes are not heard: looking"),
        }
    }
}

impl std::fmt::Debug for KubernetesStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesStore").finish_non_exhaustive()
    }
}

impl SeatStore for KubernetesStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Observe,
            push: Push::Proven,
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

    fn attach(&self, clock: &Clock) {
        self.ears.attach(clock);
        self.notes.attach(clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        if !self.seats().held.contains(seat) {
            self.api.admit()?;
        }
        let (life, floor, object) = self.look(seat).await?;
        let seat = match &object {
            None => None,
            Some(object) => {
                let record = object.record(seat)?;
                let revision = object.revision()?;
                let post = self.ears.existing(seat);
                if post.as_ref().is_some_and(|post| post.is_marked()) {
                    self.ears.await_echo(revision, record.lease);
                }
                let received = post.and_then(|post| post.received(revision));
                Some(Seat {
                    record,
                    version: version_of(life, &object.metadata.resource_version),
                    life: received.map_or(Life::Observe, |at| Life::Received { at }),
                })
            }
        };
        Ok(Reading { seat, floor: Token::new(floor), identity: Some(Identity::new(life.to_string())) })
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        // What a leader writes anew keeps its seat, too.
        if next.holder.is_some() && !self.seats().held.contains(seat) {
            self.api.admit()?;
        }
        self.write(seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.write(seat, Some(held), record).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let lease = seen.seat.as_ref().map_or(Duration::from_secs(1), |seat| seat.record.lease);
        self.wait_for_news(seat, seen, lease).await;
        Change::Look
    }

    fn board(&self) -> Option<&dyn DynBoard> {
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

/// A version names a write, and the life of the cluster in which it was seen.
fn version_of(life: u64, resource_version: &str) -> Version {
    Version::new(format!("{life}/{resource_version}"))
}

fn revision_of(version: &Version) -> Option<u64> {
    version.as_str().split_once('/')?.1.parse().ok()
}
