//! Seats as rows: the statements that read and write them, and the argument why they are correct.
//!
//! # Correctness argument
//!
//! *One statement has both the condition and the write*, for all of its seats, so both are in one transaction.
//! The statement locks each row that is as expected, and writes the rows that it locked. Under `READ COMMITTED`,
//! a statement that locks a row which changed since the statement began tests its condition again, on the new
//! row. So of several statements that expect the same version, one locks the row and writes it. The others find
//! the row locked or find another version, and change nothing. (Under a stricter isolation level they may fail
//! with a conflict, which is reported as *refused*.)
//!
//! *The meaning of an answer.* A statement returns the versions that it has written, and a seat is *done* only if
//! its own version is among them. No two writes have the same version, so a seat is never *done* because of
//! another write. The versions arrive only if the transaction commits: the driver returns rows after the server
//! has reported that it is ready for the next statement, which is after the commit.
//! (`tenure-protocol/src/admission.rs` argues which seats share a call, and from when its time counts.)
//!
//! *A statement that fails* is rolled back as a whole, and each of its seats gets the fault that the server's
//! error means. If the connection breaks while a statement is in flight, its outcome is *unknown* for each seat.
//! A fault that a single seat may have caused (a text that the database cannot store, a row that another
//! transaction is inserting) must not be reported to the other seats. In that case no seat gets an answer, and
//! the engine makes smaller calls.
//!
//! *A call that is dropped* before its statement is sent is never sent. After the send, the statement runs to its
//! end, and a later read on the same connection sees its effect. A connection that does not answer is replaced,
//! and a statement in flight on the old connection may take effect after such a read. It then still tests its own
//! condition: it takes a seat that no other candidate has taken since the read that the bid rests on, or it keeps
//! a seat in a term that is not over. So it does late what it would have done in time.
//!
//! *No statement waits long for another transaction.* A statement skips a row that another transaction has
//! locked: a row that is locked and forgotten would otherwise delay every seat on the connection. A new seat is
//! an `INSERT … ON CONFLICT DO NOTHING`, after an insert of its floor, and the unique indexes admit one of several.
//! A later insert waits for the commit of the first one, but only briefly ([`TIMEOUT`]), and all statements insert
//! in the order of the names, so that no two wait for each other. The floor of a seat that exists is written only by
//! a transaction that has locked or deleted its row. It can wait for an insert that began before the row existed, and
//! that waits for this row: again only until that insert times out.
//!
//! *A renewal* (`mode=lease`) is conditional on the holder and the term in the row, and not on its version. So a
//! renewal whose answer was lost does not make the next renewal fail. No other candidate has the same
//! incarnation, each term has its own token, and the row of a released seat names no holder. So a renewal of a
//! term that is over matches no row.
//!
//! *A version* is the random nonce of one write, so no two writes have the same version. The version that callers see
//! also contains the identity of the data that it was read from: the cluster and its timeline. A write is lost if the
//! server's data has another identity. A promoted standby may never have received the row that has the nonce, or may
//! lack later writes to it.
//!
//! *A write is durable before it counts.* The answer comes after the commit, and the commit waits for the disk,
//! and for the synchronous standbys if there are any. This holds even if the role, the database or the server
//! sets `synchronous_commit` to `off` or `local`: the statement turns it on for its own transaction. Renewals
//! need this as much as bids do. If a renewal were answered and then lost in a crash, the leader would count on a
//! lease that no other candidate knows of.
//!
//! *Time* (`mode=lease`). The statement stamps the row with the server's clock while it runs: after its send, and
//! before the receipt of its answer. The leader counts its lease from the send. The protocol decides how
//! followers use the stamp, and accounts for a clock that steps.
//!
//! *The lock* (`mode=session`). Only the session that holds the seat's advisory lock writes a row that names a
//! holder. One statement takes the lock if the session does not hold it, writes on condition of the version, and
//! releases the lock if it took the lock but did not write, or if the write releases the seat. The statement
//! reads from the server whether the session holds the lock, as a session that takes a lock twice must release it
//! twice. So the session holds the lock exactly while the row names the session, and the server frees the lock
//! when the session ends, for whatever reason. The statement takes the lock after its snapshot; this is safe, as
//! it tests the condition on the current row and not on the row in the snapshot. It releases the lock before the
//! transaction commits; this is safe too, as another session that takes the lock in between finds the row locked.
//! If the lock and the row disagree nevertheless, because a statement failed or the row was removed by hand, a
//! separate statement releases the lock (`tenure_kit::sql`).
//!
//! *The floor* of tokens is raised in the same statement, and stays when the seat is removed. A new seat is inserted
//! only if the statement has raised its floor to its token, from below. `ON CONFLICT DO UPDATE` tests that on the
//! floor as last committed, even if that is newer than the snapshot of the statement, and keeps it locked until the
//! commit. So a bid that was sent before a seat was led and removed, and arrives after that, is lost if a removed term
//! had its token or a higher one. If the insert then finds a row, the bid is lost as well, and the floor is at a token
//! that no term has, which does no harm.
//!
//! *Tokens rise across a promotion*, although the standby may not have received the last terms of the old
//! primary. The floor that a reading returns is at least `(timeline - 1) << 32`, where `timeline` is the server's
//! timeline at that moment. A promotion (or a restore to a point in time) begins a timeline, whose number is above
//! that of the timeline it continues. So, as long as fewer than 2^32 terms begin on one timeline, every token
//! that is issued on timeline `t` is at most `t << 32`, and the floor of each later timeline is at least that,
//! whichever rows its server has lost. A bid is above the floor of the reading that it rests on. It is written
//! only on the timeline of that reading: an update tests the identity of the data in its version. An insert has
//! no version: it tests the identity of the data in which the seat was absent, and that its token is above the
//! floor of the timeline on which it is written. A database that was never promoted is on timeline 1, and its
//! tokens are 1, 2, 3. Two standbys of one primary that are promoted, at once or one after the other, get the
//! same number if the second never followed the first; the store's promises exclude that. `pg_upgrade` restarts
//! at timeline 1, and a role that is not allowed to read the timeline has a floor of 0 (`handshake.rs`): see the
//! README.

use crate::handshake::IdentitySql;
use crate::schema::{channel, quoted};

/// The statements, for one schema and one way to identify the data.
pub(crate) struct Statements {
    /// Reads seats by their names, with their floors and the server's time.
    pub(crate) read: String,
    /// Reads the same, and whether the session that holds each seat is alive.
    pub(crate) read_alive: String,
    pub(crate) list: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    pub(crate) renew: String,
    pub(crate) insert_locked: String,
    pub(crate) update_locked: String,
    pub(crate) heartbeat: String,
    pub(crate) release_leftovers: String,
    pub(crate) forget: String,
}

/// The columns of a reading.
const READING: &str = "want.number, seat.record, seat.version, seat.session, seat.lock_id, greatest(floor.token, data.floor), data.identity, \
     (extract(epoch FROM seat.written) * 1000000)::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8";

/// The tables of a reading, for the seats with the names `$1`.
const READ_FROM: &str = "FROM data, \
     (SELECT name COLLATE \"C\" AS name, number FROM unnest($1) WITH ORDINALITY AS want (name, number)) AS want \
     LEFT JOIN {schema}.seats AS seat ON seat.name = want.name LEFT JOIN {schema}.floors AS floor ON floor.name = want.name";

impl Statements {
    pub(crate) fn new(schema: &str, data: IdentitySql) -> Self {
        let fill = |sql: String| {
            sql.replace("{durable}", DURABLE)
                .replace("{sent}", SENT)
                .replace("{holder}", &holder_in("record"))
                .replace("{holder in seat}", &holder_in("seat.record"))
                .replace("{own_locks}", OWN_LOCKS)
                .replace("{identity}", data.identity)
                .replace("{floor}", data.floor)
                .replace("{schema}", &quoted(schema))
                .replace("{channel}", &channel(schema))
        };
        Self {
            read: fill(format!("WITH {DATA} SELECT {READING} {READ_FROM}")),
            list: fill("SELECT name FROM {schema}.seats".to_owned()),
            // The holder's session has its own key locked exclusively, so a shared lock on that key succeeds only
            // after the session has ended. The shared lock is released at once; no session ever locks that key again.
            read_alive: fill(format!(
                "WITH {DATA} SELECT {READING}, CASE WHEN seat.session IS NULL THEN NULL \
                 WHEN pg_try_advisory_lock_shared({SESSION_KEY}) THEN NOT pg_advisory_unlock_shared({SESSION_KEY}) \
                 ELSE true END {READ_FROM}"
            )),
            insert: fill(format!(
                "WITH {DATA}, {TIMEOUT}, {WANT_NEW}, \
                 floored AS ({INSERT_FLOOR} FROM want, timeout, data WHERE {ABSENT} {IF_RAISED}), \
                 done AS ({INSERT} SELECT name, record, version, token, clock_timestamp(), NULL, NULL \
                 FROM want WHERE {FLOORED} {ON_CONFLICT}) {NOTIFY}"
            )),
            update: fill(format!(
                "WITH {DATA}, {TIMEOUT}, {WANT}, free AS MATERIALIZED (SELECT want.* FROM want, {{schema}}.seats AS seat, data \
                 WHERE seat.name = want.name AND seat.version = want.held AND seat.session IS NULL \
                 AND data.identity = want.identity FOR UPDATE OF seat SKIP LOCKED), \
                 done AS (UPDATE {{schema}}.seats AS seat SET record = free.record, \
                 version = free.version, token = free.token, written = clock_timestamp() FROM free, timeout \
                 WHERE seat.name = free.name AND seat.version = free.held \
                 RETURNING seat.name, seat.record, seat.version, seat.token), {RAISE_FLOORS} {NOTIFY}"
            )),
            // Returns the versions that were written, and those that were not written only because another
            // transaction has locked their rows. A record without a holder matches no row.
            renew: fill(format!(
                "WITH {DATA}, {WANT}, free AS MATERIALIZED (SELECT want.* FROM want, {{schema}}.seats AS seat, data \
                 WHERE {HELD} AND data.identity = want.identity FOR UPDATE OF seat SKIP LOCKED), \
                 done AS (UPDATE {{schema}}.seats AS seat SET record = want.record, \
                 version = want.version, written = clock_timestamp() FROM free AS want \
                 WHERE {HELD} RETURNING seat.version) \
                 SELECT (SELECT identity FROM data), (SELECT array_agg(version) FROM done), \
                 CASE WHEN (SELECT count(*) FROM done) < (SELECT count(*) FROM want) THEN \
                 (SELECT array_agg(want.version) FROM want, {{schema}}.seats AS seat, data \
                 WHERE {HELD} AND data.identity = want.identity) END, {{durable}}"
            )),
            insert_locked: fill(format!(
                "WITH {DATA}, {WANT_LOCKED_NEW}, {LOCK}, \
                 floored AS ({INSERT_FLOOR} FROM lock AS want, data WHERE taken AND {ABSENT} {IF_RAISED}), \
                 done AS ({INSERT} SELECT name, record, version, token, clock_timestamp(), session, lock_id \
                 FROM lock WHERE {FLOORED} {ON_CONFLICT}) {UNLOCK}"
            )),
            update_locked: fill(format!(
                "WITH {DATA}, {WANT_LOCKED}, {LOCK}, free AS MATERIALIZED (SELECT lock.* \
                 FROM lock, {{schema}}.seats AS seat, data WHERE seat.name = lock.name AND seat.version = lock.held \
                 AND data.identity = lock.identity AND lock.taken FOR UPDATE OF seat SKIP LOCKED), \
                 done AS (UPDATE {{schema}}.seats AS seat SET record = free.record, version = free.version, \
                 token = free.token, written = clock_timestamp(), session = free.session, lock_id = free.lock_id \
                 FROM free WHERE seat.name = free.name AND seat.version = free.held \
                 RETURNING seat.name, seat.version, seat.token), {RAISE_FLOORS} {UNLOCK}"
            )),
            // With `IS TRUE` the planner looks locks up in a hash; with a join it may compare each lock with
            // every row.
            heartbeat: fill(
                "SELECT array_agg(seat.version) FROM {schema}.seats AS seat WHERE seat.session = $1 \
                 AND (seat.lock_id IN ({own_locks})) IS TRUE"
                    .to_owned(),
            ),
            // Releases locks that this session (`$1`) holds but no row names: those in `$2`, or all if it is null.
            release_leftovers: fill(
                "SELECT pg_advisory_unlock(key) FROM (SELECT key FROM ({own_locks}) AS mine \
                 WHERE ($2 IS NULL OR key = ANY ($2)) AND key NOT IN \
                 (SELECT lock_id FROM {schema}.seats WHERE session = $1 AND lock_id IS NOT NULL) OFFSET 0) AS left_over"
                    .to_owned(),
            ),
            forget: fill(
                "WITH gone AS (DELETE FROM {schema}.seats WHERE name = $1 RETURNING name, token), \
                 notes AS (DELETE FROM {schema}.notes WHERE seat = $1), \
                 floored AS (INSERT INTO {schema}.floors (name, token) SELECT name, token FROM gone \
                 WHERE token < 9223372036854775807 ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE floors.token < excluded.token) \
                 SELECT pg_notify('{channel}', $2) FROM gone"
                    .to_owned(),
            ),
        }
    }
}

/// The identity of the server's data and the floor of its tokens, evaluated once.
const DATA: &str = "data AS MATERIALIZED (SELECT {identity} AS identity, {floor} AS floor)";

/// Limits the wait for another transaction that is writing the same row to 100 ms. It applies to this transaction
/// only, and is set before anything is written.
pub(crate) const TIMEOUT: &str =
    "timeout AS MATERIALIZED (SELECT set_config('lock_timeout', '100', true) AS lock_timeout)";

/// New seats, each with the identity of the data in which it was absent, if that is known.
const WANT_NEW: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, identity \
     FROM unnest($1, $2, $3, $4, $5) AS want (name, record, version, token, identity))";

/// Existing seats, each with the version or the holder that its row must have, and the identity of the data in which
/// that was read.
const WANT: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, held, identity \
     FROM unnest($1, $2, $3, $4, $5, $6) AS want (name, record, version, token, held, identity))";

/// New seats, each with the key of its lock and the session that will hold it. `$7` is the session's idle time-out.
const WANT_LOCKED_NEW: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, \
     key, session, CASE WHEN session IS NOT NULL THEN key END AS lock_id, \
     identity FROM unnest($1, $2, $3, $4, $5, $6, $8) AS want (name, record, version, token, key, session, identity))";

/// Existing seats, with the same columns and those of [`WANT`].
const WANT_LOCKED: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, \
     key, session, CASE WHEN session IS NOT NULL THEN key END AS lock_id, \
     held, identity FROM unnest($1, $2, $3, $4, $5, $6, $8, $9) \
     AS want (name, record, version, token, key, session, held, identity))";

const INSERT: &str = "INSERT INTO {schema}.seats (name, record, version, token, written, session, lock_id)";

const ON_CONFLICT: &str = "ORDER BY name ON CONFLICT (name) DO NOTHING RETURNING name, record, version, token";

/// The condition that the seat was absent in this data and is absent now, and that its token is above the floor of the
/// data.
const ABSENT: &str = "want.token > data.floor AND (want.identity IS NULL OR want.identity = data.identity) \
     AND NOT EXISTS (SELECT FROM {schema}.seats AS seat WHERE seat.name = want.name)";

const INSERT_FLOOR: &str = "INSERT INTO {schema}.floors (name, token) SELECT want.name, want.token";

/// Raises a floor that is below the token. Returns the names of the seats whose floors were raised.
const IF_RAISED: &str = "ORDER BY want.name ON CONFLICT (name) DO UPDATE SET token = excluded.token \
     WHERE floors.token < excluded.token RETURNING name";

/// The condition that this statement has raised the floor of the seat.
const FLOORED: &str = "name IN (SELECT name FROM floored)";

/// The condition that the row names this holder and term.
const HELD: &str = "seat.name = want.name AND seat.token = want.token AND seat.session IS NULL \
     AND {holder in seat} = want.held";

/// Raises the floors of the rows that were updated. Floors stay when a seat is removed.
const RAISE_FLOORS: &str = "floored AS (INSERT INTO {schema}.floors (name, token) SELECT name, token FROM done ORDER BY name \
     ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE floors.token < excluded.token)";

/// Makes the commit wait for the disk, in this transaction only.
const DURABLE: &str = "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') \
     THEN set_config('synchronous_commit', 'on', true) END";

/// Notifies the listening connections of the new holder and term of a seat. A release says what a read of the seat would
/// return, so that the next leader need not read it. A payload must be shorter than 8,000 bytes; a name has at most 512.
///
/// Only a release says the version, because every user of the database can listen to all channels and notify them. A
/// release that a user made up takes no seat from its leader, as the version of a held seat cannot be known without reading
/// the table. But the seat then looks as if it had gone backwards, so candidates leave it alone for a lease.
const SENT: &str = "pg_notify('{channel}', \
     CASE WHEN {holder} IS NULL AND octet_length(record) < 7000 \
     THEN 'v' || version || name || E'\\n' || (SELECT identity FROM data) || E'\\n' || record \
     ELSE 'w' || coalesce({holder}, '-') || ' ' || token || ' ' || name END)::text";

/// Returns the versions that were written, and notifies the listening connections.
const NOTIFY: &str = "SELECT (SELECT identity FROM data), array_agg(version), NULL::text[], count(sent), min(durable) \
     FROM (SELECT version, {sent} AS sent, {durable} AS durable FROM done OFFSET 0) AS notified";

/// The two halves of a session's number, each of 31 bits.
const SESSION_KEY: &str = "(seat.session >> 32)::int4, (seat.session & 2147483647)::int4";

/// The keys of the seats' locks that this session holds.
const OWN_LOCKS: &str = "SELECT classid::int8 << 32 | objid::int8 AS key FROM pg_locks \
     WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = pg_backend_pid()";

/// Takes the locks that this session does not hold yet, where they are free.
const LOCK: &str = "lock AS MATERIALIZED (SELECT want.*, CASE WHEN had THEN true ELSE pg_try_advisory_lock(key) END AS taken \
     FROM (SELECT want.*, (key IN ({own_locks})) IS TRUE AS had FROM want OFFSET 0) AS want)";

/// Releases each lock that was taken without a write, or whose seat was released. Once the session holds a seat,
/// sets its idle time-out to `$7`: the server ends the session after that much silence.
const UNLOCK: &str = "SELECT (SELECT identity FROM data), array_agg(version) FILTER (WHERE written), NULL::text[], \
     count(unlocked), count(sent), min(durable), \
     CASE WHEN bool_or(written AND session IS NOT NULL) AND $7 IS NOT NULL \
     THEN set_config('idle_session_timeout', $7, false) END \
     FROM (SELECT version, session, written, {durable} AS durable, \
     CASE WHEN taken AND CASE WHEN written THEN session IS NULL ELSE NOT had END THEN pg_advisory_unlock(key) END AS unlocked, \
     CASE WHEN written THEN {sent} END AS sent \
     FROM (SELECT lock.*, version IN (SELECT version FROM done) AS written FROM lock OFFSET 0) AS outcome OFFSET 0) AS outcome";

/// Returns the SQL for the holder that a record names, or null. PostgreSQL cannot take JSON with `\u0000` apart, which the
/// metadata of a candidate can have, so another character takes its place.
fn holder_in(record: &str) -> String {
    format!(r"replace({record}, E'\\u0000', E'\\u0001')::json #>> '{{holder,incarnation}}'")
}

/// Returns a token as a `bigint`.
pub(crate) fn number_of(token: tenure_core::Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}
