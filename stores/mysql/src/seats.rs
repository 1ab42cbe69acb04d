//! Seats as rows: the statements that read and write them, and the argument why they are correct.
//!
//! # Correctness argument
//!
//! *One statement has both the condition and the write*, for all of its seats, and is a transaction of its own
//! (`autocommit`). InnoDB locks a row before an `UPDATE` tests the condition, and tests it on the row as last
//! committed. So of several statements that expect the same version, one writes the row, and the others find another
//! version and change nothing. This holds at every isolation level. (With `innodb_snapshot_isolation` the others may
//! fail with a conflict, which is reported as *refused*.) In a Galera cluster, and in a group with several primaries, of two
//! statements on two servers one fails with a conflict when it commits.
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
//! changes nothing if the row exists. It would wait for another transaction that is inserting the same row, and all other
//! statements of the process behind it. So a statement before it fails at once if there is such a row (`NOWAIT`). Only
//! an insert that begins between the two is waited for, at most a second.
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
//! waits for the disk, and the answer comes after the commit. A server with a binary log also needs `sync_binlog=1`, the
//! default of MySQL but not of MariaDB: when it starts after a crash, it rolls back what the log on its disk lacks. Both
//! settings are global, and no session can override them. With other values the store works, logs a warning, and its
//! promises name what breaks them.
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
//! such locks, or the session is ended (`tenure_kit::sql`).
//!
//! *Tokens rise although data can be lost*, when a replica is promoted that lacks the last terms, or a row is deleted.
//! MySQL has no counter that survives this. So the floor of a reading is the server's clock in microseconds. A token is
//! at most one above the server's time at the reading that its bid rests on, or one above an earlier token, and a seat has
//! fewer tokens than microseconds have passed. The round trip of the bid lies between that reading and any reading after
//! the win, and takes longer than a microsecond. So a reading after the win has a floor that is not below the token of
//! the win. This holds if the clock was not set back meanwhile, and on another server if its clock is not behind by more
//! than the failover took.
//!
//! *A seat that was forgotten leaves its token in the table of floors*, before its row is deleted. An insert tests, in one
//! read view, that there is no row and that its token is above the floor. So a bid that was sent before the seat was
//! led and forgotten, and arrives after that, is lost if a forgotten term had its token or a higher one. Its statement
//! would have to begin before the win and still run after the removal to miss this.

use serde_json::Value;
use tenure_kit::sql::want::hex;
use tenure_kit::sql::{WriteKind, WriteSet};

/// The seats of a call, from the JSON in `@tenure_want`: the new columns of the row (names as hexadecimal digits); the
/// version or the holder that the row must have, the session that it must name, and the identity of the server on which
/// that was read; and the name of the lock, in `mode=session`.
const WANT: &str = "JSON_TABLE(@tenure_want, '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(1024) PATH '$.name', \
     record LONGTEXT CHARACTER SET utf8mb4 PATH '$.record', version VARCHAR(16) PATH '$.version', \
     token BIGINT UNSIGNED PATH '$.token', holder VARCHAR(64) PATH '$.holder', session BIGINT PATH '$.session', \
     held VARCHAR(64) PATH '$.held', held_by BIGINT PATH '$.held_by', identity VARCHAR(512) PATH '$.identity', \
     lock_name VARCHAR(64) PATH '$.lock_name')) AS want";

/// The rows of the seats, if they exist. Rows are found by the index, even in a table so small that a scan is cheaper:
/// a scan would lock other rows.
const SEAT: &str = "LEFT JOIN {seats} AS seat FORCE INDEX (PRIMARY) ON seat.name = UNHEX(want.name)";

const FLOOR: &str = "LEFT JOIN {floors} AS floor FORCE INDEX (PRIMARY) ON floor.name = UNHEX(want.name)";

/// Reads seats by their names, with their floors, the identity of the server and its time.
pub(crate) const READ: &str = "SELECT want.place, seat.record, seat.version, seat.session, COALESCE(floor.token, 0), \
     {identity}, seat.written, {now}, CASE WHEN seat.session IS NULL THEN 0 \
     ELSE IS_USED_LOCK(CONCAT('tenure:', seat.session)) IS NOT NULL END FROM {want} {seat} {floor}";

pub(crate) const LIST: &str = "SELECT name FROM {seats}";

/// Writes the rows that do not exist.
const INSERT: &str = "INSERT INTO {seats} (name, record, version, token, holder, written, session, lock_name) \
     SELECT UNHEX(want.name), want.record, want.version, want.token, want.holder, {now}, want.session, \
     IF(want.session IS NULL, NULL, want.lock_name) FROM {want} {seat} {floor} WHERE seat.name IS NULL \
     AND {identity} = COALESCE(want.identity, {identity}) AND {identity} <> '' \
     AND want.token > COALESCE(floor.token, 0) AND IF(want.lock_name IS NULL, TRUE, {own_lock}) ORDER BY want.name \
     ON DUPLICATE KEY UPDATE name = {seats}.name";

/// Fails if another transaction is inserting one of the rows. A read of a row that does not exist locks nothing, as the
/// isolation level is `READ COMMITTED`. In `mode=session`, the seats that other sessions have locked are left out: they are
/// lost, whatever happens to their rows.
const FAIL_IF_LOCKED: &str = "SELECT COUNT(*) FROM {want} STRAIGHT_JOIN {seats} AS seat FORCE INDEX (PRIMARY) \
     ON seat.name = UNHEX(want.name) WHERE IF(want.lock_name IS NULL, TRUE, {own_lock}) FOR UPDATE NOWAIT";

/// Writes the rows that are as expected, and that no other transaction has locked.
const UPDATE: &str = "UPDATE (SELECT want.* FROM {want} STRAIGHT_JOIN {seats} AS seat FORCE INDEX (PRIMARY) \
     ON seat.name = UNHEX(want.name) WHERE {expected} LIMIT 100000 FOR UPDATE SKIP LOCKED) AS want \
     STRAIGHT_JOIN {seats} AS seat FORCE INDEX (PRIMARY) ON seat.name = UNHEX(want.name) \
     SET seat.record = want.record, seat.version = want.version, seat.token = want.token, seat.holder = want.holder, \
     seat.written = {now}, seat.session = want.session, seat.lock_name = IF(want.session IS NULL, NULL, want.lock_name) \
     WHERE {expected}";

/// The condition of a bid or a release. A write of `mode=lease` has no lock, and never replaces a row with a session.
const HAS_VERSION: &str = "seat.version = want.held AND (seat.session <=> want.held_by) \
     AND IF(want.lock_name IS NULL, want.held_by IS NULL, {own_lock}) AND {identity} = want.identity";

/// The condition of a renewal with `mode=lease`.
const HAS_HOLDER: &str = "seat.token = want.token AND seat.holder = want.held AND seat.session IS NULL \
     AND {identity} = want.identity";

/// Answers, for each seat, whether it was written, and whether another transaction has locked its row.
const OUTCOME: &str = "SELECT want.version, COALESCE(seat.version = want.version, FALSE), COALESCE({locked}, FALSE), \
     {identity} FROM {want} {seat}";

/// The condition that this session holds the lock of the seat.
const OWN_LOCK: &str = "(IS_USED_LOCK(want.lock_name) <=> CONNECTION_ID())";

/// Takes the locks that this session does not hold yet, where they are free: a session that takes a lock twice must
/// release it twice.
const LOCK: &str = "SELECT GET_LOCK(want.lock_name, 0) FROM {want} WHERE NOT {own_lock}";

/// Releases the locks that this session holds, but that no row accounts for: of seats that it did not win, or has
/// released.
pub(crate) const RELEASE: &str =
    "SELECT RELEASE_LOCK(want.lock_name) FROM {want} {seat} WHERE {own_lock} AND NOT (seat.session <=> {session})";

/// Makes the server end the session after a lease of silence while it holds seats.
const TIMEOUT: &str = "SET SESSION wait_timeout = \
     IF((SELECT COUNT(*) FROM {seats} WHERE session = {session}) > 0, {seconds}, 28800)";

/// Wakes the processes that follow seats of the session (`sessions.rs`).
const WAKE_FOLLOWERS: &str = "SELECT CASE WHEN IS_USED_LOCK('tenure:{session}:0') <=> CONNECTION_ID() \
     THEN IF(GET_LOCK('tenure:{session}:1', 1) = 1, RELEASE_LOCK('tenure:{session}:0'), 0) \
     ELSE IF(GET_LOCK('tenure:{session}:0', 1) = 1, RELEASE_LOCK('tenure:{session}:1'), 0) END";

pub(crate) const HEARTBEAT: &str = "SELECT version FROM {seats} WHERE session = {session} \
     AND (IS_USED_LOCK(lock_name) <=> CONNECTION_ID()) AND {identity} <> ''";

/// Removes a seat and its notes. Its token becomes a floor first, and a row with a higher token stays: so a term that
/// begins in between does not lose its token.
pub(crate) const FORGET: &str = "INSERT INTO {floors} (name, token) SELECT seat.name, seat.token FROM {seats} AS seat \
     WHERE seat.name = UNHEX(@tenure_want) AND seat.token < 18446744073709551615 \
     ON DUPLICATE KEY UPDATE token = GREATEST({floors}.token, seat.token); \
     DELETE seat FROM {seats} AS seat LEFT JOIN {floors} AS floor ON floor.name = seat.name \
     WHERE seat.name = UNHEX(@tenure_want) AND (seat.token <= floor.token OR seat.token = 18446744073709551615); \
     DELETE FROM {notes} WHERE seat = UNHEX(@tenure_want)";

/// The place in a batch of the statement that writes: the first one sets `@tenure_want`, the second one the time-out of
/// the session, the third one takes locks, and the fourth one is [`FAIL_IF_LOCKED`]. The next one returns the outcome.
pub(crate) const WRITES_AT: usize = 4;

/// Returns the batch that writes a set of seats in `mode=lease`.
pub(crate) fn write(set: &WriteSet) -> String {
    // Nothing takes the places of the time-out and of the locks.
    format!("DO 0; DO 0; {}", write_rows(set.kind))
}

/// Returns the batch that writes a set of seats on a session. A release of a seat also wakes its followers.
pub(crate) fn write_locked(set: &WriteSet) -> String {
    let releases = set.rows.iter().any(|row| row.write.record.is_vacant());
    let wake = if releases { WAKE_FOLLOWERS } else { "DO 0" };
    // Before the write: if a later statement fails, the session may hold the seat.
    let wins = set.rows.iter().any(|row| !row.write.record.is_vacant());
    let before = if wins { "SET SESSION wait_timeout = {seconds}" } else { "DO 0" };
    format!("{before}; {LOCK}; {}; {RELEASE}; {TIMEOUT}; {wake}", write_rows(set.kind))
}

fn write_rows(kind: WriteKind) -> String {
    let before = if kind == WriteKind::New { FAIL_IF_LOCKED } else { "DO 0" };
    let (write, expected, locked) = match kind {
        WriteKind::New => (INSERT, "", "FALSE"),
        // A bid on a row that another transaction has locked is lost: that is most likely another bid.
        WriteKind::Next => (UPDATE, HAS_VERSION, "FALSE"),
        WriteKind::Renewal => (UPDATE, HAS_HOLDER, HAS_HOLDER),
    };
    format!("{before}; {}; {}", write.replace("{expected}", expected), OUTCOME.replace("{locked}", locked))
}

/// Replaces the parts that the statements of this module share.
pub(crate) fn with_parts(sql: &str) -> String {
    [("{want}", WANT), ("{seat}", SEAT), ("{floor}", FLOOR), ("{own_lock}", OWN_LOCK)]
        .iter()
        .fold(sql.to_owned(), |sql, (name, part)| sql.replace(name, part))
}

/// Returns the statements, and before them one that sets what they are about.
pub(crate) fn about(want: &Value, sql: &str) -> String {
    // As a hexadecimal literal, the text needs no quoting, whatever the modes and the character set of the session.
    let text = if let Value::String(text) = want { text.clone() } else { want.to_string() };
    format!("SET @tenure_want = _utf8mb4 x'{}'; {sql}", hex(&text))
}
