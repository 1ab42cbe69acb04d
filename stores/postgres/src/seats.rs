//! Seats as rows: the statements that read and write them, and why they are right.
//!
//! # Correctness argument
//!
//! *The condition and the write are one statement*, and so one transaction: it locks the row if that has the
//! expected version, and writes it if it got the lock. Under `READ COMMITTED`, whoever locks a row that has
//! changed since the statement began tests its condition again on the row as it has become; so of many that
//! expect the same version one gets the lock and writes, and the others find it locked or find another
//! version, and change nothing. (Under a stricter isolation level they may fail with a conflict, which is
//! told as *refused*.) Nobody waits for a row: one that somebody has locked and forgotten would hold up every
//! other seat on the same connection. A new seat is an `INSERT … ON CONFLICT DO NOTHING`, of which the unique
//! index lets one through.
//!
//! *A version* is the random nonce of one write, so no two writes have the same. What callers are handed
//! names the life of the data it was read in, too (the cluster and its timeline), and a write is lost
//! if the server is not in that one: a standby that was promoted may never have seen the row that its
//! nonce was read from, or may have lost what came after it.
//!
//! *Durable before it counts.* The answer comes after the commit, and the commit waits for the disk at
//! least, also where `synchronous_commit` is off: the statement turns it on for its own transaction.
//! That matters for renewals as much as for bids: one that was answered and then lost in a crash would
//! leave a leader counting on a lease that nobody else knows of.
//!
//! *Time* (`mode=lease`): the statement stamps the row with the server's clock while it runs, so after it
//! was sent and before it was answered. The leader counts its lease from the send. What others make of the
//! stamp, and that the clock may step, is the protocol's business.
//!
//! *The lock* (`mode=session`): a row that names a holder is written only by the session that holds the
//! seat's advisory lock, in one statement that takes the lock if the session has not got it, writes on
//! condition of the version, and gives the lock back if nothing was written or if the seat was given up.
//! So the lock is held exactly while the row names its session, and the server frees it when the session
//! ends, whatever ends it. The lock is taken after the statement's snapshot; that does no harm, as the
//! condition is tested on the row as it is then, not as it was in the snapshot. That the lock is given
//! back before the transaction commits does none either: whoever takes it in between finds the row locked.
//!
//! *The floor* of tokens is raised in the same statement and stays when a seat is removed.

use tenure_core::Version;

use crate::schema::{channel, quoted};

/// The statements, for one schema and one way of telling lives of the data apart.
pub(crate) struct Statements {
    /// The seat of this name, its floor, and the time.
    pub(crate) read: String,
    /// Whether the session is alive that the seat of this name is held on.
    pub(crate) read_alive: String,
    pub(crate) insert: String,
    pub(crate) update: String,
    pub(crate) renew: String,
    pub(crate) insert_locked: String,
    pub(crate) update_locked: String,
    pub(crate) heartbeat: String,
    pub(crate) forget: String,
}

/// The columns of every reading.
macro_rules! reading {
    () => {
        "seat.record, seat.version, seat.session, seat.lock_id, floor.token, {identity}, \
         (extract(epoch FROM seat.written) * 1000000)::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8, \
         EXISTS (SELECT 1 FROM {schema}.notes WHERE notes.seat = $1 AND kind = 'request' AND expires > clock_timestamp())"
    };
}

impl Statements {
    pub(crate) fn new(schema: &str, identity: &str) -> Self {
        let fill = |sql: &str| {
            sql.replace("{free}", FREE)
                .replace("{free_or_held}", FREE_OR_HELD)
                .replace("{condition}", CONDITION)
                .replace("{durable}", DURABLE)
                .replace("{floor}", FLOOR)
                .replace("{identity}", identity)
                .replace("{schema}", &quoted(schema))
                .replace("{channel}", &channel(schema))
        };
        let from = "FROM (SELECT) AS one LEFT JOIN {schema}.seats AS seat ON seat.name = $1 \
                    LEFT JOIN {schema}.floors AS floor ON floor.name = $1";
        Self {
            read: fill(&format!("SELECT {} {from}", reading!())),
            // A shared lock on what the holder's session has locked for itself can be had only once that
            // session is over. It is given back at once; nobody else ever wants that lock.
            read_alive: fill(&format!(
                "SELECT {}, CASE WHEN seat.session IS NULL THEN NULL \
                 WHEN pg_try_advisory_lock_shared({SESSION_KEY}) THEN NOT pg_advisory_unlock_shared({SESSION_KEY}) \
                 ELSE true END {from}",
                reading!()
            )),
            insert: fill(&format!(
                "WITH done AS ({INSERT} SELECT $1, $2, $3, $4, clock_timestamp(), NULL, NULL {ON_CONFLICT}), \
                 {{floor}} SELECT {{identity}}, {{durable}}, pg_notify('{{channel}}', $5) FROM done"
            )),
            update: fill(
                "WITH {free}, done AS (UPDATE {schema}.seats SET record = $2, version = $3, token = $4, \
                 written = clock_timestamp() WHERE name = $1 AND version = $6 AND EXISTS (SELECT 1 FROM free) \
                 RETURNING 1), {floor} SELECT {identity}, {durable}, pg_notify('{channel}', $5) FROM done",
            ),
            // Whether it was written, and whether it would have been if nobody else had locked the row.
            renew: fill(
                "WITH {free}, done AS (UPDATE {schema}.seats SET record = $2, version = $3, \
                 written = clock_timestamp() WHERE name = $1 AND version = $6 AND EXISTS (SELECT 1 FROM free) \
                 RETURNING 1) SELECT EXISTS (SELECT 1 FROM done), EXISTS (SELECT 1 FROM {schema}.seats WHERE {condition}), \
                 {durable}",
            ),
            insert_locked: fill(&format!(
                "{LOCK}, done AS ({INSERT} SELECT $1, $2, $3, $4, clock_timestamp(), $8, $9 \
                 FROM lock WHERE lock.taken {ON_CONFLICT}), {{floor}} {UNLOCK}"
            )),
            update_locked: fill(&format!(
                "{LOCK}, {{free_or_held}}, done AS (UPDATE {{schema}}.seats SET record = $2, version = $3, token = $4, \
                 written = clock_timestamp(), session = $8, lock_id = $9 WHERE name = $1 AND version = $11 \
                 AND EXISTS (SELECT 1 FROM free) RETURNING 1), {{floor}} {UNLOCK}"
            )),
            heartbeat: fill(
                "SELECT seat.name, seat.version FROM {schema}.seats AS seat JOIN pg_locks AS held \
                 ON held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted \
                 AND held.pid = pg_backend_pid() \
                 AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND held.classid::int8 << 32 | held.objid::int8 = seat.lock_id \
                 WHERE seat.session = $1",
            ),
            forget: fill(
                "WITH gone AS (DELETE FROM {schema}.seats WHERE name = $1 RETURNING name, token), \
                 notes AS (DELETE FROM {schema}.notes WHERE seat = $1), \
                 floored AS (INSERT INTO {schema}.floors (name, token) SELECT name, token FROM gone \
                 ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE floors.token < excluded.token) \
                 SELECT pg_notify('{channel}', $2) FROM gone",
            ),
        }
    }
}

const INSERT: &str = "INSERT INTO {schema}.seats (name, record, version, token, written, session, lock_id)";

const ON_CONFLICT: &str = "ON CONFLICT (name) DO NOTHING RETURNING 1";

/// That a seat has the expected version (`$6`), in the expected life of the data (`$7`).
const CONDITION: &str = "name = $1 AND version = $6 AND session IS NULL AND {identity} = $7";

/// The row, if it is as expected and nobody else is writing it.
const FREE: &str = "free AS MATERIALIZED (SELECT 1 FROM {schema}.seats WHERE {condition} FOR UPDATE SKIP LOCKED)";

/// The same, with the lock of the seat.
const FREE_OR_HELD: &str = "free AS MATERIALIZED (SELECT 1 FROM {schema}.seats WHERE name = $1 AND version = $11 \
     AND {identity} = $12 AND (SELECT taken FROM lock) FOR UPDATE SKIP LOCKED)";

/// Tokens stay above this, also when the seat is gone.
const FLOOR: &str = "floored AS (INSERT INTO {schema}.floors (name, token) SELECT $1, $4 FROM done \
     ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE floors.token < excluded.token)";

/// For this transaction only.
const DURABLE: &str = "CASE current_setting('synchronous_commit') WHEN 'off' \
     THEN set_config('synchronous_commit', 'local', true) END";

/// The two halves of a session's number, each a positive one of 31 bits.
const SESSION_KEY: &str = "(seat.session >> 32)::int4, (seat.session & 2147483647)::int4";

/// `$6`: whether the lock is still to be taken; `$7`: the lock.
const LOCK: &str = "WITH lock AS MATERIALIZED (SELECT NOT $6 OR pg_try_advisory_lock($7) AS taken)";

/// Gives the lock back if it was taken for nothing, or is of no more use: `$8`, the session, is null in a
/// seat that is given up. From the first seat on, the server ends a session that it has not heard from
/// for `$10`.
const UNLOCK: &str = "SELECT outcome.written, {identity}, {durable}, \
     CASE WHEN outcome.taken AND CASE WHEN outcome.written THEN $8 IS NULL ELSE $6 END THEN pg_advisory_unlock($7) END, \
     CASE WHEN outcome.written AND $8 IS NOT NULL AND $10 IS NOT NULL \
     THEN set_config('idle_session_timeout', $10, false) END, \
     CASE WHEN outcome.written THEN pg_notify('{channel}', $5)::text END \
     FROM (SELECT lock.taken, EXISTS (SELECT 1 FROM done) AS written FROM lock OFFSET 0) AS outcome";

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
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split(':');
        let (nonce, identity, session) = (parts.next()?, parts.next()?, parts.next());
        let session = match session {
            None => None,
            Some(session) => Some(session.parse().ok()?),
        };
        Some(Self { nonce: nonce.to_owned(), identity: identity.to_owned(), session })
    }

    pub(crate) fn version(&self) -> Version {
        Version::new(match self.session {
            None => format!("{}:{}", self.nonce, self.identity),
            Some(session) => format!("{}:{}:{session}", self.nonce, self.identity),
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
