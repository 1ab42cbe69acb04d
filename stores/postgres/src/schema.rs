//! The tables, and the statements that make them.

use tenure_core::SeatName;

/// The schema that the tables are in, unless another is given.
pub const DEFAULT_SCHEMA: &str = "tenure";

/// The version of the tables. Newer ones are left alone.
pub(crate) const VERSION: u32 = 1;

/// The mark on the tables, with the version behind it.
pub(crate) const MARK: &str = "Tenure, version ";

/// The names of the tables.
pub(crate) const TABLES: [&str; 3] = ["seats", "floors", "notes"];

/// The SQL that makes the tables, for a database administrator to run where the program itself may
/// not. It can be run again.
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

/// The SQL that lets a role use the tables, and no more than that.
pub fn grants_sql(schema: &str, role: &str) -> String {
    let (schema, role) = (quoted(schema), quoted(role));
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};\n"
    )
}

/// Makes the tables, one process after the other: `IF NOT EXISTS` does not keep two from trying at once.
pub(crate) fn creation(schema: &str) -> String {
    format!("SELECT pg_advisory_xact_lock({CREATION_LOCK}); {}", schema_sql(schema))
}

/// Held while tables are made: `lock_id_of` the empty name, which no seat has.
const CREATION_LOCK: i64 = lock_id_of("");

/// The advisory lock that a seat is held on in `mode=session`: the 64-bit FNV-1a hash of
/// `tenure:` and the election's name, as a signed number.
///
/// ```
/// assert_eq!(tenure_postgres::lock_id_of("nightly-jobs"), 266_072_005_090_009_504);
/// ```
pub const fn lock_id_of(election: &str) -> i64 {
    hash(election.as_bytes(), hash(b"tenure:", 0xcbf2_9ce4_8422_2325)).cast_signed()
}

/// The lock that a seat is held on: this one, or that of its name.
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

/// The channel that changes are told on. Not longer than names may be, whatever the schema.
pub(crate) fn channel(schema: &str) -> String {
    format!("tenure_{:016x}", hash(schema.as_bytes(), 0xcbf2_9ce4_8422_2325))
}

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
