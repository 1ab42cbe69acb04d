//! The store: turns the engine's calls into meta commands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use tenure_core::{
    Answers, BatchLimits, Call, ConfigError, Life, Promises, Reading, Seat, SeatName, Store, StoreError, Swap, Token,
    Version, Write, record,
};
use tenure_kit::url::encoded;
use tenure_kit::{Reconnect, nonce_of};

use crate::connection::MemcachedConnection;
use crate::options::MemcachedOptions;
use crate::protocol::{Commands, Condition, Reply};

/// A store that keeps seats in the memory of one memcached server, best effort: the server can forget them.
///
/// The store connects at the engine's first call, and again after a connection is lost. Elections of one process should
/// share one store: they then share its connection and its round trips.
pub struct MemcachedStore {
    prefix: String,
    connection: Reconnect<MemcachedConnection>,
}

impl MemcachedStore {
    /// Creates a store for the server that the options name. Does not connect: a server that cannot be reached shows at
    /// the first call.
    ///
    /// # Errors
    /// Returns one line if the options contradict each other.
    pub fn new(options: MemcachedOptions) -> Result<Self, ConfigError> {
        options.check()?;
        let (prefix, options) = (options.prefix.clone(), Arc::new(options));
        let connection = Reconnect::new(move || MemcachedConnection::connect(options.clone()));
        Ok(Self { prefix, connection })
    }

    /// Creates a store for the server at this URL. See [`MemcachedOptions::from_url`] for its forms.
    ///
    /// # Errors
    /// Returns one line, without the password, if the URL is invalid.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        Self::new(MemcachedOptions::from_url(url)?)
    }

    /// Returns the key of a seat. A key has at most 250 bytes and no spaces. A name that is longer than that when it is
    /// encoded is replaced by its hash; an encoded name never begins with `#`.
    fn key(&self, seat: &SeatName) -> String {
        let (prefix, name) = (&self.prefix, encoded(seat.as_str(), "-_.:/"));
        if prefix.len() + 1 + name.len() <= LONGEST_KEY {
            return format!("{prefix}:{name}");
        }
        let hash: String = Sha256::digest(seat.as_str()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{prefix}:#{hash}")
    }
}

impl std::fmt::Debug for MemcachedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemcachedStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Store for MemcachedStore {
    fn promises(&self) -> Promises {
        Promises {
            reads: LIMITS,
            writes: LIMITS,
            durability: "none (best effort): seats are only in the server's memory, and it can drop them at any time",
            // A call times out after a fifteenth of the lease: here 10 ms.
            min_lease: Duration::from_millis(150),
            broken_by: &[
                "The server forgets the seat (a restart, flush_all, an eviction because its memory is full, or a write \
                 that finds no memory), and a candidate reads the seat for the first time before the lease of the \
                 leader is over: it cannot know that there is a leader, and bids at once. Candidates that have seen the \
                 seat before wait a lease.",
                "The server forgets the seat, and the host of the next leader has a clock that is behind by more than \
                 the time since the forgotten seat was created: a token can be issued again.",
                "A bid reaches the server only after its seat was led, released and removed with tenure forget: no token of \
                 the removed terms is left to compare with, so the bid wins, and its token can be one that a removed term \
                 had, or lower.",
                "Candidates name different servers, or a proxy moves a connection from one server to another.",
            ],
            ..Promises::of("memcached")
        }
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let keys: Vec<String> = seats.iter().map(|seat| self.key(seat)).collect();
        for (place, seen) in look(&connection, &keys).await.into_iter().enumerate() {
            // A seat that is there shows its token. The floor is only for a seat that may have been forgotten.
            let floor = |seat: &Option<Seat>| if seat.is_none() { clock_floor() } else { Token::ZERO };
            to.set(place, seen.map(|seat| Reading { floor: floor(&seat), seat, identity: None }));
        }
        Ok(())
    }

    /// # Correctness
    /// Claim: a write takes effect only if the seat still has the record whose nonce the version names.
    /// Reason: a CAS value belongs to one write, because a server process counts it up with every write and never goes
    /// back. The value that the write expects was seen on *this* connection together with that nonce. A connection ends
    /// with its server process, so the write cannot reach another process, in which the same value could belong to
    /// another record. The server checks the value and writes in one step, under the lock of the item. It writes an
    /// absent seat by an addition, which fails if the key exists.
    /// Conclusion: nothing was written between the version and the write.
    /// If the connection ends before the reply, the outcome is unknown, and the engine reads the seat.
    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let keys: Vec<String> = writes.iter().map(|write| self.key(&write.seat)).collect();
        let known = |place: usize| {
            let version = writes[place].expect.version()?;
            connection.cas_of(&keys[place], version.as_str())
        };
        // What another connection has seen must be seen on this one first.
        let is_unknown = |place: &usize| writes[*place].expect.version().is_some() && known(*place).is_none();
        let unknown: Vec<usize> = (0..writes.len()).filter(is_unknown).collect();
        let looks: Vec<String> = unknown.iter().map(|place| keys[*place].clone()).collect();
        let mut looked = unknown.iter().copied().zip(look(&connection, &looks).await).collect::<HashMap<_, _>>();
        let (mut commands, mut sent) = (Commands::default(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            let condition = match write.expect.version() {
                None => Some(Condition::Absent),
                Some(_) => known(place).map(Condition::Cas),
            };
            match (condition, looked.remove(&place)) {
                (Some(condition), _) => {
                    commands.put(&keys[place], &record::to_json(&write.record), condition);
                    sent.push(place);
                }
                // The seat could not be read, and no write was sent.
                (None, Some(Err(error))) => to.set(place, Err(error)),
                // The seat has another record, or none.
                (None, _) => to.set(place, Ok(Swap::Lost)),
            }
        }
        let mut replies = connection.ask(commands).await.into_iter();
        for place in sent {
            let nonce = nonce_of(&writes[place].record);
            to.set(
                place,
                match replies.next() {
                    Some(Reply::Done { cas: cas @ 1.. }) => {
                        connection.remember(&keys[place], Some((nonce.clone(), cas)));
                        Ok(Swap::Done { version: Version::new(nonce), since: None, granted: None })
                    }
                    Some(Reply::NotStored | Reply::Missing) => {
                        connection.remember(&keys[place], None);
                        Ok(Swap::Lost)
                    }
                    reply => Err(connection.no_reply(reply.as_ref())),
                },
            );
        }
        Ok(())
    }

    /// Deletes the key. The floor of a seat without a key is the host's time, which is above its tokens.
    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        let connection = self.connection.get().await?;
        let mut commands = Commands::default();
        commands.delete(&self.key(seat));
        match connection.ask(commands).await.first() {
            Some(Reply::Done { .. } | Reply::Missing) => Ok(()),
            reply => Err(connection.no_reply(reply)),
        }
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        Err(StoreError::denied("memcached cannot list its keys; name the election"))
    }
}

/// Reads seats in one round trip, and remembers the CAS value of each.
async fn look(connection: &MemcachedConnection, keys: &[String]) -> Vec<Result<Option<Seat>, StoreError>> {
    let mut commands = Commands::default();
    keys.iter().for_each(|key| commands.get(key));
    let mut replies = connection.ask(commands).await.into_iter();
    let seat = |key: &String| match replies.next() {
        Some(Reply::Value { text, cas: cas @ 1.. }) => {
            let record = record::from_json(&text)?;
            let nonce = nonce_of(&record);
            connection.remember(key, Some((nonce.clone(), cas)));
            // The server does not know whether the holder is alive: followers observe the version.
            Ok(Some(Seat { record, version: Version::new(nonce), life: Life::Observe }))
        }
        Some(Reply::Missing) => {
            connection.remember(key, None);
            Ok(None)
        }
        reply => Err(connection.no_reply(reply.as_ref())),
    };
    keys.iter().map(seat).collect()
}

/// Returns the floor of a seat that is absent: the host's wall clock in milliseconds.
///
/// Claim: the tokens of a seat that is created anew are above all tokens that it had before it was forgotten.
/// Reason: the first token of a seat is one above the time at which it was found absent. Each later token is one higher,
/// and a seat has fewer terms than milliseconds pass, because a term takes several round trips. So all tokens are below
/// the time at which the seat is found absent again. This holds if the clocks of the two hosts differ by less than the
/// time between the two creations. A clock that is wrong while a seat exists has no effect.
fn clock_floor() -> Token {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Token::new(now.as_millis().try_into().unwrap_or(0))
}

/// The length of the longest key that a server accepts, in bytes.
const LONGEST_KEY: usize = 250;

/// At most 128 seats share a round trip, and at most 4 round trips of a kind are in flight. Even a busy server answers
/// that many within the shortest time-out.
const LIMITS: BatchLimits = BatchLimits { seats: 128, calls: 4 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_readable_and_names_that_are_too_long_are_hashed() {
        let store = MemcachedStore::from_url("memcached://").unwrap();
        let key = |name: &str| store.key(&SeatName::new(name).unwrap());
        assert_eq!(key("nightly jobs"), "tenure:nightly%20jobs");
        assert_eq!(key("#probe"), "tenure:%23probe", "a name is never the key of the probe");
        assert_eq!(key(&"x".repeat(243)).len(), 250);
        let (long, longer) = (key(&"x".repeat(244)), key(&"x".repeat(245)));
        assert!(long.starts_with("tenure:#") && long != longer && long.len() < 250, "{long}");
    }
}
