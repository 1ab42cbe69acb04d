//! The store: one object per seat, written on conditions.
//!
//! ```text
//!  PREFIX/seats/NAME              the record, or a tombstone with the last token of a seat that was forgotten
//!  PREFIX/probe                   shows whether the server checks conditions
//!  PREFIX/notes/BOARD/NAME/KEY    notes, if they are turned on
//! ```

use std::time::Duration;

use tenure_core::{
    BatchLimits, ConfigError, DynNotes, Life, Promises, Reading, Record, Seat, SeatName, SeatStore, StoreError, Swap,
    Token, Version, record,
};
use tenure_kit::objects::{
    Condition, Objects, TOMBSTONE_LENGTH, check_conditions, forgotten, name_of, notes, object_name, tombstone,
};
use tenure_kit::{PendingWrites, Preparation, in_time};

use crate::bucket::Bucket;
use crate::options::BucketOptions;

/// A store that keeps seats in the objects of a bucket: S3, Google Cloud Storage, R2, MinIO and others.
///
/// The store connects at the engine's first call. Elections of one process should share one store: they then share its
/// connections.
pub struct BucketStore {
    pub(crate) bucket: Bucket,
    has_notes: bool,
    /// The check that the server obeys conditions.
    probe: Preparation,
    pending: PendingWrites,
}

impl BucketStore {
    /// Creates a store for the bucket that the options name. Does not connect: problems with the server, the bucket or
    /// the credentials show at the first call.
    ///
    /// # Errors
    /// Returns one line if the options contradict each other, or a file that they name cannot be read.
    pub fn new(options: BucketOptions) -> Result<Self, ConfigError> {
        options.check()?;
        let (bucket, has_notes) = (Bucket::new(&options)?, options.notes);
        Ok(Self { bucket, has_notes, probe: Preparation::default(), pending: PendingWrites::default() })
    }

    /// Creates a store for the bucket of this URL. See [`BucketOptions::from_url`] for its forms.
    ///
    /// # Errors
    /// Returns one line, without any secret, if the URL is invalid or a file that it names cannot be read.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(BucketOptions::from_url(url)?)
    }

    /// Checks before the first write that the server obeys conditions. Reads need no check, and no right to write.
    ///
    /// A check that is not answered within a lease has failed.
    async fn probed(&self, lease: Duration) -> Result<(), StoreError> {
        let bucket = self.bucket.clone();
        let check =
            async move { in_time(lease, check_conditions(&bucket, bucket.impossible_version(), &bucket.place)).await };
        self.probe.done(|| check).await
    }
}

/// Returns the path of the object of a seat.
fn path_of(seat: &SeatName) -> String {
    format!("seats/{}", object_name(seat.as_str()))
}

impl std::fmt::Debug for BucketStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketStore").field("place", &self.bucket.place).finish_non_exhaustive()
    }
}

impl SeatStore for BucketStore {
    fn promises(&self) -> Promises {
        Promises {
            reads: LIMITS,
            writes: LIMITS,
            durability: "as the bucket: with S3 and Google Cloud Storage, a write is in several places before it counts",
            // A call times out after a fifteenth of the lease: here 67 ms, which is enough for a server nearby.
            min_lease: Duration::from_secs(1),
            broken_by: &[
                "The server does not check the conditions of writes atomically. A server that ignores them is found \
                 before the first write.",
                "An object is deleted, overwritten or restored by hand, by a lifecycle rule or by replication from \
                 another bucket while a candidate leads.",
                "Candidates use copies of a bucket in different regions that accept writes independently.",
            ],
            ..Promises::of(self.bucket.provider.scheme())
        }
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        // Requests are processed in any order: a bid that was dropped could otherwise win after this read.
        self.pending.settle(seat).await;
        let nothing = Reading { seat: None, floor: Token::ZERO, identity: None };
        let Some(object) = self.bucket.get(&path_of(seat)).await? else { return Ok(nothing) };
        if let Some(floor) = forgotten(&object.text) {
            return Ok(Reading { floor, ..nothing });
        }
        let record = record::from_json(&object.text)?;
        // The server does not know whether the holder is alive: followers observe the version.
        let seat = Seat { record, version: Version::new(object.version), life: Life::Observe };
        Ok(Reading { seat: Some(seat), ..nothing })
    }

    /// # Correctness
    /// Claim: a write takes effect only if the object still has the version that the candidate read.
    /// Reason: the request has the condition `If-Match` with the ETag (`x-goog-if-generation-match` with the generation),
    /// and an absent object `If-None-Match: *`. The server checks it and writes in one atomic step; the probe before the
    /// first write has shown that it does not ignore it. No two writes have the same ETag, even if it is a hash of the
    /// content, because every body has a random nonce.
    /// If the seat was forgotten, its object is a tombstone. Then the write has the tombstone's ETag as its condition. The
    /// tombstone can be newer than the one that the candidate read. So the write is sent only if its token is above the
    /// last one, and no token is issued twice.
    /// Conclusion: nothing was written between the version and the write.
    ///
    /// `Lost` is only the answer 412 (or 404, if the object is gone) to this one request, which is never repeated: so it
    /// cannot be the refusal of a repetition after the first one took effect. After a 409, a 5xx or a lost connection the
    /// outcome is unknown, and the engine reads the seat.
    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.probed(next.lease).await?;
        let (bucket, path, expected, next) = (self.bucket.clone(), path_of(seat), expected.cloned(), next.clone());
        let write = async move { in_time(next.lease / 5, put(&bucket, &path, expected.as_ref(), &next)).await };
        self.pending.run_alone(seat, write).await
    }

    /// Like a swap, but its answer is not waited for by reads: a leader that could not read its seat would lose its term.
    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.probed(record.lease).await?;
        put(&self.bucket, &path_of(seat), Some(held), record).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.has_notes.then_some(self)
    }

    /// Replaces the record with a tombstone that keeps the last token, on the version that had that token. If another
    /// candidate writes meanwhile, the call fails, and its caller can repeat it.
    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.probed(Duration::from_secs(30)).await?;
        let path = path_of(seat);
        if let Some(object) = self.bucket.get(&path).await?.filter(|object| forgotten(&object.text).is_none()) {
            let token = record::from_json(&object.text)?.token;
            if self.bucket.put(&path, &tombstone(token), Condition::Version(&object.version)).await?.is_none() {
                return Err(StoreError::refused("the seat was written at the same time; try again"));
            }
        }
        if self.has_notes {
            notes::remove_all(&self.bucket, seat).await?;
        }
        Ok(())
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        let objects = self.bucket.list("seats").await?;
        let records = objects.iter().filter(|(_, length)| *length != TOMBSTONE_LENGTH);
        Ok(records.filter_map(|(name, _)| SeatName::new(name_of(name)?).ok()).collect())
    }
}

/// Writes the object of a seat on condition.
async fn put(bucket: &Bucket, path: &str, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
    let text = record::to_json(next);
    let done = |version: String| Swap::Done { version: Version::new(version), since: None, granted: None };
    if let Some(version) = expected {
        return Ok(bucket.put(path, &text, Condition::Version(version.as_str())).await?.map_or(Swap::Lost, done));
    }
    if let Some(version) = bucket.put(path, &text, Condition::Absent).await? {
        return Ok(done(version));
    }
    match bucket.get(path).await? {
        Some(object) if forgotten(&object.text).is_some_and(|last| last < next.token) => {
            Ok(bucket.put(path, &text, Condition::Version(&object.version)).await?.map_or(Swap::Lost, done))
        }
        _ => Ok(Swap::Lost),
    }
}

/// A request concerns one object. So many in flight renew a thousand seats in a second, over a distance of 50 ms.
const LIMITS: BatchLimits = BatchLimits { seats: 1, calls: 64 };
