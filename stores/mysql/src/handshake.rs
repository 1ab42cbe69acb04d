//! The first statements on a connection: they find out whether the server accepts writes, whether the tables exist,
//! which data the server has, and whether a proxy is in between.

use std::collections::HashMap;

use mysql_async::Conn;
use tenure_core::StoreError;
use tenure_kit::socket::Address;
use tenure_kit::sql::notes::without_notes;
use tenure_kit::sql::{self, Mode, TABLES};

use crate::connection::run;
use crate::errors::{self, Failed};
use crate::options::MysqlOptions;
use crate::schema::{self, quoted};
use crate::seats;

/// A server that passed the handshake.
pub(crate) struct Server {
    /// Whether a commit waits for the disk.
    pub(crate) is_durable: bool,
    /// Whether the store only reads, and no candidate has created the tables yet: then there are no seats.
    pub(crate) is_vacant: bool,
    /// Why there is no table of notes, if it is missing and the user cannot create it.
    pub(crate) without_notes: Option<StoreError>,
    table_prefix: String,
    /// Whether the server has a `server_uuid`, as MySQL does and MariaDB does not.
    has_uuid: bool,
}

impl Server {
    /// Returns statements with the names of the tables, the identity of the server, which is empty if the server is
    /// read-only, and its time in microseconds.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let identity =
            if self.has_uuid { "@@server_uuid" } else { "CONCAT(@@server_id, '.', @@hostname, '.', @@port)" };
        let identity = format!("IF(CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF'), {identity}, '')");
        let sql = seats::with_parts(sql).replace("{identity}", &identity);
        let sql = sql.replace("{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))");
        let name = |table: &str| quoted(&format!("{}{table}", self.table_prefix));
        TABLES.iter().fold(sql, |sql, table| sql.replace(&format!("{{{table}}}"), &name(table)))
    }
}

/// The settings of every connection. Strict mode rejects a value that is too long, instead of cutting it. A statement
/// that waits for a row gives up after a second, the shortest time that the server knows.
const SETTINGS: &str = "SET NAMES utf8mb4; SET SESSION sql_mode = 'STRICT_ALL_TABLES', autocommit = 1, \
     innodb_lock_wait_timeout = 1, wait_timeout = 28800; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

const VARIABLES: &str = "SHOW VARIABLES WHERE Variable_name IN \
     ('version', 'read_only', 'innodb_read_only', 'server_uuid', 'wsrep_on', 'group_replication_single_primary_mode', \
     'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog')";

/// The connection's number and user; how many of the tables exist; and the comment on the first one.
const FACTS: &str = "SELECT CONNECTION_ID(), CURRENT_USER(), \
     (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names})), \
     (SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = {name})";

const COLUMNS: &str = "SELECT LOWER(TABLE_NAME), LOWER(COLUMN_NAME) FROM information_schema.COLUMNS \
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({names})";

/// `alone`: whether no other host is named.
pub(crate) async fn handshake(
    conn: &mut Conn,
    options: &MysqlOptions,
    address: &Address,
    alone: bool,
    read_only: bool,
) -> Result<Server, StoreError> {
    let names = TABLES.map(|table| format!("'{}{table}'", options.table_prefix));
    let facts = format!("{SETTINGS}; {VARIABLES}; {FACTS}; {COLUMNS}").replace("{names}", &names.join(", "));
    let mut results = run(conn, facts.replace("{name}", &names[0])).await?;
    let columns = results.pop().unwrap_or_default().into_iter().map(mysql_async::from_row);
    let columns: Vec<(String, String)> = columns.collect();
    let facts = results.pop().and_then(|rows| rows.into_iter().next()).ok_or_else(|| errors::silent(address))?;
    let (connection_id, user, tables, mark): (u64, String, usize, Option<String>) = mysql_async::from_row(facts);
    let variables = results.pop().unwrap_or_default().into_iter().map(mysql_async::from_row);
    let variables: HashMap<String, String> = variables.collect();
    let variable = |name: &str| variables.get(name).map_or("", String::as_str);
    check_version(address, variable("version"))?;
    // Some replicas, such as the readers of Amazon Aurora, have only the second one.
    if variable("read_only") != "OFF" || variable("innodb_read_only") == "ON" {
        return Err(errors::read_only(address, alone));
    }
    let is_cluster = variable("wsrep_on") == "ON";
    if let Some(cluster) = cluster_of(variable).filter(|_| options.mode == Mode::Session) {
        return Err(errors::cluster(cluster));
    }
    // A proxy makes up the number that it announces at the log-in.
    if options.mode == Mode::Session && u64::from(conn.id()) != connection_id & u64::from(u32::MAX) {
        return Err(errors::pooler());
    }
    for (name, expected) in names.iter().zip(schema::COLUMNS) {
        let table = name.trim_matches('\'');
        let columns = columns.iter().filter(|(other, _)| other.eq_ignore_ascii_case(table));
        let has_column = |name: &str| columns.clone().any(|(_, column)| column == name);
        if columns.clone().next().is_some() {
            sql::check_table(table, "table_prefix", mark.as_deref(), expected, has_column)?;
        }
    }
    let has_table =
        |name: &String| columns.iter().any(|(table, _)| name.trim_matches('\'').eq_ignore_ascii_case(table));
    let without_notes = match tables < TABLES.len() && !read_only {
        true => without_notes(create_tables(conn, options, &user).await, names[..2].iter().all(has_table))?,
        false => None,
    };
    if is_cluster {
        // Reads wait until this node of the cluster has applied what the other nodes have committed.
        run(conn, "SET SESSION wsrep_sync_wait = 7".to_owned()).await?;
    }
    if read_only {
        run(conn, "SET SESSION TRANSACTION READ ONLY".to_owned()).await?;
    }
    // With a binary log, a crashed server rolls back what the log on its disk lacks.
    let is_logged = variable("log_bin") != "ON" || variable("sync_binlog") == "1";
    Ok(Server {
        is_durable: is_cluster || variable("innodb_flush_log_at_trx_commit") == "1" && is_logged,
        is_vacant: read_only && tables < TABLES.len(),
        without_notes,
        table_prefix: options.table_prefix.clone(),
        has_uuid: variables.contains_key("server_uuid"),
    })
}

/// Returns the kind of a cluster in which several servers accept writes, by the server's variables. Each of them has locks
/// of its own: a leader's session on one server is unknown to the others.
fn cluster_of<'a>(variable: impl Fn(&str) -> &'a str) -> Option<&'static str> {
    if variable("wsrep_on") == "ON" {
        return Some("a Galera cluster (wsrep_on=ON)");
    }
    // Only a server with Group Replication has this variable.
    let is_multi_primary = variable("group_replication_single_primary_mode") == "OFF";
    is_multi_primary.then_some("several primaries (group_replication_single_primary_mode=OFF)")
}

/// Rejects servers that lack `JSON_TABLE` or `SKIP LOCKED`.
fn check_version(address: &Address, version: &str) -> Result<(), StoreError> {
    let is_maria = version.contains("MariaDB");
    // Old clients took 10 for 1, so MariaDB puts another version first for them.
    let number = if is_maria { version.trim_start_matches("5.5.5-") } else { version };
    let mut parts = number.split(|part: char| !part.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let is_old = if is_maria { number < (10, 6) } else { number < (8, 0) };
    if is_old || version.contains("TiDB") {
        return Err(StoreError::denied(format!(
            "{address} has version {version}, but this store needs MySQL 8.0 or MariaDB 10.6; upgrade the server"
        )));
    }
    Ok(())
}

async fn create_tables(conn: &mut Conn, options: &MysqlOptions, user: &str) -> Result<(), StoreError> {
    let schema = schema::schema_sql(&options.table_prefix);
    match run(conn, schema.trim_end().trim_end_matches(';').to_owned()).await {
        Ok(_) => Ok(()),
        Err(Failed::Reply(reply, _)) => {
            let user = user.split_once('@').map_or(user.to_owned(), |(name, host)| format!("'{name}'@'{host}'"));
            let schema = schema + &schema::grants_sql(&options.database, &options.table_prefix, &user);
            let place = format!("database {}", options.database);
            Err(sql::cannot_create_tables("mysql", &place, "user", &errors::message_of(&reply), &schema))
        }
        Err(failed) => Err(failed.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::cluster_of;

    #[test]
    fn a_cluster_with_several_primaries_is_recognized() {
        let with =
            |name: &'static str, value: &'static str| cluster_of(move |other| if other == name { value } else { "" });
        assert!(with("wsrep_on", "ON").is_some_and(|cluster| cluster.contains("Galera")));
        assert!(
            with("group_replication_single_primary_mode", "OFF").is_some_and(|cluster| cluster.contains("primaries"))
        );
        for (name, value) in
            [("wsrep_on", "OFF"), ("group_replication_single_primary_mode", "ON"), ("version", "8.4.0")]
        {
            assert_eq!(with(name, value), None, "{name}={value}");
        }
    }
}
