//! Seats as rows: the statements that read and write them, and the argument why they are correct.
//!
//! # Correctness argument
//!
//! *One statement has both the condition and the write*, for all of its seats, and is a transaction of its own. An
//! `UPDATE` takes an update lock on a row of its target before it tests the condition, tests it on the row as last
//! committed, and keeps the lock until it commits; two update locks exclude each other. So of several statements that
//! expect the same version, one writes the row, and the others find another version and change nothing. With
//! `READ_COMMITTED_SNAPSHOT`, statements read versions of rows in place of waiting, but not the rows of the target of an
//! `UPDATE`, which is named once. So this holds with and without it, and no hint is needed. With optimized locking, as on
//! Azure, the server tests the last committed row before it locks it, and again after that if the row has changed.
//!
//! *A new seat* is an `INSERT`, and the primary key decides: of several, one inserts the row. The others wait for its
//! commit and skip the row (`IGNORE_DUP_KEY`), or, on a table without this option, fail as a whole.
//!
//! *The meaning of an answer.* A later statement of the batch returns, for each seat, whether the row has the version that
//! the write has set. No two writes have the same version, so a seat is *done* only because of its own write, and that
//! write has committed. If another write has replaced the version between the two statements, the answer is *lost*: the
//! candidate does not lead by this write, reads the seat, and finds what is there. Right after the write the batch returns
//! a row. An error after that row leaves the outcome *unknown* ([`Failed::after_a_write`](crate::errors::Failed)).
//!
//! *A statement that fails* is rolled back as a whole, and each of its seats gets the fault that the server's error means.
//! A fault that a single seat may have caused, such as a row that another transaction keeps locked for longer than
//! `LOCK_TIMEOUT`, must not be reported to the other seats. In that case no seat gets an answer, and the engine makes
//! smaller calls, until that seat is alone. Each of these calls waits for the row, so the time-out is a small part of the
//! time that a call has ([`wait_for_rows`]).
//!
//! *A call that is dropped* before its batch is sent is never sent. After the send, the batch runs to its end, and a later
//! read on the same connection sees its effect. A connection that does not answer is replaced, and a batch in flight on
//! the old connection may take effect after such a read. It then still tests its own condition: it takes a seat that no
//! other candidate has taken since the read that the bid rests on, or it keeps a seat in a term that is not over. So it
//! does late what it would have done in time.
//!
//! *A renewal* (`mode=lease`) is conditional on the holder and the term in the row, and not on its version. So a renewal
//! whose answer was lost does not make the next renewal fail. No other candidate has the same incarnation, each term has
//! its own token, and the row of a released seat names no holder. So a renewal of a term that is over matches no row.
//!
//! *A version* is a random number that is drawn for each write. The version that callers see also contains the identity of
//! the data: the name of the server, and the number and the date of the database. A write is lost in other data, and in a
//! database that is read-only: a replica that became the primary may never have received the row, or may lack later
//! writes to it.
//!
//! *A write is durable before it counts*: a commit waits for the log on the disk, unless `DELAYED_DURABILITY` of the
//! database is `FORCED`. The store then works, logs a warning, and its promises name what breaks them.
//!
//! *Time* (`mode=lease`). A batch reads `SYSUTCDATETIME()` first: after the send of the batch, and before the receipt of
//! its answer. The leader counts its lease from the send. In a reading, the row may have been renewed just after the time
//! that is returned with it; then the row looks younger than it is, and a follower waits longer. The protocol decides how
//! followers use the stamp, and accounts for a clock that steps.
//!
//! *The session* (`mode=session`). Each session has a random number, and holds an exclusive application lock of that name
//! from its first batch to its end. A session that has ended never lives again, as no other session takes its lock: tests
//! and waits request it only *shared*. A row names the session that holds the seat. A bid on a row that names a session
//! tests first that this session has ended, and then writes on condition that the row still has the version, which
//! contains that session. What the test has found stays true, so nothing can come in between. A batch first tests that its
//! own session still holds its lock (`APPLOCK_MODE`), so that a pool that shares sessions is noticed. The server frees the
//! lock when the session ends, for whatever reason. So the seat is held while its row names a session that has its lock,
//! and no lock of a seat can be left behind.
//!
//! *Tokens rise although data can be lost*, when a replica takes over that lacks the last terms, or a row is deleted. The
//! floor of a reading is the server's clock in microseconds. A token is at most one above the server's time at the reading
//! that its bid rests on, or one above an earlier token, and a seat has fewer tokens than microseconds have passed. So a
//! reading after the win has a floor that is not below the token of the win, once the clock has advanced, which takes at
//! most 16 ms and thus less than a failover. This holds if the clock was not set back meanwhile, and on another server if its
//! clock is not behind by more than the failover took.
//!
//! *A seat that was forgotten leaves its token in the table of floors*, before its row is deleted. An insert writes only
//! if its token is above the floor, and keeps the floor locked until it commits, even if there is none yet
//! (`HOLDLOCK`). If the floor of a removal is written before the insert reads it, a bid from before the removal is lost,
//! unless its token is above those of the forgotten terms. Otherwise the insert commits first: then the row is still
//! there, and the insert skips it.

use std::time::Duration;

use tenure_kit::sql::{WriteKind, WriteSet};

/// Limits how long a statement waits for a row that another transaction has locked. See [`wait_for_rows`].
const LOCK_TIMEOUT: &str = "SET LOCK_TIMEOUT {wait};\n";

/// The time, the session of the batch, and the identity of the data, which is empty if the database is read-only.
pub(crate) const HEAD: &str = "DECLARE @now bigint = DATEDIFF_BIG(MICROSECOND, '1970-01-01', SYSUTCDATETIME()), \
     @me bigint = NULLIF(@P2, 0), @identity nvarchar(300) = (SELECT IIF(CONVERT(nvarchar(60), \
     DATABASEPROPERTYEX(name, 'Updateability')) = 'READ_WRITE', CONCAT(CONVERT(nvarchar(128), \
     SERVERPROPERTY('ServerName')), '.', database_id, '.', CONVERT(varchar(23), create_date, 126)), '') \
     FROM sys.databases WHERE name = DB_NAME());\n";

/// The seats of the batch, from the JSON in `@P1` (`tenure_kit::sql::want`).
const WANT: &str = "DECLARE @want TABLE (place int NOT NULL PRIMARY KEY, name varbinary(512) NOT NULL, \
     record nvarchar(max), version varchar(16) COLLATE Latin1_General_BIN2, token decimal(20, 0), \
     holder varchar(64) COLLATE Latin1_General_BIN2, session bigint, held varchar(64) COLLATE Latin1_General_BIN2, \
     held_by bigint, source nvarchar(300));\n\
     INSERT INTO @want SELECT place, CONVERT(varbinary(512), name, 2), record, version, token, holder, session, held, \
     held_by, source FROM OPENJSON(@P1) WITH (place int, name varchar(1024), record nvarchar(max), version varchar(16), \
     token decimal(20, 0), holder varchar(64), session bigint, held varchar(64), held_by bigint, \
     source nvarchar(300) '$.identity');\n";

/// Finds out which of the sessions in `@holder` are alive. The functions take one name at a time. A session's own lock
/// could be granted to it again, so it is tested by its mode.
const TEST_HOLDERS: &str = "DECLARE @one bigint = (SELECT MIN(session) FROM @holder), @lock nvarchar(255);\n\
     WHILE @one IS NOT NULL BEGIN SET @lock = CONCAT(N'tenure:', @one); \
     IF APPLOCK_MODE('public', @lock, 'Session') = 'Exclusive' \
     OR APPLOCK_TEST('public', @lock, 'Shared', 'Session') = 0 UPDATE @holder SET is_alive = 1 WHERE session = @one; \
     SET @one = (SELECT MIN(session) FROM @holder WHERE session > @one); END;\n";

const HOLDERS: &str = "DECLARE @holder TABLE (session bigint NOT NULL PRIMARY KEY, is_alive bit NOT NULL);\n";

/// Reads seats by their names, with their floors, the identity of the data and the time; for a seat that a session
/// holds, whether that session is alive, when its last heartbeat expires, and its lease in milliseconds. The session is
/// tested after the row was read: so a session that is reported as alive was alive when its row was read.
const READ_ROWS: &str = "DECLARE @row TABLE (place int NOT NULL PRIMARY KEY, record nvarchar(max), \
     version varchar(16), session bigint, token decimal(20, 0), written bigint);\n\
     INSERT INTO @row SELECT want.place, seat.record, seat.version, seat.session, floor.token, seat.written \
     FROM @want AS want LEFT JOIN {seats} AS seat ON seat.name = want.name \
     LEFT JOIN {floors} AS floor ON floor.name = want.name OPTION (FORCE ORDER, LOOP JOIN);\n";

const READ_HOLDERS: &str =
    "INSERT INTO @holder SELECT DISTINCT session, 0 FROM @row AS seat WHERE session IS NOT NULL;\n";

const READ_ANSWER: &str = "SELECT seat.place, seat.record, seat.version, seat.session, \
     CONVERT(varchar(20), COALESCE(seat.token, 0)), seat.written, @now, @identity, holder.is_alive, beat.expires, \
     IIF(ISJSON(beat.value) = 1, CONVERT(bigint, JSON_VALUE(beat.value, '$.lease')), NULL) FROM @row AS seat \
     LEFT JOIN @holder AS holder ON holder.session = seat.session LEFT JOIN {notes} AS beat ON beat.seat = 0x \
     AND beat.kind = 'heartbeat' AND beat.note_key = CONVERT(varbinary(1024), CONVERT(varchar(20), seat.session));";

pub(crate) const LIST: &str = "/* tenure: list */ SELECT name FROM {seats};";

/// Writes the rows that do not exist.
const INSERT: &str = "INSERT INTO {seats} (name, record, version, token, holder, written, session) \
     SELECT want.name, want.record, want.version, want.token, want.holder, @now, want.session \
     FROM @want AS want LEFT JOIN {floors} AS floor WITH (HOLDLOCK) ON floor.name = want.name \
     WHERE @identity = COALESCE(want.source, @identity) AND @identity <> '' AND want.token > COALESCE(floor.token, 0) \
     OPTION (FORCE ORDER, LOOP JOIN);\n";

/// Writes the rows that are as expected. As in all statements about seats, the order of the join makes the server find each
/// row by its key: a scan would wait for the locks of other rows.
const UPDATE: &str = "UPDATE seat SET record = want.record, version = want.version, token = want.token, \
     holder = want.holder, written = @now, session = want.session \
     FROM @want AS want JOIN {seats} AS seat ON seat.name = want.name \
     WHERE {expected} AND @identity = want.source AND @identity <> '' OPTION (FORCE ORDER, LOOP JOIN);\n";

/// The condition of a bid or a release with `mode=lease`: it never replaces a row with a session.
const HAS_VERSION: &str = "seat.version = want.held AND seat.session IS NULL AND want.held_by IS NULL";

/// The condition of a bid or a release with `mode=session`.
const HAS_VERSION_AND_NO_OTHER_SESSION: &str = "seat.version = want.held \
     AND (seat.session = want.held_by OR seat.session IS NULL AND want.held_by IS NULL) \
     AND NOT EXISTS (SELECT 1 FROM @holder AS holder WHERE holder.session = seat.session AND holder.is_alive = 1)";

/// The condition of a renewal with `mode=lease`.
const HAS_HOLDER: &str = "seat.token = want.token AND seat.holder = want.held AND seat.session IS NULL";

/// Shows that the write has happened, and then, for each seat, whether it was written.
const OUTCOME: &str = "SELECT @@ROWCOUNT;\n\
     SELECT want.version, IIF(seat.version = want.version, 1, 0), @identity \
     FROM @want AS want LEFT JOIN {seats} AS seat ON seat.name = want.name OPTION (FORCE ORDER, LOOP JOIN);\n";

/// Ends the batch if this session does not hold its lock: then it is not the session that it was when it was opened.
const OWN_SESSION: &str = "DECLARE @mine nvarchar(255) = CONCAT(N'tenure:', @me), \
     @bell nvarchar(255) = CONCAT(N'tenure:', @me, N':bell'), @granted int;\n\
     IF APPLOCK_MODE('public', @mine, 'Session') <> 'Exclusive' THROW 50117, 'the session has lost its lock', 1;\n";

/// Records a heartbeat of this session, as a note that lasts for a day, with the session's number on the server and its
/// lease in milliseconds.
const BEAT: &str = "DECLARE @key varbinary(1024) = CONVERT(varbinary(1024), CONVERT(varchar(20), @me));\n\
     UPDATE {notes} SET expires = @now + 86400000000 WHERE seat = 0x AND kind = 'heartbeat' AND note_key = @key;\n\
     IF @@ROWCOUNT = 0 INSERT INTO {notes} (seat, kind, note_key, value, expires) \
     SELECT 0x, 'heartbeat', @key, CONCAT('{\"spid\":', @@SPID, ',\"lease\":', @P3, '}'), @now + 86400000000;\n";

/// Wakes the processes that follow seats of this session (`sessions.rs`).
const RING: &str = "IF APPLOCK_MODE('public', @bell, 'Session') <> 'NoLock' \
     EXEC @granted = sp_releaseapplock @Resource = @bell, @LockOwner = 'Session';\n\
     EXEC @granted = sp_getapplock @Resource = @bell, @LockMode = 'Exclusive', @LockOwner = 'Session', \
     @LockTimeout = 250;\nSELECT @granted;";

/// Takes the bell again, if another session held it for too long when it was rung.
const TAKE_BELL: &str = "IF APPLOCK_MODE('public', @bell, 'Session') = 'NoLock' \
     EXEC @granted = sp_getapplock @Resource = @bell, @LockMode = 'Exclusive', @LockOwner = 'Session', \
     @LockTimeout = 0;\n";

const HELD: &str = "SELECT version FROM {seats} WHERE session = @me AND @identity <> '';\n";

/// Removes a seat and its notes. Its token becomes a floor first, and a row with a higher token stays: so a term that
/// begins in between does not lose its token. A floor only rises, so a floor that is read as it was a moment ago keeps a
/// row that could go.
pub(crate) const FORGET: &str = "/* tenure: forget */ DECLARE @name varbinary(512) = CONVERT(varbinary(512), @P1, 2), \
     @most decimal(20, 0) = 18446744073709551615;\n\
     INSERT INTO {floors} (name, token) SELECT name, token FROM {seats} WHERE name = @name AND token < @most;\n\
     UPDATE floor SET token = seat.token FROM {floors} AS floor JOIN {seats} AS seat ON seat.name = floor.name \
     WHERE floor.name = @name AND seat.token > floor.token AND seat.token < @most;\n\
     DELETE seat FROM {seats} AS seat LEFT JOIN {floors} AS floor ON floor.name = seat.name \
     WHERE seat.name = @name AND (seat.token <= floor.token OR seat.token = @most);\n\
     DELETE FROM {notes} WHERE seat = @name;";

/// Returns the batch that reads seats.
pub(crate) fn read() -> String {
    format!(
        "/* tenure: read */ {LOCK_TIMEOUT}{HEAD}{WANT}{READ_ROWS}{HOLDERS}{READ_HOLDERS}{TEST_HOLDERS}{READ_ANSWER}"
    )
}

/// Returns the batch that writes a set of seats in `mode=lease`.
pub(crate) fn write(kind: WriteKind) -> String {
    let (name, write) = match kind {
        WriteKind::New => ("write new", INSERT.to_owned()),
        WriteKind::Next => ("write next", UPDATE.replace("{expected}", HAS_VERSION)),
        WriteKind::Renewal => ("renew", UPDATE.replace("{expected}", HAS_HOLDER)),
    };
    format!("/* tenure: {name} */ {LOCK_TIMEOUT}{HEAD}{WANT}{write}{OUTCOME}")
}

/// Returns the batch that writes a set of seats on a session. The heartbeat comes first: a follower that finds the seat
/// held must not find an old heartbeat. A release of a seat also wakes its followers.
pub(crate) fn write_on_session(set: &WriteSet) -> String {
    let (name, write) = match set.kind {
        WriteKind::New => ("write new on session", INSERT.to_owned()),
        _ => ("write next on session", UPDATE.replace("{expected}", HAS_VERSION_AND_NO_OTHER_SESSION)),
    };
    let releases = set.rows.iter().any(|row| row.write.record.is_vacant());
    let ring = if releases { RING } else { "" };
    format!(
        "/* tenure: {name} */ {LOCK_TIMEOUT}{HEAD}{WANT}{OWN_SESSION}{BEAT}{HOLDERS}\
         INSERT INTO @holder SELECT DISTINCT held_by, 0 FROM @want AS want WHERE held_by <> @me;\n\
         {TEST_HOLDERS}{write}{OUTCOME}{ring}"
    )
}

/// Returns the batch of a heartbeat, which returns the versions of the seats that the session holds.
pub(crate) fn heartbeat() -> String {
    format!("/* tenure: heartbeat */ {LOCK_TIMEOUT}{HEAD}{OWN_SESSION}{HELD}{BEAT}{TAKE_BELL}")
}

/// Returns a batch whose statements wait for a locked row for a sixtieth of the lease at most, and a quarter of a second.
///
/// A call has a fifteenth of the lease. The engine finds one seat of 500 in four calls, each an eighth of the last one. So
/// all other seats have their answers before their time is over.
pub(crate) fn wait_for_rows(batch: &str, lease: Duration) -> String {
    let millis = (lease / 60).as_millis().clamp(1, 250);
    batch.replace("{wait}", &millis.to_string())
}
