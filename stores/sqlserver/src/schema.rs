//! The tables, and the statements that create them.

use tenure_kit::sql::{MARK, TABLES, VERSION};

/// The schema of the tables, unless the options name another one.
pub const DEFAULT_SCHEMA: &str = "tenure";

/// The columns of the table of seats, by which a table of another program is recognized.
pub(crate) const COLUMNS: [&str; 7] = ["name", "record", "version", "token", "holder", "written", "session"];

/// A text column that compares byte by byte.
const TEXT: &str = "COLLATE Latin1_General_BIN2";

/// Returns the SQL that creates the schema and the tables in the current database, for an administrator to run where the
/// program's login is not allowed to. It is one batch, without `GO`, and safe to run again: existing tables stay as they
/// are. See [`grants_sql`] for the rights of the login.
///
/// Names are binary: a text column would ignore case and spaces at the end. An insert skips rows that exist
/// (`IGNORE_DUP_KEY`), so that one seat of a statement does not fail the others.
pub fn schema_sql(schema: &str) -> String {
    let [seats, floors, notes] = TABLES.map(|table| named(schema, table));
    let [seats_name, floors_name, notes_name] = [&seats, &floors, &notes].map(|table| literal(table));
    let (name, create_schema) = (literal(schema), literal(&format!("CREATE SCHEMA {}", quoted(schema))));
    format!(
        "IF SCHEMA_ID({name}) IS NULL
EXEC ({create_schema});
IF OBJECT_ID({seats_name}, N'U') IS NULL
CREATE TABLE {seats} (
    name varbinary(512) NOT NULL PRIMARY KEY WITH (IGNORE_DUP_KEY = ON),
    record nvarchar(max) NOT NULL,
    version varchar(16) {TEXT} NOT NULL,
    token decimal(20, 0) NOT NULL,
    holder varchar(64) {TEXT},
    written bigint NOT NULL, -- microseconds since 1970 by the clock of the server
    session bigint,
    INDEX seats_session (session)
);
IF OBJECT_ID({floors_name}, N'U') IS NULL
CREATE TABLE {floors} (
    name varbinary(512) NOT NULL PRIMARY KEY WITH (IGNORE_DUP_KEY = ON),
    token decimal(20, 0) NOT NULL
);
IF OBJECT_ID({notes_name}, N'U') IS NULL
CREATE TABLE {notes} (
    seat varbinary(512) NOT NULL,
    kind varchar(16) {TEXT} NOT NULL,
    note_key varbinary(1024) NOT NULL,
    value nvarchar(max) NOT NULL,
    expires bigint NOT NULL, -- microseconds since 1970 by the clock of the server
    PRIMARY KEY NONCLUSTERED (seat, kind, note_key) WITH (IGNORE_DUP_KEY = ON),
    INDEX notes_expires (expires)
);
IF NOT EXISTS (SELECT 1 FROM sys.extended_properties
    WHERE class = 1 AND major_id = OBJECT_ID({seats_name}) AND minor_id = 0 AND name = N'MS_Description')
EXEC sys.sp_addextendedproperty @name = N'MS_Description', @value = N'{MARK}{VERSION}', @level0type = N'SCHEMA',
    @level0name = {name}, @level1type = N'TABLE', @level1name = N'seats';
"
    )
}

/// Returns the SQL that grants a user or a role of the database the rights to use the tables, and nothing else. Run it
/// after [`schema_sql`].
pub fn grants_sql(schema: &str, user: &str) -> String {
    let user = quoted(user);
    TABLES
        .map(|table| format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {user};\n", named(schema, table)))
        .concat()
}

/// Returns the quoted name of a table.
pub(crate) fn named(schema: &str, table: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(table))
}

fn quoted(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// Returns a text as a literal.
pub(crate) fn literal(text: &str) -> String {
    format!("N'{}'", text.replace('\'', "''"))
}
