//! The first statements on a connection: they find out whether the server accepts writes, whether the tables exist,
//! which data the server has, and whether a proxy is in between.

use std::collections::HashMap;

use mysql_async::Conn;
use tenure_core::StoreError;

use crate::connection::run;
use crate::errors::{self, Failed};
use crate::options::{Mode, MysqlOptions};
use crate::relay::Target;
use crate::schema::{self, LockNames, MARK, TABLES, VERSION};
use crate::seats::Statements;

/// A server that passed the handshake.
pub(crate) struct Server {
    /// Whether a commit waits for the disk.
    pub(crate) is_durable: bool,
    /// Whether the store only reads, and no candidate has created the tables yet: then there are no seats.
    pub(crate) is_vacant: bool,
    pub(crate) sql: Statements,
    pub(crate) locks: LockNames,
}

/// The settings of every connection. Strict mode rejects a value that is too long, instead of cutting it. A statement
/// that waits for a row gives up after a second, the shortest time that the server knows.
const SETTINGS: &str = "SET NAMES utf8mb4; SET SESSION sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, \
     innodb_lock_wait_timeout = 1, wait_timeout = 28800; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

const VARIABLES: &str = "SHOW VARIABLES WHERE Variable_name IN \
     ('version', 'read_only', 'server_uuid', 'wsrep_on', 'innodb_flush_log_at_trx_commit')";

pub(crate) async fn handshake(
    conn: &mut Conn,
    options: &MysqlOptions,
    target: &Target,
    alone: bool,
    read_only: bool,
) -> Result<Server, StoreError> {
    let settled = run(conn, format!("{SETTINGS}; {VARIABLES}; SELECT CONNECTION_ID(), CURRENT_USER()")).await?;
    let [.., variables, connection] = &settled[..] else { return Err(errors::silent(target)) };
    let variables: HashMap<String, String> = variables.iter().cloned().map(mysql_async::from_row).collect();
    let variable = |name: &str| variables.get(name).map_or("", String::as_str);
    let (connection_id, user): (u64, String) =
        mysql_async::from_row(connection.first().cloned().ok_or_else(|| errors::silent(target))?);
    check_version(target, &variables)?;
    if variable("read_only") != "OFF" {
        return Err(errors::read_only(target, alone));
    }
    let is_cluster = variable("wsrep_on") == "ON";
    let is_pooled = u64::from(conn.id()) != connection_id & u64::from(u32::MAX);
    if options.mode == Mode::Session && is_cluster {
        return Err(errors::cluster());
    }
    if options.mode == Mode::Session && is_pooled {
        return Err(errors::pooler());
    }
    let exists = tables(conn, options).await?;
    if !exists && !read_only {
        create_tables(conn, options, &user).await?;
    }
    let more = match (is_cluster, read_only) {
        // Reads wait until this node of the cluster has applied what the other nodes have committed.
        (true, _) => "SET SESSION wsrep_sync_wait = 7",
        (_, true) => "SET SESSION TRANSACTION READ ONLY",
        _ => "DO 0",
    };
    run(conn, more.to_owned()).await?;
    Ok(Server {
        is_durable: is_cluster || variable("innodb_flush_log_at_trx_commit") == "1",
        is_vacant: read_only && !exists,
        locks: LockNames { database: options.database.clone(), table_prefix: options.table_prefix.clone() },
        sql: Statements::new(&options.table_prefix, variables.contains_key("server_uuid")),
    })
}

/// Rejects servers that lack `JSON_TABLE` or `SKIP LOCKED`.
fn check_version(target: &Target, variables: &HashMap<String, String>) -> Result<(), StoreError> {
    let version = variables.get("version").map_or("", String::as_str);
    let is_maria = version.contains("MariaDB");
    // Old clients took 10 for 1, so MariaDB puts another version first for them.
    let number = if is_maria { version.trim_start_matches("5.5.5-") } else { version };
    let mut parts = number.split(|part: char| !part.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let is_old = if is_maria { number < (10, 6) } else { number < (8, 0) };
    if is_old || version.contains("TiDB") {
        return Err(StoreError::denied(format!(
            "{target} has version {version}, but this store needs MySQL 8.0 or MariaDB 10.6; upgrade the server"
        )));
    }
    Ok(())
}

/// Returns whether all tables exist. Rejects tables of another program, or of a newer version.
async fn tables(conn: &mut Conn, options: &MysqlOptions) -> Result<bool, StoreError> {
    let names = TABLES.map(|table| format!("'{}{table}'", options.table_prefix));
    let sql = format!(
        "SELECT COUNT(*), MAX(IF(TABLE_NAME = {0}, TABLE_COMMENT, NULL)) FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({1}); \
         SELECT LOWER(COLUMN_NAME) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = {0}",
        names[0],
        names.join(", ")
    );
    let found = run(conn, sql).await?;
    let first = found.first().and_then(|rows| rows.first()).cloned();
    let (count, mark): (usize, Option<String>) = first.map(mysql_async::from_row).unwrap_or_default();
    let columns: Vec<String> =
        found.into_iter().nth(1).unwrap_or_default().into_iter().map(mysql_async::from_row).collect();
    let ours = ["name", "record", "version", "token", "holder", "written", "session", "lock_name"];
    if !columns.is_empty() && !ours.iter().all(|column| columns.iter().any(|other| other == column)) {
        return Err(StoreError::denied(format!(
            "the table {}seats was not created by Tenure; use another table_prefix, or drop the table",
            options.table_prefix
        )));
    }
    let version = mark.as_deref().and_then(|mark| mark.strip_prefix(MARK)).and_then(|version| version.parse().ok());
    match version.filter(|version: &u32| *version > VERSION) {
        None => Ok(count == TABLES.len()),
        Some(version) => Err(StoreError::denied(format!(
            "the tables with the prefix {} are of a newer version of Tenure (version {version}, supported up to \
             {VERSION}); upgrade this program",
            options.table_prefix
        ))),
    }
}

async fn create_tables(conn: &mut Conn, options: &MysqlOptions, user: &str) -> Result<(), StoreError> {
    let sql = schema::schema_sql(&options.table_prefix);
    match run(conn, sql.trim_end().trim_end_matches(';').to_owned()).await {
        Ok(_) => Ok(()),
        Err(Failed::Reply(reply, _)) => {
            let user = user.split_once('@').map_or(user.to_owned(), |(name, host)| format!("'{name}'@'{host}'"));
            let sql = sql + &schema::grants_sql(&options.database, &options.table_prefix, &user);
            Err(StoreError::denied(format!(
                "tables are missing in database {} and this user cannot create them: {}; ask an administrator to run the \
                 output of `tenure schema mysql`: {}",
                options.database,
                errors::message_of(&reply),
                sql.split_whitespace().collect::<Vec<_>>().join(" ")
            )))
        }
        Err(failed) => Err(failed.into()),
    }
}
