//! The store: one blob per seat, under a lease whose id is the incarnation of the holder.
//!
//! ```text
//!  PREFIX/seats/NAME              the record, or a tombstone with the last token of a seat that does not exist
//!  PREFIX/probe                   shows whether the server checks conditions
//!  PREFIX/notes/BOARD/NAME/KEY    notes, if they are turned on
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{
    BatchLimits, ConfigError, DynNotes, Fault, Incarnation, Life, LifeKind, Promises, Reading, Record, Seat, SeatName,
    SeatStore, StoreError, Swap, Takeover, Token, Version, record,
};
use tenure_kit::objects::{
    Condition, Objects, TOMBSTONE_LENGTH, check_conditions, forgotten, name_of, notes, object_name, tombstone,
};
use tenure_kit::options::Variables;
use tenure_kit::{PendingWrites, Preparation, in_time, lock};
use tokio::time::Instant;

use crate::client::{Blob, Client, LeaseAction, LeaseState, Outcome};
use crate::errors::foreign_lease;
use crate::options::AzureBlobOptions;
use crate::version::{SeatVersion, lease_id};

/// A store that keeps seats in blobs of Azure Blob Storage, each under a lease of its holder.
///
/// The store connects at the engine's first call. Elections of one process should share one store: they then share its
/// connections.
pub struct AzureBlobStore {
    pub(crate) client: Arc<Client>,
    has_notes: bool,
    /// The preparation of the container, and the check of the server.
    ready: Preparation,
    pending: PendingWrites,
    known: Arc<Mutex<KnownLeases>>,
}

/// The leases that this process has taken or seen.
#[derive(Default)]
struct KnownLeases {
    /// The incarnations that have bid through this store. Only they release their seats.
    own: HashSet<Incarnation>,
    /// The holder of each seat, as last read.
    holders: HashMap<SeatName, Incarnation>,
    /// The seats that are free but have a lease of another holder: the ETag, and when that was first seen.
    refusals: HashMap<SeatName, (String, Instant)>,
}

impl AzureBlobStore {
    /// Creates a store for the container that the options and the environment name. Does not connect: problems with the
    /// server, the container or the credentials show at the first call.
    ///
    /// # Errors
    /// Returns one line, without any secret, if the options are invalid or contradict each other.
    pub fn new(options: AzureBlobOptions) -> Result<Self, ConfigError> {
        let has_notes = options.notes;
        let client = Client::new(options, &Variables(&|name| std::env::var(name).ok()))?;
        Ok(Self {
            client: Arc::new(client),
            has_notes,
            ready: Preparation::default(),
            pending: PendingWrites::default(),
            known: Arc::default(),
        })
    }

    /// Creates a store for the container of this URL. See [`AzureBlobOptions::from_url`] for its form.
    ///
    /// # Errors
    /// Returns one line, without any secret, if the URL is invalid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(AzureBlobOptions::from_url(url)?)
    }

    /// Breaks the lease on the blob of a seat. For operators, if another program holds a lease on it.
    ///
    /// The lease ends when its current period ends, after at most 60 s, or at once if it does not expire. It cannot be
    /// renewed any more, so a leader that holds it ends its term at the next renewal, before another candidate can lead.
    /// Returns whether there was a lease. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the server does not answer, or forbids it.
    pub async fn break_lease(&self, seat: &SeatName) -> Result<bool, StoreError> {
        Ok(self.client.lease(&path_of(seat), LeaseAction::Break, None).await?.is_ok())
    }

    /// Creates the container before the first write, and checks that the server obeys conditions. Reads need neither, and
    /// no right to write. A check that is not answered within this time has failed.
    pub(crate) async fn ready(&self, within: Duration) -> Result<(), StoreError> {
        let client = self.client.clone();
        self.ready.done(|| in_time(within, async move { prepare(&client).await })).await
    }

    /// Returns the lease of a seat that a candidate of this process holds.
    fn own_lease(&self, held: Option<&SeatVersion>) -> Option<String> {
        held?.holder.filter(|holder| lock(&self.known).own.contains(holder)).map(lease_id)
    }

    /// Replaces the record of a seat with a vacant one, and releases the lease with this id.
    async fn vacate(
        &self,
        seat: &SeatName,
        held: SeatVersion,
        vacant: &Record,
        id: Option<String>,
    ) -> Result<Outcome, StoreError> {
        let (client, path, text) = (self.client.clone(), path_of(seat), record::to_json(vacant));
        let write = async move {
            let written = replace(&client, &path, &held, &text, id.as_deref()).await;
            if let Some(id) = id {
                let etag = match &written {
                    Ok(outcome) => outcome.clone().ok(),
                    // The answer is lost: the blob shows whether the write took effect.
                    Err(_) => {
                        let blob = client.get(&path).await.ok().flatten();
                        blob.filter(|blob| blob.text == text).map(|blob| blob.version)
                    }
                };
                if let Some(etag) = etag {
                    release(&client, &path, &id, &etag).await;
                }
            }
            written
        };
        self.pending.run_alone(seat, in_time(vacant.lease / 5, write)).await
    }
}

impl std::fmt::Debug for AzureBlobStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AzureBlobStore").field("place", &self.client.place).finish_non_exhaustive()
    }
}

impl SeatStore for AzureBlobStore {
    fn promises(&self) -> Promises {
        Promises {
            life: LifeKind::Session,
            takeover: Takeover::Instant,
            reads: LIMITS,
            writes: LIMITS,
            durability: "as the account: a write is in three places or more before it counts",
            min_lease: SHORTEST_LEASE,
            max_lease: LONGEST_LEASE,
            lease_step: Duration::from_secs(1),
            broken_by: &[
                "The lease of a living leader is broken with a break period that is shorter than the rest of the lease; \
                 tenure break-lease uses the rest.",
                "A blob is deleted or overwritten with the lease id of its leader, or the container is deleted or \
                 restored, or its account fails over to another region, while a candidate leads.",
            ],
            ..Promises::of("azblob")
        }
    }

    /// Reads the record and the state of the lease. The lease of a leader that was seen before is named in the request, so
    /// that one request proves that this very lease is active; only if it is not, a second request follows.
    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        // Requests are processed in any order: a bid that was dropped could otherwise win after this read.
        self.pending.settle(seat).await;
        let path = path_of(seat);
        let known = lock(&self.known).holders.get(seat).copied();
        let proven = match known.map(lease_id) {
            Some(id) => self.client.read_if_leased(&path, Some(&id)).await?.ok(),
            None => None,
        };
        let is_over = known.is_some() && proven.is_none();
        let blob = match proven {
            Some(blob) => blob,
            None => self.client.read(&path).await?,
        };
        let nothing = Reading { seat: None, floor: Token::ZERO, identity: None };
        let Some(blob) = blob else { return Ok(nothing) };
        if blob.lease == LeaseState::Infinite {
            return Err(foreign_lease(&self.client.shown(&path), seat.as_str()));
        }
        if let Some(floor) = forgotten(&blob.object.text) {
            return Ok(Reading { floor, ..nothing });
        }
        let record = record::from_json(&blob.object.text)?;
        let version = SeatVersion::of(&blob.object.version, &record);
        let mut all = lock(&self.known);
        let is_own = version.holder.is_some_and(|holder| all.own.contains(&holder));
        let life = match blob.lease {
            // The lease is active, but not that of the holder.
            _ if is_over && version.holder == known => Life::Over,
            LeaseState::None => Life::Over,
            // It cannot be renewed. Its holder stops at once, and others wait until it has ended.
            LeaseState::Breaking if is_own => Life::Over,
            _ => Life::Held,
        };
        match version.holder {
            Some(holder) => drop(all.holders.insert(seat.clone(), holder)),
            None => drop(all.holders.remove(seat)),
        }
        Ok(Reading { seat: Some(Seat { record, version: version.version(), life }), ..nothing })
    }

    /// Writes a record with a holder as a bid (see `bid`), and one without under the lease of its last holder.
    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let expected = match expected.map(SeatVersion::parse) {
            Some(None) => return Ok(Swap::Lost),
            other => other.flatten(),
        };
        let is_whole = next.lease.subsec_nanos() == 0;
        if next.holder.is_some() && !((SHORTEST_LEASE..=LONGEST_LEASE).contains(&next.lease) && is_whole) {
            return Err(StoreError::denied("cannot keep this lease; use one of 15 to 60 whole seconds"));
        }
        self.ready(next.lease).await?;
        let (client, path) = (self.client.clone(), path_of(seat));
        let within = next.lease / 5;
        let outcome = match (&next.holder, expected) {
            (Some(holder), expected) => {
                lock(&self.known).own.insert(holder.incarnation);
                let (known, seat_name, next) = (self.known.clone(), seat.clone(), next.clone());
                let id = lease_id(holder.incarnation);
                let last = self.own_lease(expected.as_ref()).filter(|last| *last != id);
                let bid = async move {
                    if let (Some(last), Some(held)) = (last, &expected) {
                        // Another candidate of this process gives its seat to this one.
                        release(&client, &path, &last, &held.etag).await;
                    }
                    let outcome = bid(&client, &path, expected, &next, &id).await?;
                    lock(&known).check_refusal(&seat_name, &outcome, &client, &path)?;
                    Ok(outcome.map_err(|Refusal { code, .. }| code))
                };
                self.pending.run_alone(seat, in_time(within, bid)).await?
            }
            (None, Some(held)) => {
                let id = self.own_lease(Some(&held));
                self.vacate(seat, held, next, id).await?
            }
            (None, None) => {
                let (token, text) = (next.token, record::to_json(next));
                let write = async move {
                    match absent(&client, &path, token).await? {
                        Some(etag) => client.write(&path, &text, Condition::Version(&etag), None).await,
                        None => Ok(Err(String::new())),
                    }
                };
                self.pending.run_alone(seat, in_time(within, write)).await?
            }
        };
        Ok(answer(outcome, next))
    }

    /// Renews the lease. The record and its version stay the same.
    ///
    /// # Correctness
    /// Claim: after `Done`, no other candidate can take the seat for a lease, counted from the send of the renewal.
    /// Reason: the server renews only if the lease of this incarnation was not taken, released or broken meanwhile, and, by
    /// `If-Match`, only if the blob still has the record that the leader wrote. It does both in one step, after the send.
    /// A lease that has expired can be renewed only while no other candidate has acquired one: then no other term began.
    /// Conclusion: from the send on, the lease of this incarnation protects its record for the whole duration.
    ///
    /// A renewal whose answer is not waited for any more can only lengthen the lease, and not bring back one that was
    /// released. So reads do not wait for it.
    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.ready(record.lease).await?;
        let holder = record.holder.as_ref().map(|holder| holder.incarnation);
        let Some((version, holder)) = SeatVersion::parse(held).filter(|held| held.holder == holder).zip(holder) else {
            return Ok(Swap::Lost);
        };
        let renew = LeaseAction::Renew { id: &lease_id(holder) };
        match self.client.lease(&path_of(seat), renew, Some(&version.etag)).await? {
            Ok(_) => Ok(Swap::Done { version: held.clone(), since: None, granted: None }),
            Err(_) => Ok(Swap::Lost),
        }
    }

    /// Writes the vacant record under the lease of the dead process, whose id is its incarnation, and releases that lease.
    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        let Some(version) = SeatVersion::parse(held) else { return Ok(Swap::Lost) };
        self.ready(vacant.lease).await?;
        let id = version.holder.map(lease_id);
        Ok(answer(self.vacate(seat, version, vacant, id).await?, vacant))
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.has_notes.then_some(self)
    }

    /// Replaces the record with a tombstone that keeps the last token, on the version that had that token. If another
    /// candidate writes meanwhile, the call fails, and its caller can repeat it. The lease of a leader stays until it expires,
    /// so that no other candidate leads before this one has noticed.
    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.ready(LONGEST_LEASE).await?;
        let path = path_of(seat);
        let blob = self.client.read(&path).await?;
        if blob.as_ref().is_some_and(|blob| blob.lease == LeaseState::Infinite) {
            return Err(foreign_lease(&self.client.shown(&path), seat.as_str()));
        }
        if let Some(Blob { object, .. }) = blob.filter(|blob| forgotten(&blob.object.text).is_none()) {
            let record = record::from_json(&object.text)?;
            let held = SeatVersion::of(&object.version, &record);
            let (client, id, text) = (self.client.clone(), held.holder.map(lease_id), tombstone(record.token));
            let write = async move { replace(&client, &path, &held, &text, id.as_deref()).await };
            if self.pending.run_alone(seat, in_time(LONGEST_LEASE / 5, write)).await?.is_err() {
                return Err(StoreError::refused("the seat was written or leased at the same time; try again"));
            }
        }
        if self.has_notes {
            notes::remove_all(&*self.client, seat).await?;
        }
        Ok(())
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        let blobs = self.client.list("seats").await?;
        let records = blobs.iter().filter(|(_, length)| *length != TOMBSTONE_LENGTH);
        Ok(records.filter_map(|(name, _)| SeatName::new(name_of(name)?).ok()).collect())
    }
}

impl KnownLeases {
    /// Remembers a bid that was refused because of a lease. Returns an error if such bids on a free seat are refused for
    /// longer than any lease of a candidate lasts: then another program renews that lease.
    fn check_refusal(
        &mut self,
        seat: &SeatName,
        outcome: &Result<String, Refusal>,
        client: &Client,
        path: &str,
    ) -> Result<(), StoreError> {
        let Err(Refusal { code, etag }) = outcome else {
            self.refusals.remove(seat);
            return Ok(());
        };
        if code != "LeaseAlreadyPresent" {
            return Ok(());
        }
        let (seen, since) = self.refusals.entry(seat.clone()).or_insert_with(|| (etag.clone(), Instant::now()));
        if seen != etag {
            (*seen, *since) = (etag.clone(), Instant::now());
        }
        if since.elapsed() > FOREIGN_AFTER { Err(foreign_lease(&client.shown(path), seat.as_str())) } else { Ok(()) }
    }
}

/// A bid that the server refused: the code, and the ETag that the bid was based on.
struct Refusal {
    code: String,
    etag: String,
}

/// Acquires the lease of a seat, and writes the record under it.
///
/// # Correctness
/// Claim: a bid takes effect only if the seat still has the version that the candidate read and no lease of another holder
/// is active. Then no other candidate can take the seat for a lease, counted from the send of the bid.
/// Reason: the server grants the lease only if no other one is active and, by `If-Match`, the blob has the ETag of that
/// version. From then on, only requests with the id of this lease can write the blob or keep others from it, and the id is
/// the incarnation of this candidate, which no other process uses. The record is written with that id and the same ETag,
/// in one step, so the lease is still active at that moment, and nothing was written since the read. The lease lasts for
/// its whole duration from the acquisition, which was sent after the call began.
/// Conclusion: a candidate that gets `Done` is named by the record, its token was minted by that write, and its hold, which
/// counts from the call, ends before the lease does.
///
/// If the acquisition was repeated because its answer was lost, the server grants the same lease again: the id is the same.
/// If the record is refused, the lease is released, so that others need not wait. If the outcome of the write is unknown,
/// the lease stays: the engine reads the seat, and either keeps the record or bids again.
async fn bid(
    client: &Client,
    path: &str,
    expected: Option<SeatVersion>,
    next: &Record,
    id: &str,
) -> Result<Result<String, Refusal>, StoreError> {
    let etag = match expected {
        Some(version) => version.etag,
        // A lease needs a blob. A tombstone reads like a seat that does not exist.
        None => match absent(client, path, next.token).await? {
            Some(etag) => etag,
            None => return Ok(Err(Refusal { code: String::new(), etag: String::new() })),
        },
    };
    if let Err(code) = client.lease(path, LeaseAction::Acquire { id, lease: next.lease }, Some(&etag)).await? {
        return Ok(Err(Refusal { code, etag }));
    }
    let written = client.write(path, &record::to_json(next), Condition::Version(&etag), Some(id)).await;
    let is_refused = written.as_ref().map_or_else(|error| error.fault() != Fault::Unknown, Result::is_err);
    if is_refused {
        release(client, path, id, &etag).await;
    }
    Ok(written?.map_err(|code| Refusal { code, etag }))
}

/// Replaces a record with one that needs no lease: a vacant one, or a tombstone.
///
/// # Correctness
/// Claim: the write takes effect only if the blob still has this version, and takes no seat from a holder but the one with
/// this id. Reason: the ETag is the condition, and the server refuses a write to a blob with an active lease unless it has
/// the id of that lease. If that lease has ended, which the refusal shows, the record is written without one; this second
/// request has the same condition, and is refused if another candidate has a lease by then.
async fn replace(
    client: &Client,
    path: &str,
    held: &SeatVersion,
    text: &str,
    id: Option<&str>,
) -> Result<Outcome, StoreError> {
    match client.write(path, text, Condition::Version(&held.etag), id).await? {
        Err(code) if id.is_some() && code.starts_with("Lease") => {
            client.write(path, text, Condition::Version(&held.etag), None).await
        }
        written => Ok(written),
    }
}

/// Releases a lease, if the blob still has this ETag. If that fails, the lease expires.
///
/// # Correctness
/// Claim: a release that arrives late does not end the lease of a leader. Reason: all terms of a candidate have the same
/// lease id, but a term begins with a write, which changes the ETag. Conclusion: a release from before that is refused.
async fn release(client: &Client, path: &str, id: &str, etag: &str) {
    let _ = client.lease(path, LeaseAction::Release { id }, Some(etag)).await;
}

/// Returns the ETag of the tombstone of a seat that does not exist, and writes one if there is none. `None` if the seat
/// exists, or was forgotten with a token that is not below this one: then the bid
/// is older than that term, and its token is already used.
async fn absent(client: &Client, path: &str, token: Token) -> Result<Option<String>, StoreError> {
    if let Some(etag) = client.put(path, &tombstone(Token::ZERO), Condition::Absent).await? {
        return Ok(Some(etag));
    }
    let object = client.get(path).await?;
    let is_free = |text: &str| forgotten(text).is_some_and(|last| last < token);
    Ok(object.filter(|object| is_free(&object.text)).map(|object| object.version))
}

/// Creates the container, and checks that the server obeys conditions.
async fn prepare(client: &Client) -> Result<(), StoreError> {
    client.create_container().await?;
    check_conditions(client, "0x0", &client.place).await
}

/// Returns the path of the blob of a seat.
fn path_of(seat: &SeatName) -> String {
    format!("seats/{}", object_name(seat.as_str()))
}

fn answer(outcome: Outcome, record: &Record) -> Swap {
    match outcome {
        Ok(etag) => Swap::Done { version: SeatVersion::of(&etag, record).version(), since: None, granted: None },
        Err(_) => Swap::Lost,
    }
}

/// The leases that Azure supports. It also has leases that never expire, which a crash would leave behind.
const SHORTEST_LEASE: Duration = Duration::from_secs(15);
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// A free seat whose lease is refused for longer than this has a lease that another program renews.
const FOREIGN_AFTER: Duration = Duration::from_secs(65);

/// A request concerns one blob. So many in flight renew a thousand seats in a second, over a distance of 50 ms.
const LIMITS: BatchLimits = BatchLimits { seats: 1, calls: 64 };
