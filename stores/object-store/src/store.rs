//! The store: one object per seat, written on conditions.
//!
//! ```text
//!  PREFIX/seats/NAME              the record, or a tombstone with the last token of a seat that was forgotten
//!  PREFIX/probe                   shows whether the server checks conditions
//!  PREFIX/notes/BOARD/NAME/KEY    notes, if they are turned on
//! ```

use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use object_store::path::Path;
use tenure_core::{
    BatchLimits, Board, ConfigError, DynNotes, Life, Promises, Reading, Record, Seat, SeatName, SeatStore, StoreError,
    Swap, Token, Version, record,
};
use tenure_kit::url::{decoded, encoded};
use tenure_kit::{PendingWrites, SharedTask, lock};

use crate::bucket::{Bucket, Condition};
use crate::options::BucketOptions;

/// A store that keeps seats in the objects of a bucket: S3, Google Cloud Storage, R2, MinIO and others.
///
/// The store connects at the engine's first call. Elections of one process should share one store: they then share its
/// connections.
pub struct BucketStore {
    pub(crate) bucket: Bucket,
    has_notes: bool,
    /// The check that the server obeys conditions: running, or done.
    probe: Mutex<Option<SharedTask<()>>>,
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
        Ok(Self { bucket, has_notes, probe: Mutex::default(), pending: PendingWrites::default() })
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
    /// The check continues if its call is dropped, and the next call waits for it. If it fails, or is not answered within a
    /// lease, the next call repeats it.
    async fn probed(&self, lease: Duration) -> Result<(), StoreError> {
        let task = {
            let mut probe = lock(&self.probe);
            probe.take_if(|task| !task.is_running() && !matches!(task.result(), Some(Ok(()))));
            let bucket = self.bucket.clone();
            let check = async move { in_time(lease, check_conditions(&bucket)).await };
            probe.get_or_insert_with(|| SharedTask::start(check)).clone()
        };
        task.wait(StoreError::refused("the check of the bucket was aborted")).await
    }

    fn seat(&self, seat: &SeatName) -> Path {
        self.bucket.path(&["seats", &object_name(seat.as_str())])
    }
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
        let Some(object) = self.bucket.get(&self.seat(seat)).await? else { return Ok(nothing) };
        if let Some(floor) = forgotten(&object.text) {
            return Ok(Reading { floor, ..nothing });
        }
        let record = record::from_json(&object.text)?;
        // The server does not know whether the holder is alive: followers observe the version.
        let seat = Seat { record, version: object.version, life: Life::Observe };
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
        let (bucket, path, expected, next) = (self.bucket.clone(), self.seat(seat), expected.cloned(), next.clone());
        let write = async move { in_time(next.lease / 5, put(&bucket, &path, expected.as_ref(), &next)).await };
        self.pending.run_alone(seat, write).await
    }

    /// Like a swap, but its answer is not waited for by reads: a leader that could not read its seat would lose its term.
    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.probed(record.lease).await?;
        put(&self.bucket, &self.seat(seat), Some(held), record).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.has_notes.then_some(self)
    }

    /// Replaces the record with a tombstone that keeps the last token, on the version that had that token. If another
    /// candidate writes meanwhile, the call fails, and its caller can repeat it.
    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.probed(Duration::from_secs(30)).await?;
        let path = self.seat(seat);
        if let Some(object) = self.bucket.get(&path).await?.filter(|object| forgotten(&object.text).is_none()) {
            let token = record::from_json(&object.text)?.token;
            if self.bucket.put(&path, &tombstone(token), Condition::Version(&object.version)).await?.is_none() {
                return Err(StoreError::refused("the seat was written at the same time; try again"));
            }
        }
        if self.has_notes {
            for board in [Board::Requests(seat.clone()), Board::Candidates(seat.clone())] {
                self.remove_notes(&board).await?;
            }
        }
        Ok(())
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        let objects = self.bucket.list(&self.bucket.path(&["seats"])).await?;
        let records = objects.iter().filter(|object| object.size != TOMBSTONE_LENGTH);
        Ok(records.filter_map(|object| SeatName::new(name_of(object.location.filename()?)?).ok()).collect())
    }
}

/// Writes the object of a seat on condition.
async fn put(bucket: &Bucket, path: &Path, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
    let text = record::to_json(next);
    let done = |version| Swap::Done { version, since: None, granted: None };
    if let Some(version) = expected {
        return Ok(bucket.put(path, &text, Condition::Version(version)).await?.map_or(Swap::Lost, done));
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

/// Limits the time of requests that continue after their call was dropped, because later calls wait for them.
async fn in_time<T>(time: Duration, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::unknown("the server did not answer in time"));
    tokio::time::timeout(time, work).await.unwrap_or_else(late)
}

/// Checks that the server obeys both conditions. Otherwise each candidate would win each bid.
///
/// It creates the probe if there is none. If there is one, even a new one, another creation must fail, and so must a write
/// on a version that no object has. That is two requests, or three the first time. Both refusals are right answers, so
/// processes that check at the same time do not disturb each other.
async fn check_conditions(bucket: &Bucket) -> Result<(), StoreError> {
    let (path, place) = (bucket.path(&["probe"]), &bucket.place);
    let body = || format!("probe {:016x}", rand::random::<u64>());
    let ignores = |what: &str| {
        let risk = "so two candidates could lead at once; use another server";
        StoreError::denied(format!("{place} ignores the conditions of writes ({what}), {risk}"))
    };
    let is_new = bucket.put(&path, &body(), Condition::Absent).await?.is_some();
    if is_new && bucket.put(&path, &body(), Condition::Absent).await?.is_some() {
        return Err(ignores("If-None-Match"));
    }
    match bucket.put(&path, &body(), Condition::Version(&bucket.impossible_version())).await? {
        Some(_) => Err(ignores("If-Match")),
        None => Ok(()),
    }
}

/// Returns the last part of the key of an object: the name with everything but letters, digits, `-` and `_` encoded. A
/// name that is too long for that is encoded in base64, after a `~`: a key has at most 1024 bytes.
pub(crate) fn object_name(name: &str) -> String {
    let readable = encoded(name, "-_");
    if readable.len() <= LONGEST_NAME { readable } else { format!("~{}", URL_SAFE_NO_PAD.encode(name)) }
}

/// Reverses [`object_name`]; `None` if no name has this object.
pub(crate) fn name_of(object: &str) -> Option<String> {
    match object.strip_prefix('~') {
        Some(base64) => String::from_utf8(URL_SAFE_NO_PAD.decode(base64).ok()?).ok(),
        None => decoded(object).ok(),
    }
}

/// Returns the body of the object of a seat that was forgotten. It has a fixed length, and every record is longer: so a
/// list of objects with their sizes shows which of them are seats.
fn tombstone(token: Token) -> String {
    format!("forgotten {:020} {:016x}", token.get(), rand::random::<u64>())
}

/// Returns the last token of a seat that was forgotten; `None` if the body is not a tombstone.
fn forgotten(body: &str) -> Option<Token> {
    body.strip_prefix("forgotten ")?.split(' ').next()?.parse().ok().map(Token::new)
}

const TOMBSTONE_LENGTH: u64 = 47;

/// Long enough for any name in base64: 512 bytes become 683 characters.
const LONGEST_NAME: usize = 690;

/// A request concerns one object. So many in flight renew a thousand seats in a second, over a distance of 50 ms.
const LIMITS: BatchLimits = BatchLimits { seats: 1, calls: 64 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_keeps_the_token_and_is_shorter_than_every_record() {
        for token in [0, 7, u64::MAX] {
            let text = tombstone(Token::new(token));
            assert_eq!(text.len() as u64, TOMBSTONE_LENGTH);
            assert_eq!(forgotten(&text), Some(Token::new(token)));
        }
        let smallest = record::to_json(&Record::new(None, Token::ZERO, Duration::ZERO));
        assert!(smallest.len() as u64 > TOMBSTONE_LENGTH, "{smallest}");
        assert_eq!(forgotten(&smallest), None);
    }

    #[test]
    fn names_are_readable_and_can_be_reversed() {
        let long = "选".repeat(170);
        for name in ["nightly-jobs", "a b/c", "~x", "..", ".", "é", "%2F", &long] {
            let object = object_name(name);
            assert_eq!(name_of(&object).as_deref(), Some(name), "{object}");
            assert!(object.len() <= LONGEST_NAME && !object.contains(['/', '.']), "{object}");
        }
        assert_eq!(object_name("a b"), "a%20b");
        assert!(object_name(&long).starts_with('~'));
    }
}
