//! Seats as rows: the statements that read and write them, and the argument why they are correct.
//!
//! # Correctness argument
//!
//! *One statement has both the condition and the write*, for all of its seats, and is a transaction of its own
//! (`autocommit`). InnoDB locks a row before an `UPDATE` tests the condition, and tests it on the row as last
//! committed. So of several statements that expect the same version, one writes the row, and the others find another
//! version and change nothing. This holds at every isolation level. (With `innodb_snapshot_isolation` the others may
//! fail with a conflict, which is reported as *refused*.) In a Galera cluster, of two statements on two nodes one fails
//! with a conflict when it commits.
//!
//! *The meaning of an answer.* The next statement of the batch returns, for each seat, whether the row has the version
//! that the write has set. No two writes have the same version, so a seat is *done* only because of its own write, and
//! that write has committed. If another write has replaced the version between the two statements, the answer is
//! *lost*: the candidate does not lead by this write, reads the seat, and finds what is there. If the batch fails after
//! its write, the outcome is *unknown* for each seat ([`Failed::into_error`](crate::errors::Failed)).
//!
//! *A statement that fails* is rolled back as a whole, and each of its seats gets the fault that the server's error
//! means. A fault that a single seat may have caused must not be reported to the other seats. In that case no seat gets
//! an answer, and the engine makes smaller calls.
//!
//! *A call that is dropped* before its batch is sent is never sent. After the send, the batch runs to its end, and a
//! later read on the same connection sees its effect. A connection that does not answer is replaced, and a batch in
//! flight on the old connection may take effect after such a read. It then still tests its own condition: it takes a
//! seat that no other candidate has taken since the read that the bid rests on, or it keeps a seat in a term that is not
//! over. So it does late what it would have done in time.
//!
//! *No statement waits long for another transaction.* The inner `SELECT … FOR UPDATE SKIP LOCKED` finds the rows that
//! are as expected and that no other transaction has locked, and locks them. The outer `UPDATE` touches only these, and
//! tests the condition again. So the inner part decides only which rows to leave alone. A new seat is an `INSERT` that
//! changes nothing if the row exists. It waits for another transaction that is inserting the same row, at most a second.
//!
//! *A renewal* (`mode=lease`) is conditional on the holder and the term in the row, and not on its version. So a renewal
//! whose answer was lost does not make the next renewal fail. No other candidate has the same incarnation, each term has
//! its own token, and the row of a released seat names no holder. So a renewal of a term that is over matches no row.
//!
//! *A version* is a random number that is drawn for each write, so no two writes have the same version, not even a write
//! that a caller repeats. The version that callers see
//! also contains the identity of the server that it was read from (`server_uuid`; MariaDB: `server_id`, `hostname` and
//! `port`). A write is lost on another server, and on a server that is read-only: a replica that was promoted may never
//! have received the row that has the number, or may lack later writes to it.
//!
//! *A write is durable before it counts* if `innodb_flush_log_at_trx_commit` is 1, which is the default: then the commit
//! waits for the disk, and the answer comes after the commit. The setting is global, and no session can override it. With
//! another value the store works, logs a warning, and its promises name what breaks them.
//!
//! *Time* (`mode=lease`). `UTC_TIMESTAMP(6)` is the time at which the server received the batch or began the statement:
//! after its send, and before the receipt of its answer. The leader counts its lease from the send. In a reading, the
//! row may have been renewed just after the time that is returned with it; then the row looks younger than it is, and a
//! follower waits longer. The protocol decides how followers use the stamp, and accounts for a clock that steps.
//!
//! *The lock* (`mode=session`). Only the session that holds the seat's lock (`GET_LOCK`) writes a row that names a holder.
//! The batch takes the lock if the session does not hold it, writes on condition of the version and of the lock, and
//! releases the lock if no row accounts for it. So the session holds the lock while the row names the session, and the
//! server frees the lock when the session ends, for whatever reason. If a batch fails half-way, a separate one releases
//! such locks, or the session is ended (`session.rs`).
//!
//! *Tokens rise although data can be lost*, when a replica is promoted that lacks the last terms, or a row is deleted.
//! MySQL has no counter that survives this. So the floor of a reading is the server's clock in microseconds. A token is
//! at most one above the server's time at the reading that its bid rests on, or one above an earlier token, and a seat has
//! fewer tokens than microseconds have passed. The round trip of the bid lies between that reading and any reading after
//! the win, and takes longer than a microsecond. So a reading after the win has a floor that is not below the token of
//! the win. This holds if the clock was not set back meanwhile, and on another server if its clock is not behind by more
//! than the failover took. A seat that was forgotten also leaves its token in the table of floors.

use serde::Serialize;
use tenure_core::{Expect, Token, Version, Write, record};

use crate::schema::{LockNames, TABLES, quoted};

/// The statements, for one prefix of tables and one way to identify the server.
pub(crate) struct Statements {
    /// Reads seats by their names, with their floors, the identity of the server and its time.
    pub(crate) read: String,
    pub(crate) list: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    pub(crate) renew: String,
    /// The statements of `mode=session`, in which `{session}` stands for the session, and `{seconds}` for its lease.
    pub(crate) insert_locked: String,
    pub(crate) update_locked: String,
    pub(crate) release_leftovers: String,
    pub(crate) heartbeat: String,
    /// Wakes the processes that follow seats of the session.
    pub(crate) ring: &'static str,
    pub(crate) forget: String,
    pub(crate) write_notes: String,
    pub(crate) list_notes: String,
    pub(crate) delete_expired_notes: String,
}

impl Statements {
    /// `has_uuid`: whether the server has a `server_uuid`, as MySQL does and MariaDB does not.
    pub(crate) fn new(prefix: &str, has_uuid: bool) -> Self {
        let [seats, floors, notes] = TABLES.map(|table| quoted(&format!("{prefix}{table}")));
        let identity = if has_uuid { "@@server_uuid" } else { "CONCAT(@@server_id, '.', @@hostname, '.', @@port)" };
        let fill = |sql: String| {
            sql.replace("{identity}", &format!("IF(CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF'), {identity}, '')"))
                .replace("{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
                .replace("{want}", WANT)
                .replace("{seats}", &seats)
                .replace("{floors}", &floors)
                .replace("{notes}", &notes)
        };
        Self {
            read: fill(format!(
                "SELECT want.i, seat.record, seat.version, seat.session, COALESCE(floor.token, 0), {{identity}}, \
                 seat.written, {{now}}, CASE WHEN seat.session IS NULL THEN 0 \
                 ELSE IS_USED_LOCK(CONCAT('tenure:', seat.session)) IS NOT NULL END FROM {WANT} {SEAT} \
                 LEFT JOIN {{floors}} AS floor FORCE INDEX (PRIMARY) ON floor.name = UNHEX(want.n)"
            )),
            list: fill("SELECT name FROM {seats}".to_owned()),
            insert: fill(insert("TRUE")),
            // A bid on a row that another transaction has locked is lost: that is most likely another bid.
            update: fill(update("seat.version = want.h AND seat.session IS NULL AND want.e IS NULL", false)),
            renew: fill(update("seat.token = want.t AND seat.holder = want.h AND seat.session IS NULL", true)),
            insert_locked: fill(format!("{LOCK}; {}; {RELEASE}; {TIMEOUT}", insert(OWN_LOCK))),
            update_locked: fill(format!(
                "{LOCK}; {}; {RELEASE}; {TIMEOUT}",
                update(&format!("seat.version = want.h AND (seat.session <=> want.e) AND {OWN_LOCK}"), false)
            )),
            release_leftovers: fill(RELEASE.to_owned()),
            heartbeat: fill(
                "SELECT version FROM {seats} WHERE session = '{session}' AND (IS_USED_LOCK(lock_name) <=> CONNECTION_ID()) \
                 AND {identity} <> ''"
                    .to_owned(),
            ),
            ring: "; SELECT CASE WHEN IS_USED_LOCK('tenure:{session}:0') <=> CONNECTION_ID() \
                   THEN IF(GET_LOCK('tenure:{session}:1', 1) = 1, RELEASE_LOCK('tenure:{session}:0'), 0) \
                   ELSE IF(GET_LOCK('tenure:{session}:0', 1) = 1, RELEASE_LOCK('tenure:{session}:1'), 0) END",
            forget: fill(
                "START TRANSACTION; INSERT INTO {floors} (name, token) SELECT seat.name, seat.token FROM {seats} AS seat \
                 WHERE seat.name = UNHEX(@tenure_want) AND seat.token < 18446744073709551615 FOR UPDATE \
                 ON DUPLICATE KEY UPDATE token = GREATEST({floors}.token, seat.token); \
                 DELETE FROM {seats} WHERE name = UNHEX(@tenure_want); \
                 DELETE FROM {notes} WHERE seat = UNHEX(@tenure_want); COMMIT"
                    .to_owned(),
            ),
            write_notes: fill(format!(
                "SELECT want.i FROM {WANT_NOTES} STRAIGHT_JOIN {{notes}} AS note FORCE INDEX (PRIMARY) \
                 ON {SAME_NOTE} WHERE note.expires > {{now}}; \
                 DELETE note FROM {WANT_NOTES} STRAIGHT_JOIN {{notes}} AS note FORCE INDEX (PRIMARY) \
                 ON {SAME_NOTE} WHERE want.r IS NULL; \
                 INSERT INTO {{notes}} (seat, kind, note_key, value, expires) \
                 SELECT UNHEX(want.n), want.k, UNHEX(want.o), want.r, {{now}} + want.t FROM {WANT_NOTES} \
                 WHERE want.r IS NOT NULL ORDER BY want.n, want.k, want.o \
                 ON DUPLICATE KEY UPDATE value = want.r, expires = {{now}} + want.t"
            )),
            list_notes: fill(format!(
                "SELECT want.i, note.note_key, note.value FROM {WANT_NOTES} STRAIGHT_JOIN {{notes}} AS note \
                 FORCE INDEX (PRIMARY) ON note.seat = UNHEX(want.n) AND note.kind = want.k \
                 WHERE note.expires > {{now}} ORDER BY want.i, note.expires, note.note_key"
            )),
            // At most as many rows as do not keep this process from renewing its seats.
            delete_expired_notes: fill("DELETE FROM {notes} WHERE expires <= {now} LIMIT 10000".to_owned()),
        }
    }
}

/// The seats of a call, from the JSON in `@tenure_want`: name, record, version, token, the holder's incarnation, the
/// version or holder that the row must have, the identity of the server on which that was read, and in `mode=session` the
/// session that the row must name, the session that will hold the seat, and the name of its lock.
const WANT: &str = "JSON_TABLE(@tenure_want, '$[*]' COLUMNS (i FOR ORDINALITY, n VARCHAR(1024) PATH '$.n', \
     r LONGTEXT CHARACTER SET utf8mb4 PATH '$.r', v VARCHAR(16) PATH '$.v', t BIGINT UNSIGNED PATH '$.t', \
     o VARCHAR(64) PATH '$.o', h VARCHAR(64) PATH '$.h', d VARCHAR(255) PATH '$.d', e VARCHAR(16) PATH '$.e', s VARCHAR(16) PATH '$.s', \
     l VARCHAR(64) PATH '$.l')) AS want";

/// The notes of a call: board, key, value and lifetime.
const WANT_NOTES: &str = "JSON_TABLE(@tenure_want, '$[*]' COLUMNS (i FOR ORDINALITY, n VARCHAR(1024) PATH '$.n', \
     k VARCHAR(16) PATH '$.k', o VARCHAR(2048) PATH '$.o', r LONGTEXT CHARACTER SET utf8mb4 PATH '$.r', \
     t BIGINT PATH '$.t')) AS want";

const SAME_NOTE: &str = "note.seat = UNHEX(want.n) AND note.kind = want.k AND note.note_key = UNHEX(want.o)";

/// The rows of the seats, if they exist. Rows are found by the index, even in a table so small that a scan is cheaper:
/// a scan would lock other rows.
const SEAT: &str = "LEFT JOIN {seats} AS seat FORCE INDEX (PRIMARY) ON seat.name = UNHEX(want.n)";

/// The condition that this session holds the lock of the seat.
const OWN_LOCK: &str = "(IS_USED_LOCK(want.l) <=> CONNECTION_ID())";

/// Takes the locks that this session does not hold yet, where they are free: a session that takes a lock twice must
/// release it twice.
const LOCK: &str = "SELECT GET_LOCK(want.l, 0) FROM {want} WHERE NOT (IS_USED_LOCK(want.l) <=> CONNECTION_ID())";

/// Releases the locks that this session holds, but that no row accounts for: of seats that it did not win, or has
/// released.
const RELEASE: &str = "SELECT RELEASE_LOCK(want.l) FROM {want} LEFT JOIN {seats} AS seat FORCE INDEX (PRIMARY) \
     ON seat.name = UNHEX(want.n) WHERE (IS_USED_LOCK(want.l) <=> CONNECTION_ID()) AND NOT (seat.session <=> '{session}')";

/// Makes the server end the session after a lease of silence while it holds seats.
const TIMEOUT: &str = "SET SESSION wait_timeout = \
     IF((SELECT COUNT(*) FROM {seats} WHERE session = '{session}') > 0, {seconds}, 28800)";

/// Returns the batch that writes the rows that do not exist.
fn insert(condition: &str) -> String {
    format!(
        "INSERT INTO {{seats}} (name, record, version, token, holder, written, session, lock_name) \
         SELECT UNHEX(want.n), want.r, want.v, want.t, want.o, {{now}}, want.s, IF(want.s IS NULL, NULL, want.l) \
         FROM {WANT} {SEAT} LEFT JOIN {{floors}} AS floor FORCE INDEX (PRIMARY) ON floor.name = UNHEX(want.n) \
         WHERE seat.name IS NULL AND {{identity}} = COALESCE(want.d, {{identity}}) AND {{identity}} <> '' \
         AND want.t > COALESCE(floor.token, 0) AND {condition} ORDER BY want.n \
         ON DUPLICATE KEY UPDATE name = {{seats}}.name; {}",
        outcome("FALSE")
    )
}

/// Returns the batch that writes the rows that are as expected, and that no other transaction has locked. `tells` says
/// whether it also returns which rows are still as expected.
fn update(condition: &str, tells: bool) -> String {
    let condition = format!("{condition} AND {{identity}} = want.d");
    format!(
        "UPDATE (SELECT want.* FROM {WANT} STRAIGHT_JOIN {{seats}} AS seat FORCE INDEX (PRIMARY) \
         ON seat.name = UNHEX(want.n) WHERE {condition} LIMIT 100000 FOR UPDATE SKIP LOCKED) AS want \
         STRAIGHT_JOIN {{seats}} AS seat FORCE INDEX (PRIMARY) ON seat.name = UNHEX(want.n) \
         SET seat.record = want.r, seat.version = want.v, seat.token = want.t, seat.holder = want.o, \
         seat.written = {{now}}, seat.session = want.s, seat.lock_name = IF(want.s IS NULL, NULL, want.l) WHERE {condition}; {}",
        outcome(if tells { &condition } else { "FALSE" })
    )
}

/// Returns the statement that answers, for each seat, whether it was written, and whether it is still as expected: then
/// another transaction had locked its row.
fn outcome(condition: &str) -> String {
    format!(
        "SELECT want.i, COALESCE(seat.version = want.v, FALSE), COALESCE({condition}, FALSE), {{identity}} FROM {WANT} {SEAT}"
    )
}

/// The place of the statement that writes in the batches of this module: the first one sets `@tenure_want`.
pub(crate) const WRITES_AT: usize = 1;

/// The same in `mode=session`, where the second one takes locks.
pub(crate) const LOCKED_WRITES_AT: usize = 2;

/// Returns a batch: the statements, and what they are about.
pub(crate) fn batch(want: &impl Serialize, sql: &str) -> String {
    // As a hexadecimal literal, the text needs no quoting, whatever the modes and the character set of the session.
    let json = serde_json::to_string(want).unwrap_or_default();
    format!("SET @tenure_want = _utf8mb4 x'{}'; {sql}", hex(json.as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// A seat of a call, in the form of [`WANT`].
#[derive(Default, Serialize)]
pub(crate) struct Want {
    n: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<String>,
    v: String,
    t: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    h: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    d: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    l: Option<String>,
}

impl Want {
    pub(crate) fn read(seat: &tenure_core::SeatName) -> Self {
        Self { n: hex(seat.as_str().as_bytes()), ..Self::default() }
    }

    /// `number` identifies this write, and `session` the session that takes the lock of the seat.
    pub(crate) fn write(write: &Write, number: &str, session: Option<(&str, &LockNames)>) -> Self {
        let holder = write.record.holder.as_ref().map(|holder| holder.incarnation.to_string());
        let expected = VersionParts::of(&write.expect);
        let e = expected.as_ref().and_then(|parts| parts.session.clone());
        let (held, identity) = match &write.expect {
            Expect::Absent(identity) => (None, identity.as_ref().map(|identity| identity.as_str().to_owned())),
            Expect::Held(_) => (holder.clone(), expected.map(|parts| parts.identity)),
            Expect::Version(_) | Expect::HolderDead(_) => expected.map(|parts| (parts.number, parts.identity)).unzip(),
        };
        Self {
            r: Some(record::to_json(&write.record)),
            v: number.to_owned(),
            t: write.record.token.get(),
            o: holder,
            h: held,
            d: identity,
            e,
            s: session.map(|(session, _)| session.to_owned()).filter(|_| !write.record.is_vacant()),
            l: session.map(|(_, names)| names.of(&write.seat)),
            ..Self::read(&write.seat)
        }
    }
}

/// The parts of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionParts {
    /// The random number of the write.
    pub(crate) number: String,
    /// The identity of the server that the version was read from.
    pub(crate) identity: String,
    /// The session that holds the seat.
    pub(crate) session: Option<String>,
}

impl VersionParts {
    /// Returns the version that a write expects, if it expects one.
    pub(crate) fn of(expect: &Expect) -> Option<Self> {
        match expect {
            Expect::Absent(_) => None,
            Expect::Version(version) | Expect::Held(version) | Expect::HolderDead(version) => Self::parse(version),
        }
    }

    /// Parses a version. Returns `None` if no seat ever had it.
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split(':').map(str::to_owned);
        let (number, identity, session) = (parts.next()?, parts.next()?, parts.next());
        // The server would cut a text that is too long.
        let is_number = |text: &String| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parts = Self { number, identity, session };
        let is_valid = is_number(&parts.number) && parts.session.iter().all(is_number) && parts.identity.len() < 256;
        Some(parts).filter(|parts| is_valid && parts.version() == *version)
    }

    pub(crate) fn version(&self) -> Version {
        Version::new(match &self.session {
            None => format!("{}:{}", self.number, self.identity),
            Some(session) => format!("{}:{}:{session}", self.number, self.identity),
        })
    }
}

/// Returns the floor of a reading at this time of the server.
pub(crate) fn clock_floor(micros: i64) -> Token {
    Token::new(micros.try_into().unwrap_or(0))
}
