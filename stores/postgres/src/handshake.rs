//! The first statements on a connection: they find out whether the server accepts writes, whether the tables
//! exist, which data the server has, and whether a pooler is in between.

use std::time::Duration;

use tenure_core::StoreError;
use tenure_kit::sql::notes::without_notes;
use tenure_kit::sql::{self, TABLES, WAIT_SLICE};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use crate::connect::Target;
use crate::schema;
use crate::seats::Statements;
use crate::{errors, notes};

/// A server that passed the handshake.
pub(crate) struct Server {
    pub(crate) version: i32,
    /// Whether a pooler is in between, so that each statement may run in another session.
    pub(crate) pooled: bool,
    /// Whether the role is allowed to read the timeline, so that a promotion is noticed.
    pub(crate) has_timeline: bool,
    /// Whether the store only reads, and no candidate has created the tables yet: then there are no seats.
    pub(crate) is_vacant: bool,
    /// Why there is no table of notes, if it is missing and the role cannot create it.
    pub(crate) without_notes: Option<StoreError>,
    pub(crate) seats: Statements,
    pub(crate) notes: notes::Statements,
}

/// The current timeline of the server, as eight hexadecimal digits. `pg_control_checkpoint()` would return the
/// old one until the first checkpoint after a promotion.
macro_rules! timeline {
    () => {
        "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
    };
}

/// SQL expressions for the identity of the data and the lower bound of its tokens.
#[derive(Clone, Copy)]
pub(crate) struct IdentitySql {
    pub(crate) identity: &'static str,
    /// All tokens that are issued for this data are above this.
    pub(crate) floor: &'static str,
}

/// The identities, from the most precise to the least: the cluster's identifier or the database's, and the
/// timeline. A promotion or a restore to a point in time begins another timeline. The role may not be allowed to
/// read all of them.
const IDENTITIES: [IdentitySql; 3] = [
    IdentitySql {
        identity: concat!("((SELECT system_identifier::text FROM pg_control_system()) || '.' || ", timeline!(), ")"),
        floor: TIMELINE_FLOOR,
    },
    IdentitySql {
        identity: concat!(
            "((SELECT oid::text FROM pg_database WHERE datname = current_database()) || '.' || ",
            timeline!(),
            ")"
        ),
        floor: TIMELINE_FLOOR,
    },
    IdentitySql {
        identity: "(SELECT oid::text FROM pg_database WHERE datname = current_database())",
        floor: "0::int8",
    },
];

/// The floor of tokens by the timeline. See *Tokens rise across a promotion* in `seats.rs`.
const TIMELINE_FLOOR: &str = concat!("((('x' || ", timeline!(), ")::bit(32)::int8 - 1) << 32)");

/// The query of the handshake. `$1` are the names of the tables; the first one carries the mark, and the last one has the
/// notes.
const QUERY: &str = "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', \
     current_setting('server_version_num')::int4, seats IS NOT NULL, obj_description(seats, 'pg_class'), \
     (SELECT string_agg(attname::text, ' ') FROM pg_attribute WHERE attrelid = seats AND attnum > 0 AND NOT attisdropped), \
     (SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1) AS name), \
     (SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1[:2]) AS name) \
     FROM (SELECT to_regclass($1[1])::oid AS seats) AS found";

/// Makes the server deny writes of this session. Advisory locks and notifications are not writes.
pub(crate) const READ_ONLY: &str = "SET default_transaction_read_only = on;";

pub(crate) async fn handshake(
    client: &Client,
    target: &Target,
    schema: &str,
    read_only: bool,
) -> Result<Server, StoreError> {
    let tables = TABLES.map(|name| format!("{}.{name}", schema::quoted(schema)));
    let params: [(&(dyn ToSql + Sync), Type); 1] = [(&tables.as_slice(), Type::TEXT_ARRAY)];
    // One statement after the other: a pooler may mix up the answers to pipelined ones.
    let row = client.query_typed_one(QUERY, &params).await.map_err(errors::statement_failed)?;
    let pooled = announced_process(client).await != row.get(0);
    if row.get(1) {
        return Err(errors::standby(target));
    }
    if row.get(2) && !read_only {
        return Err(StoreError::denied(format!(
            "{target} accepts only read-only transactions from this role (default_transaction_read_only=on); \
             turn that off, or name a server that accepts writes"
        )));
    }
    // A table that another process has created during this statement has a name here, but no columns yet.
    if let Some(columns) = row.get::<_, Option<&str>>(6) {
        let has_column = |name: &str| columns.split(' ').any(|column| column == name);
        sql::check_table(&tables[0], "schema", row.get(5), &schema::COLUMNS, has_column)?;
    }
    let without_notes = match row.get::<_, bool>(7) || read_only {
        true => None,
        false => without_notes(create_tables(client, schema).await, row.get(8))?,
    };
    let data = data_identity(client).await?;
    Ok(Server {
        version: row.get(3),
        pooled,
        has_timeline: data.floor == TIMELINE_FLOOR,
        is_vacant: read_only && !row.get::<_, bool>(4),
        without_notes,
        seats: Statements::new(schema, data),
        notes: notes::Statements::new(schema),
    })
}

/// Returns the process id that the server announced at the log-in, for requests to cancel a statement.
///
/// A PostgreSQL server announces the id of the process that serves the connection. A pooler in between makes up
/// an id. So if the announced id is not that of `pg_backend_pid()`, a pooler is in between, and each statement
/// may run in another session. The driver does not expose the id. Here it writes a request to cancel into memory:
/// the length, a code, the process id and a secret, of four bytes each.
async fn announced_process(client: &Client) -> Option<i32> {
    let mut request = Vec::new();
    let nowhere = tokio::io::join(tokio::io::empty(), &mut request);
    client.cancel_token().cancel_query_raw(nowhere, NoTls).await.ok()?;
    request.get(8..12)?.try_into().ok().map(i32::from_be_bytes)
}

/// Errors that rule out an identity for good: the role is not allowed to call a function, or the function does
/// not exist.
const PERMANENT: [SqlState; 3] =
    [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_FUNCTION, SqlState::FEATURE_NOT_SUPPORTED];

/// Returns the most precise identity that the role is allowed to read.
async fn data_identity(client: &Client) -> Result<IdentitySql, StoreError> {
    let mut last = None;
    for data in IDENTITIES {
        match client.query_typed(&format!("SELECT {}, {}", data.identity, data.floor), &[]).await {
            Ok(_) => return Ok(data),
            // Only for permanent errors: without a timeline that is readable at other times, a token that was
            // issued on it could be issued again.
            Err(error) if error.code().is_some_and(|code| PERMANENT.contains(code)) => last = Some(error),
            Err(error) => return Err(errors::statement_failed(error)),
        }
    }
    let unknown = || StoreError::refused("the server does not reveal the identity of its database");
    Err(last.map_or_else(unknown, errors::statement_failed))
}

async fn create_tables(client: &Client, schema: &str) -> Result<(), StoreError> {
    let Err(error) = client.batch_execute(&schema::creation(schema)).await else { return Ok(()) };
    let Some(why) = error.as_db_error().map(errors::message_of) else { return Err(errors::statement_failed(error)) };
    let role = client.query_typed_one("SELECT current_user::text", &[]).await.map_err(errors::statement_failed)?;
    let sql = schema::schema_sql(schema) + &schema::grants_sql(schema, role.get(0));
    let place = format!("schema {}", schema::quoted(schema));
    Err(sql::cannot_create_tables("postgres", &place, "role", &why, &sql))
}

/// Returns the settings of the connection that all calls share and that listens for notifications. The time-outs
/// keep a row that another transaction has locked from delaying the calls behind it, and end statements that were
/// abandoned.
pub(crate) fn call_settings(schema: &str) -> String {
    let channel = schema::quoted(&schema::channel(schema));
    format!("SET lock_timeout = 500; SET statement_timeout = 10000; {PLANS} LISTEN {channel}")
}

/// Returns the settings of a session that holds seats. Once it holds one, the server ends it a lease after it
/// last heard from this process, and not before: by [`idle_session_timeout`] if the process is paused, by the
/// other settings if the process is gone or cut off.
pub(crate) fn session_settings(version: i32, lease: Duration) -> String {
    let millis = millis(lease);
    let seconds = lease.as_nanos().div_ceil(1_000_000_000).clamp(1, 32_767);
    let mut settings = format!(
        "SET statement_timeout = {millis}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = 0; {PLANS}
         SET tcp_keepalives_idle = {seconds}; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3;",
        // A row that another transaction has locked must not delay the heartbeat.
        millis.div_ceil(10)
    );
    if version >= 120_000 {
        settings.push_str(&format!("SET tcp_user_timeout = {millis};"));
    }
    if version >= 140_000 {
        settings.push_str("SET idle_session_timeout = 0;");
    } else {
        tracing::warn!(
            "PostgreSQL before version 14 does not end the session of a paused leader, only of one that is gone or cut \
             off; upgrade the server, or use mode=lease"
        );
    }
    settings
}

/// Settings of the planner. Every statement finds rows by an index, so one plan is good for tables of any size: it is
/// made once, and without sequential scans, as a plan that was made for small tables stays in use. Planning each call
/// anew, or compiling it, would take longer than the call.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off;";

/// Returns the time of silence after which the server ends a session that holds seats, if the server supports it.
pub(crate) fn idle_session_timeout(version: i32, lease: Duration) -> Option<String> {
    (version >= 140_000).then(|| millis(lease).to_string())
}

/// Returns the lease in milliseconds, rounded up: a session must never end before the lease.
fn millis(lease: Duration) -> u128 {
    lease.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128)
}

/// Returns the settings of a connection that waits for another session to end, one slice at a time. If this
/// process dies meanwhile, the server notices at the end of the slice, or by keepalives.
pub(crate) fn waiting_settings(version: i32) -> String {
    let mut settings = format!(
        "SET statement_timeout = 0; SET lock_timeout = {}; SET tcp_keepalives_idle = 10;
         SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3;",
        WAIT_SLICE.as_millis()
    );
    if version >= 140_000 {
        settings.push_str("SET idle_session_timeout = 0;");
    }
    settings
}
