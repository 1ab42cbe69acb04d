//! The tables, the statements that create them, and the names of locks.

use tenure_kit::sql::{MARK, TABLES, VERSION};

/// The beginning of the names of the tables, unless the options name another one.
pub const DEFAULT_TABLE_PREFIX: &str = "tenure_";

/// The columns of the tables, by which tables of other programs are recognized.
pub(crate) const COLUMNS: [&[&str]; 3] = [
    &["name", "record", "version", "token", "holder", "written", "session", "lock_name"],
    &["name", "token"],
    &["seat", "kind", "note_key", "value", "expires"],
];

/// A text column that compares byte by byte.
const TEXT: &str = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";

/// Returns the SQL that creates the tables in the current database, for an administrator to run where the program's
/// user is not allowed to. It is safe to run again: existing tables stay as they are. See [`grants_sql`] for the rights
/// of the user.
///
/// Names are binary: a text column would ignore spaces at the end of a name.
pub fn schema_sql(table_prefix: &str) -> String {
    let [seats, floors, notes] = TABLES.map(|table| quoted(&format!("{table_prefix}{table}")));
    format!(
        "CREATE TABLE IF NOT EXISTS {seats} (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    record LONGTEXT {TEXT} NOT NULL,
    version VARCHAR(16) {TEXT} NOT NULL,
    token BIGINT UNSIGNED NOT NULL,
    holder VARCHAR(64) {TEXT},
    written BIGINT NOT NULL COMMENT 'microseconds since 1970 by the clock of the server',
    session BIGINT,
    lock_name VARCHAR(64) {TEXT},
    KEY session (session)
) ENGINE=InnoDB COMMENT='{MARK}{VERSION}';
CREATE TABLE IF NOT EXISTS {floors} (
    name VARBINARY(512) NOT NULL PRIMARY KEY,
    token BIGINT UNSIGNED NOT NULL
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS {notes} (
    seat VARBINARY(512) NOT NULL,
    kind VARCHAR(16) {TEXT} NOT NULL,
    note_key VARBINARY(1024) NOT NULL,
    value LONGTEXT {TEXT} NOT NULL,
    expires BIGINT NOT NULL COMMENT 'microseconds since 1970 by the clock of the server',
    PRIMARY KEY (seat, kind, note_key),
    KEY expires (expires)
) ENGINE=InnoDB;
"
    )
}

/// Returns the SQL that grants a user the rights to use the tables, and nothing else. Run it after [`schema_sql`].
/// `user` is a user as in SQL: `'app'@'%'`.
pub fn grants_sql(database: &str, table_prefix: &str, user: &str) -> String {
    let grant = |table: &str| {
        let (database, table) = (quoted(database), quoted(&format!("{table_prefix}{table}")));
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.{table} TO {user};\n")
    };
    TABLES.map(grant).concat()
}

pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Returns the name of the lock that holds an election's seat in `mode=session`. Use it to find the leader's session:
/// `SELECT IS_USED_LOCK('…')`.
///
/// Locks belong to the whole server, their names have at most 64 characters and ignore case. So the name contains the
/// database and the prefix, and a name that is too long, or has other characters than lower-case letters, digits, `.`,
/// `_` and `-`, is replaced by its 128-bit FNV-1a hash.
///
/// ```
/// assert_eq!(tenure_mysql::lock_name_of("app", "tenure_", "nightly-jobs"), "tenure:app.tenure_:nightly-jobs");
/// assert_eq!(tenure_mysql::lock_name_of("app", "tenure_", "Nightly").len(), 39);
/// ```
pub fn lock_name_of(database: &str, table_prefix: &str, election: &str) -> String {
    let name = format!("tenure:{database}.{table_prefix}:{election}");
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    if name.len() <= 64 && !database.contains('.') && [database, table_prefix, election].concat().bytes().all(is_plain)
    {
        return name;
    }
    let hash = name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("tenure#{hash:032x}")
}
