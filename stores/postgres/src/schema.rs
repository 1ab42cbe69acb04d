//! The tables, the statements that create them, and the keys of advisory locks.

use tenure_core::SeatName;
use tenure_kit::sql::{MARK, VERSION};

/// The columns of the table of seats, by which a table of another program is recognized.
pub(crate) const COLUMNS: [&str; 7] = ["name", "record", "version", "token", "written", "session", "lock_id"];

/// The schema of the tables, unless the options name another one.
pub const DEFAULT_SCHEMA: &str = "tenure";

/// Returns the SQL that creates the schema and its tables, for an administrator to run where the program's role
/// is not allowed to. It is safe to run again: existing tables stay as they are. See [`grants_sql`] for the
/// rights of the role.
pub fn schema_sql(schema: &str) -> String {
    let name = quoted(schema);
    format!(
        r#"CREATE SCHEMA IF NOT EXISTS {name};
CREATE TABLE IF NOT EXISTS {name}.seats (
    name text COLLATE "C" PRIMARY KEY,
    record text NOT NULL,
    version text NOT NULL,
    token bigint NOT NULL,
    written timestamptz NOT NULL,
    session bigint,
    lock_id bigint
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS seats_session ON {name}.seats (session) WHERE session IS NOT NULL;
CREATE TABLE IF NOT EXISTS {name}.floors (
    name text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS {name}.notes (
    seat text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text NOT NULL,
    lifetime bigint NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (seat, kind, key)
);
CREATE INDEX IF NOT EXISTS notes_expiry ON {name}.notes (expires);
COMMENT ON TABLE {name}.seats IS '{MARK}{VERSION}';
"#
    )
}

/// Returns the SQL that grants a role the rights to use the tables, and nothing else. Run it after [`schema_sql`].
pub fn grants_sql(schema: &str, role: &str) -> String {
    let (schema, role) = (quoted(schema), quoted(role));
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};\n"
    )
}

/// Returns the SQL that creates the tables under a lock: `IF NOT EXISTS` alone fails if two processes create them at
/// once.
pub(crate) fn creation(schema: &str) -> String {
    format!("SELECT pg_advisory_xact_lock({CREATION_LOCK}); {}", schema_sql(schema))
}

/// The advisory lock that is held while tables are created: `lock_id_of` the empty name, which no seat has.
const CREATION_LOCK: i64 = lock_id_of("");

/// Returns the key of the advisory lock that holds an election's seat in `mode=session`: the 64-bit FNV-1a hash of
/// `tenure:` and the election's name, as a signed number. Use it to find the leader's session in `pg_locks`.
///
/// ```
/// assert_eq!(tenure_postgres::lock_id_of("nightly-jobs"), 266_072_005_090_009_504);
/// ```
pub const fn lock_id_of(election: &str) -> i64 {
    hash(election.as_bytes(), hash(b"tenure:", 0xcbf2_9ce4_8422_2325)).cast_signed()
}

/// Returns the key of a seat's lock: the `lock_id` of the options if there is one, otherwise the hash of the name.
pub(crate) fn lock_of(seat: &SeatName, lock_id: Option<i64>) -> i64 {
    lock_id.unwrap_or_else(|| lock_id_of(seat.as_str()))
}

const fn hash(bytes: &[u8], mut hash: u64) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

/// Returns the channel of notifications. It is a hash, as a schema's name may be as long as a channel's name can be.
pub(crate) fn channel(schema: &str) -> String {
    format!("tenure_{:016x}", hash(schema.as_bytes(), 0xcbf2_9ce4_8422_2325))
}

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
