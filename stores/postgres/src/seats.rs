//! Seats as rows: the statements that read and write them, and why they are right.
//!
//! # Correctness argument
//!
//! *The condition and the write are one statement*, and so one transaction, for all seats that it is about: it locks
//! each row that is as expected, and writes those it got the lock of. Under `READ COMMITTED`, whoever locks a row that
//! has changed since the statement began tests its condition again on the row as it has become; so of many that
//! expect the same version one gets the lock and writes, and the others find it locked or find another
//! version, and change nothing. (Under a stricter isolation level they may fail with a conflict, which is
//! told as *refused*.)
//!
//! *What an answer means.* A statement names the versions that it has written, and a seat is *done* only if its own is
//! named. No two writes have the same version, so what one did is never told to another. Names come with the commit or
//! not at all: rows are handed out when the server has said that it is ready for the next statement, which is after the
//! commit. (Which seats share a call, and from when its time counts, is argued in
//! `tenure-protocol/src/admission.rs`.)
//!
//! *When a statement fails*, all of its transaction is undone, and each seat is told so with the fault that
//! the server's word means; what was on its way when the connection broke is *unknown* to each. A fault
//! that may be of one seat's making (a text that the database cannot hold, a row that somebody else is just inserting)
//! must not be told to the others: then no seat is answered for, and the engine makes smaller calls.
//!
//! *When a call is dropped* before its statement was sent, it never is. After that the statement goes on, and a read
//! that is made later over the same connection sees what it did. A connection that does not answer is replaced, and
//! what is still on its way over it may land after such a read. It does so on its own condition: it takes a seat that
//! nobody has taken since it was asked to, or keeps one in a term that goes on, and does late what it would have done
//! in time.
//!
//! *Nobody waits long for another.* A row that somebody has locked is passed over: one that is locked and forgotten
//! would hold up every other seat on the same connection. A new seat is an `INSERT … ON CONFLICT DO NOTHING`, of which
//! the unique index lets one through. Whoever comes second waits there for the first one's commit, but not long
//! ([`PATIENT`]), and all insert in the order of the names, so that no two wait for each other. A floor is
//! written only by who has its seat's row locked, inserted or deleted, so nobody waits for one at all.
//!
//! *A renewal* (`mode=lease`) is for the holder and the term that the row names, and not for its version: so one whose
//! answer was lost does not cost the next one. No other candidate has the same incarnation, a term has a token of its
//! own, and a seat that was given up names nobody. So a renewal of a term that is over finds no row.
//!
//! *A version* is the random nonce of one write, so no two writes have the same. What callers are handed
//! names the life of the data it was read in, too (the cluster and its timeline), and a write is lost
//! if the server is not in that one: a standby that was promoted may never have seen the row that its
//! nonce was read from, or may have lost what came after it.
//!
//! *Durable before it counts.* The answer comes after the commit, and the commit waits for the disk, and
//! for the synchronous standbys where there are any, also where the role, the database or the server has
//! `synchronous_commit` at `off` or `local`: the statement turns it on for its own transaction.
//! That matters for renewals as much as for bids: one that was answered and then lost in a crash would
//! leave a leader counting on a lease that nobody else knows of.
//!
//! *Time* (`mode=lease`): the statement stamps the row with the server's clock while it runs, so after it
//! was sent and before it was answered. The leader counts its lease from the send. What others make of the
//! stamp, and that the clock may step, is the protocol's business.
//!
//! *The lock* (`mode=session`): a row that names a holder is written only by the session that holds the
//! seat's advisory lock, in one statement that takes the lock if the session has not got it, writes on
//! condition of the version, and gives the lock back if it was taken for nothing or if the seat was given up.
//! Whether the session has got it, the statement asks the server, as a session that takes a lock twice must give it
//! back twice. So the lock is held exactly while the row names its session, and the server frees it when the session
//! ends, whatever ends it. The lock is taken after the statement's snapshot; that does no harm, as the
//! condition is tested on the row as it is then, not as it was in the snapshot. That the lock is given
//! back before the transaction commits does none either: whoever takes it in between finds the row locked.
//! Where the lock and the row disagree after all, as a statement has failed or somebody has removed the row, the lock is
//! given back by a statement of its own (`session.rs`).
//!
//! *The heartbeat* (`mode=session`) names the versions of those rows that name this very session and whose
//! locks it holds. As no two writes have the same version, a seat is still held in the same term if and only if
//! the version of the write that won it is among them.
//!
//! *The floor* of tokens is raised in the same statement and stays when a seat is removed.
//!
//! *Tokens rise across a promotion*, though the standby may not have received the last terms of the old
//! primary. The floor that a reading returns is at least `(timeline - 1) << 32`, where `timeline` is the
//! server's own at that moment. A timeline begins with a promotion (or with a restore to a point in time),
//! and its number is above that of the one it continues. So, as long as fewer than 2^32 terms begin on one
//! timeline, every token that was given out on timeline `t` is at most `t << 32`: the floor of each later
//! timeline is at least that, whatever rows its server has lost. A bid is above the floor of the reading it
//! rests on. It is written only on that reading's timeline: an update tests the life of the data in its
//! version; an insert, which has no version, tests the life of the data that the seat was absent from, and that its token is
//! above the floor of the timeline that it is written on. A database that was never promoted is on timeline 1, and its tokens are 1, 2, 3.
//! Two standbys of one primary that are promoted, at once or one after the other, get the same number if the second
//! has never followed the first: the store's promise excludes that. `pg_upgrade` begins at timeline 1 again, and a
//! role that may not ask for the timeline has a floor of 0 (`handshake.rs`): see the README.

use tenure_core::{Expect, Version};

use crate::handshake::Life;
use crate::schema::{channel, quoted};

/// The statements, for one schema and one way of telling lives of the data apart.
pub(crate) struct Statements {
    /// Seats by their names, their floors, and the time.
    pub(crate) read: String,
    /// The same, and whether the session is alive that each seat is held on.
    pub(crate) read_alive: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    pub(crate) renew: String,
    pub(crate) insert_locked: String,
    pub(crate) update_locked: String,
    pub(crate) heartbeat: String,
    pub(crate) give_back: String,
    pub(crate) forget: String,
}

/// The columns of every reading.
const READING: &str = "want.number, seat.record, seat.version, seat.session, seat.lock_id, greatest(floor.token, life.floor), life.identity, \
     (extract(epoch FROM seat.written) * 1000000)::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8";

/// Of these seats, by their names (`$1`).
const READ_FROM: &str = "FROM life, \
     (SELECT name COLLATE \"C\" AS name, number FROM unnest($1) WITH ORDINALITY AS want (name, number)) AS want \
     LEFT JOIN {schema}.seats AS seat ON seat.name = want.name LEFT JOIN {schema}.floors AS floor ON floor.name = want.name";

impl Statements {
    pub(crate) fn new(schema: &str, life: Life) -> Self {
        let fill = |sql: String| {
            sql.replace("{durable}", DURABLE)
                .replace("{mine}", MINE)
                .replace("{identity}", life.identity)
                .replace("{floor}", life.floor)
                .replace("{schema}", &quoted(schema))
                .replace("{channel}", &channel(schema))
        };
        Self {
            read: fill(format!("WITH {LIFE} SELECT {READING} {READ_FROM}")),
            // A shared lock on what the holder's session has locked for itself can be had only once that
            // session is over. It is given back at once; nobody else ever wants that lock.
            read_alive: fill(format!(
                "WITH {LIFE} SELECT {READING}, CASE WHEN seat.session IS NULL THEN NULL \
                 WHEN pg_try_advisory_lock_shared({SESSION_KEY}) THEN NOT pg_advisory_unlock_shared({SESSION_KEY}) \
                 ELSE true END {READ_FROM}"
            )),
            insert: fill(format!(
                "WITH {LIFE}, {PATIENT}, {WANT_NEW}, done AS ({INSERT} SELECT name, record, version, token, \
                 clock_timestamp(), NULL, NULL FROM want, patient, life WHERE {ABSENT} ORDER BY name {ON_CONFLICT}), {FLOORED} {TOLD}"
            )),
            update: fill(format!(
                "WITH {LIFE}, {PATIENT}, {WANT}, free AS MATERIALIZED (SELECT want.* FROM want, {{schema}}.seats AS seat, life \
                 WHERE seat.name = want.name AND seat.version = want.held AND seat.session IS NULL \
                 AND life.identity = want.identity FOR UPDATE OF seat SKIP LOCKED), \
                 done AS (UPDATE {{schema}}.seats AS seat SET record = free.record, \
                 version = free.version, token = free.token, written = clock_timestamp() FROM free, patient \
                 WHERE seat.name = free.name AND seat.version = free.held \
                 RETURNING seat.name, seat.version, seat.token), {FLOORED} {TOLD}"
            )),
            // Those that were written, and those that would have been if nobody else had locked their rows. A
            // record that names nobody has no holder to match.
            renew: fill(format!(
                "WITH {LIFE}, {WANT}, free AS MATERIALIZED (SELECT want.* FROM want, {{schema}}.seats AS seat, life \
                 WHERE {HELD} AND life.identity = want.identity FOR UPDATE OF seat SKIP LOCKED), \
                 done AS (UPDATE {{schema}}.seats AS seat SET record = want.record, \
                 version = want.version, written = clock_timestamp() FROM free AS want \
                 WHERE {HELD} RETURNING seat.version) \
                 SELECT (SELECT identity FROM life), (SELECT array_agg(version) FROM done), \
                 CASE WHEN (SELECT count(*) FROM done) < (SELECT count(*) FROM want) THEN \
                 (SELECT array_agg(want.version) FROM want, {{schema}}.seats AS seat, life \
                 WHERE {HELD} AND life.identity = want.identity) END, {{durable}}"
            )),
            insert_locked: fill(format!(
                "WITH {LIFE}, {WANT_LOCKED_NEW}, {LOCK}, done AS ({INSERT} SELECT name, record, version, token, \
                 clock_timestamp(), session, lock_id FROM lock AS want, life WHERE taken AND {ABSENT} ORDER BY name {ON_CONFLICT}), {FLOORED} {UNLOCK}"
            )),
            update_locked: fill(format!(
                "WITH {LIFE}, {WANT_LOCKED}, {LOCK}, free AS MATERIALIZED (SELECT lock.* \
                 FROM lock, {{schema}}.seats AS seat, life WHERE seat.name = lock.name AND seat.version = lock.held \
                 AND life.identity = lock.identity AND lock.taken FOR UPDATE OF seat SKIP LOCKED), \
                 done AS (UPDATE {{schema}}.seats AS seat SET record = free.record, version = free.version, \
                 token = free.token, written = clock_timestamp(), session = free.session, lock_id = free.lock_id \
                 FROM free WHERE seat.name = free.name AND seat.version = free.held \
                 RETURNING seat.name, seat.version, seat.token), {FLOORED} {UNLOCK}"
            )),
            // `IS TRUE` has the locks looked up in a hash, where a join may compare each with every row.
            heartbeat: fill(
                "SELECT array_agg(seat.version) FROM {schema}.seats AS seat WHERE seat.session = $1 \
                 AND (seat.lock_id IN ({mine})) IS TRUE"
                    .to_owned(),
            ),
            // Locks that this session (`$1`) holds though no row says so, of these (`$2`) or of all.
            give_back: fill(
                "SELECT pg_advisory_unlock(key) FROM (SELECT key FROM ({mine}) AS mine \
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

/// The life of the data and the floor of its tokens, asked for once.
const LIFE: &str = "life AS MATERIALIZED (SELECT {identity} AS identity, {floor} AS floor)";

/// How long to wait for another who is just writing what we would, in milliseconds. For this transaction
/// only, and set before anything is written.
pub(crate) const PATIENT: &str =
    "patient AS MATERIALIZED (SELECT set_config('lock_timeout', '100', true) AS lock_timeout)";

/// Each with the life of the data that the seat was absent from, if that is known.
const WANT_NEW: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, identity \
     FROM unnest($1, $2, $3, $4, $5) AS want (name, record, version, token, identity))";

/// Each with the version or the holder that it must have, and the life of the data that this was read in.
const WANT: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, held, identity \
     FROM unnest($1, $2, $3, $4, $5, $6) AS want (name, record, version, token, held, identity))";

/// The same with the seat's lock, and the session that is to hold it; `$7` is that session's lease.
const WANT_LOCKED_NEW: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, \
     key, session, CASE WHEN session IS NOT NULL THEN key END AS lock_id, \
     identity FROM unnest($1, $2, $3, $4, $5, $6, $8) AS want (name, record, version, token, key, session, identity))";

const WANT_LOCKED: &str = "want AS MATERIALIZED (SELECT name COLLATE \"C\" AS name, record, version, token, \
     key, session, CASE WHEN session IS NOT NULL THEN key END AS lock_id, \
     held, identity FROM unnest($1, $2, $3, $4, $5, $6, $8, $9) \
     AS want (name, record, version, token, key, session, held, identity))";

const INSERT: &str = "INSERT INTO {schema}.seats (name, record, version, token, written, session, lock_id)";

const ON_CONFLICT: &str = "ON CONFLICT (name) DO NOTHING RETURNING name, version, token";

/// That a seat was read to be absent from this very data, and its token is above the floor.
const ABSENT: &str = "want.token > life.floor AND (want.identity IS NULL OR want.identity = life.identity)";

/// That a seat names this holder and term.
const HELD: &str = "seat.name = want.name AND seat.token = want.token AND seat.session IS NULL \
     AND seat.record::json #>> '{holder,incarnation}' = want.held";

/// Tokens stay above this, also when the seat is gone.
const FLOORED: &str = "floored AS (INSERT INTO {schema}.floors (name, token) SELECT name, token FROM done ORDER BY name \
     ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE floors.token < excluded.token)";

/// For this transaction only.
const DURABLE: &str = "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') \
     THEN set_config('synchronous_commit', 'on', true) END";

/// The versions of those that were written; whoever listens is told.
const TOLD: &str = "SELECT (SELECT identity FROM life), array_agg(version), NULL::text[], count(told), min(durable) \
     FROM (SELECT version, pg_notify('{channel}', 'w' || version || name)::text AS told, {durable} AS durable FROM done OFFSET 0) AS told";

/// The two halves of a session's number, each a positive one of 31 bits.
const SESSION_KEY: &str = "(seat.session >> 32)::int4, (seat.session & 2147483647)::int4";

/// The locks of seats that this very session holds.
const MINE: &str = "SELECT classid::int8 << 32 | objid::int8 AS key FROM pg_locks \
     WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = pg_backend_pid()";

/// Takes the locks that this session has not got, and can be had.
const LOCK: &str = "lock AS MATERIALIZED (SELECT want.*, CASE WHEN had THEN true ELSE pg_try_advisory_lock(key) END AS taken \
     FROM (SELECT want.*, (key IN ({mine})) IS TRUE AS had FROM want OFFSET 0) AS want)";

/// Gives back each lock that was taken for nothing, or is of no more use, as in a seat that is given up.
/// From the first seat on, the server ends a session that it has not heard from for `$7`.
const UNLOCK: &str = "SELECT (SELECT identity FROM life), array_agg(version) FILTER (WHERE written), NULL::text[], \
     count(unlocked), count(told), min(durable), \
     CASE WHEN bool_or(written AND session IS NOT NULL) AND $7 IS NOT NULL \
     THEN set_config('idle_session_timeout', $7, false) END \
     FROM (SELECT version, session, written, {durable} AS durable, \
     CASE WHEN taken AND CASE WHEN written THEN session IS NULL ELSE NOT had END THEN pg_advisory_unlock(key) END AS unlocked, \
     CASE WHEN written THEN pg_notify('{channel}', 'w' || version || name)::text END AS told \
     FROM (SELECT lock.*, version IN (SELECT version FROM done) AS written FROM lock OFFSET 0) AS outcome OFFSET 0) AS outcome";

/// What a version means to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Of the write.
    pub(crate) nonce: String,
    /// The life of the data.
    pub(crate) identity: String,
    /// The session that it is held on.
    pub(crate) session: Option<i64>,
}

impl Mark {
    /// What a write expects of its seat, if that is any version.
    pub(crate) fn of(expect: &Expect) -> Option<Self> {
        match expect {
            Expect::Absent(_) => None,
            Expect::Version(version) | Expect::Held(version) => Self::parse(version),
        }
    }

    /// `None` if it is not as we write it: then it never was the version of a seat.
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split(':');
        let (nonce, identity, session) = (parts.next()?, parts.next()?, parts.next());
        let session = match session {
            None => None,
            Some(session) => Some(i64::from_str_radix(session, 16).ok()?),
        };
        let mark = Self { nonce: nonce.to_owned(), identity: identity.to_owned(), session };
        Some(mark).filter(|mark| mark.version() == *version)
    }

    /// The nonce as a number, as those have it that we have written.
    pub(crate) fn number(&self) -> Option<u64> {
        u64::from_str_radix(&self.nonce, 16).ok()
    }

    pub(crate) fn version(&self) -> Version {
        Version::new(match self.session {
            None => format!("{}:{}", self.nonce, self.identity),
            Some(session) => format!("{}:{}:{session:016x}", self.nonce, self.identity),
        })
    }
}

/// The nonce of a write, as it stands in a row.
pub(crate) fn nonce_of(record: &tenure_core::Record) -> String {
    format!("{:016x}", record.nonce)
}

/// A token as the database has it.
pub(crate) fn number_of(token: tenure_core::Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_taken_for_one_only_as_it_was_written() {
        for session in [None, Some(7), Some(i64::MAX)] {
            let mark = Mark { nonce: "00c0ffee00c0ffee".into(), identity: "7708.00000001".into(), session };
            assert_eq!(Mark::parse(&mark.version()), Some(mark.clone()));
            for more in [":", "0", ":0", ":0000000000000007"] {
                let odd = Mark::parse(&Version::new(format!("{}{more}", mark.version().as_str())));
                assert_ne!(odd, Some(mark.clone()), "{more}");
                assert!(session.is_none() || odd.is_none(), "{more}: {odd:?}");
            }
        }
    }
}
