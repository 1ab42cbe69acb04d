//! The first statements on a connection: they find out whether the server is recent enough, whether the database accepts
//! writes, and whether the tables exist.

use tenure_core::StoreError;
use tenure_kit::socket::Address;
use tenure_kit::sql::{self, TABLES};

use crate::connection::{Driver, number, run_plain, text};
use crate::errors::{self, Failed};
use crate::options::SqlServerOptions;
use crate::schema::{self, literal, named};

/// A server that passed the handshake.
pub(crate) struct Server {
    /// Whether a commit waits for the disk.
    pub(crate) is_durable: bool,
    /// Whether the store only reads, and no candidate has created the tables yet: then there are no seats.
    pub(crate) is_vacant: bool,
    schema: String,
}

impl Server {
    /// Returns statements with the names of the tables.
    pub(crate) fn sql(&self, sql: &str) -> String {
        TABLES
            .iter()
            .fold(sql.to_owned(), |sql, table| sql.replace(&format!("{{{table}}}"), &named(&self.schema, table)))
    }
}

/// The settings of every connection, and the version of the server. The database is found by its name, as its number in this
/// view is another one on Azure. A batch ends at its first error (`XACT_ABORT`), each
/// statement is a transaction of its own, and a statement that waits for a row gives up after a quarter of a second.
const SETTINGS: &str = "/* tenure: settings */ SET NOCOUNT ON; SET XACT_ABORT ON; SET IMPLICIT_TRANSACTIONS OFF; \
     SET LOCK_TIMEOUT 250; SET TEXTSIZE 2147483647; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT, CONCAT_NULL_YIELDS_NULL, QUOTED_IDENTIFIER ON; \
     SELECT CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion')), compatibility_level, \
     CONVERT(nvarchar(60), DATABASEPROPERTYEX(name, 'Updateability')) FROM sys.databases WHERE name = DB_NAME()";

/// The user; how many of the tables exist; the mark of the first one, and its columns; whether commits wait for the disk.
const FACTS: &str = "/* tenure: facts */ SELECT USER_NAME(), (SELECT COUNT(*) FROM sys.tables \
     WHERE schema_id = SCHEMA_ID({schema}) AND name IN ('seats', 'floors', 'notes')), \
     (SELECT CONVERT(nvarchar(200), value) FROM sys.extended_properties WHERE class = 1 \
     AND major_id = OBJECT_ID({table}) AND minor_id = 0 AND name = 'MS_Description'), \
     (SELECT delayed_durability FROM sys.databases WHERE name = DB_NAME()); \
     SELECT LOWER(name) FROM sys.columns WHERE object_id = OBJECT_ID({table})";

/// The lowest level of a database that has `OPENJSON`.
const COMPATIBILITY: i64 = 130;

/// The value of `delayed_durability` with which no commit waits for the disk.
const FORCED: i64 = 2;

/// `alone`: whether no other host is named.
pub(crate) async fn handshake(
    client: &mut Driver,
    options: &SqlServerOptions,
    address: &Address,
    alone: bool,
    read_only: bool,
) -> Result<Server, StoreError> {
    let no_answer = || errors::silent(address);
    let row = run_plain(client, SETTINGS).await?.into_iter().flatten().next().ok_or_else(no_answer)?;
    let (version, level) = (text(&row, 0).unwrap_or_default(), number(&row, 1).unwrap_or(0));
    if level < COMPATIBILITY {
        return Err(StoreError::denied(format!(
            "{address} has version {version} and database {} has compatibility level {level}, but this store needs SQL \
             Server 2016 and level {COMPATIBILITY}; upgrade the server, or raise the level of the database",
            options.database
        )));
    }
    if text(&row, 2).as_deref() != Some("READ_WRITE") {
        return Err(errors::read_only(address, alone));
    }
    let table = named(&options.schema, TABLES[0]);
    let facts = FACTS.replace("{schema}", &literal(&options.schema)).replace("{table}", &literal(&table));
    let mut facts = run_plain(client, &facts).await?.into_iter();
    let row = facts.next().unwrap_or_default().into_iter().next().ok_or_else(no_answer)?;
    let columns: Vec<String> = facts.next().unwrap_or_default().iter().filter_map(|row| text(row, 0)).collect();
    if !columns.is_empty() {
        let has_column = |name: &str| columns.iter().any(|column| column == name);
        sql::check_table(&table, "schema", text(&row, 2).as_deref(), &schema::COLUMNS, has_column)?;
    }
    let is_missing = number(&row, 1) < Some(TABLES.len() as i64);
    if is_missing && !read_only {
        create_tables(client, options, &text(&row, 0).unwrap_or_default()).await?;
    }
    Ok(Server {
        is_durable: number(&row, 3) != Some(FORCED),
        is_vacant: read_only && is_missing,
        schema: options.schema.clone(),
    })
}

/// Creates the tables, under a lock: if two processes create a table at once, one of them fails.
async fn create_tables(client: &mut Driver, options: &SqlServerOptions, user: &str) -> Result<(), StoreError> {
    let lock = "@Resource = N'tenure:schema', @LockOwner = 'Session'";
    let schema = schema::schema_sql(&options.schema);
    let create = format!(
        "/* tenure: create */ EXEC sp_getapplock {lock}, @LockMode = 'Exclusive', @LockTimeout = 3000;\n{schema}\
         EXEC sp_releaseapplock {lock};"
    );
    match run_plain(client, &create).await {
        Ok(_) => Ok(()),
        // No right to create a schema or a table, or to use this schema.
        Err(Failed::Reply(reply, _)) if [262, 2759, 2760, 15247].contains(&reply.code()) => {
            let schema = schema + &schema::grants_sql(&options.schema, user);
            let place = format!("schema {}", options.schema);
            Err(sql::cannot_create_tables("sqlserver", &place, "login", &errors::message_of(&reply), &schema))
        }
        Err(failed) => Err(failed.into()),
    }
}
