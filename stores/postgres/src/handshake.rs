//! What is asked of a server before anything else: who it is, whether it can be written to, and
//! whether the tables are there.

use std::time::Duration;

use tenure_core::StoreError;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use crate::connect::Target;
use crate::following::PIECE;
use crate::schema::{self, MARK, VERSION};
use crate::seats::Statements;
use crate::{errors, notes};

/// A server that can be worked with.
pub(crate) struct Server {
    pub(crate) version: i32,
    /// Whether statements may be served by one session now and another the next time.
    pub(crate) pooled: bool,
    /// Whether the role may ask for the timeline, so that a promotion is noticed.
    pub(crate) tells_timeline: bool,
    pub(crate) seats: Statements,
    pub(crate) notes: notes::Statements,
}

/// The timeline that the server writes on now, as eight hexadecimal digits. `pg_control_checkpoint()` would
/// tell the old one until the first checkpoint after a promotion.
macro_rules! timeline {
    () => {
        "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
    };
}

/// Which life of the data this is, as SQL.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    pub(crate) identity: &'static str,
    /// Tokens of this life are above this.
    pub(crate) floor: &'static str,
}

/// From the fullest to the least, as far as the role is allowed to ask: the cluster's identifier and its
/// timeline. A cluster that was promoted or restored to a point in time is on another timeline.
const LIVES: [Life; 3] = [
    Life {
        identity: concat!("((SELECT system_identifier::text FROM pg_control_system()) || '.' || ", timeline!(), ")"),
        floor: TIMELINE_FLOOR,
    },
    Life {
        identity: concat!(
            "((SELECT oid::text FROM pg_database WHERE datname = current_database()) || '.' || ",
            timeline!(),
            ")"
        ),
        floor: TIMELINE_FLOOR,
    },
    Life { identity: "(SELECT oid::text FROM pg_database WHERE datname = current_database())", floor: "0::int8" },
];

/// See the argument in `seats.rs`.
const TIMELINE_FLOOR: &str = concat!("((('x' || ", timeline!(), ")::bit(32)::int8 - 1) << 32)");

/// `$1` are the tables, of which the first is the one with the mark.
const QUESTIONS: &str = "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', \
     current_setting('server_version_num')::int4, seats IS NOT NULL, obj_description(seats, 'pg_class'), \
     (SELECT string_agg(attname::text, ' ') FROM pg_attribute WHERE attrelid = seats AND attnum > 0 AND NOT attisdropped), \
     (SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1) AS name) \
     FROM (SELECT to_regclass($1[1])::oid AS seats) AS found";

pub(crate) async fn handshake(client: &Client, target: &Target, schema: &str) -> Result<Server, StoreError> {
    let tables = schema::TABLES.map(|name| format!("{}.{name}", schema::quoted(schema)));
    let params: [(&(dyn ToSql + Sync), Type); 1] = [(&tables.as_slice(), Type::TEXT_ARRAY)];
    // One after the other: there may be a pooler that mixes up what is asked together.
    let row = client.query_typed_one(QUESTIONS, &params).await.map_err(errors::of_statement)?;
    let pooled = process_of(client).await != row.get(0);
    if row.get(1) {
        return Err(errors::standby(target));
    }
    if row.get(2) {
        return Err(StoreError::denied(format!(
            "{target} is read-only for us (default_transaction_read_only): name a server that can be written to"
        )));
    }
    if row.get(4) {
        check_tables(schema, row.get(5), row.get::<_, Option<&str>>(6).unwrap_or_default())?;
    }
    if !row.get::<_, bool>(7) {
        create_tables(client, schema).await?;
    }
    let life = life(client).await?;
    Ok(Server {
        version: row.get(3),
        pooled,
        tells_timeline: life.floor == TIMELINE_FLOOR,
        seats: Statements::new(schema, life),
        notes: notes::Statements::new(schema),
    })
}

/// The process that the other end says it is, as a request to cancel a statement would name it.
///
/// A PostgreSQL server tells every new connection the id of the process that serves it. A pooler in
/// between makes one up. So, if that id is not what `pg_backend_pid()` says, statements may be served
/// by one session now and by another the next time. The driver keeps the id to itself, and here writes such a request
/// to memory: its length, a code, the process and a secret, of four bytes each.
async fn process_of(client: &Client) -> Option<i32> {
    let mut request = Vec::new();
    let nowhere = tokio::io::join(tokio::io::empty(), &mut request);
    client.cancel_token().cancel_query_raw(nowhere, NoTls).await.ok()?;
    request.get(8..12)?.try_into().ok().map(i32::from_be_bytes)
}

/// What a server answers that will never tell: it forbids the question, or does not know it.
const NEVER: [SqlState; 3] =
    [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_FUNCTION, SqlState::FEATURE_NOT_SUPPORTED];

/// The fullest answer that we are let have.
async fn life(client: &Client) -> Result<Life, StoreError> {
    let mut last = None;
    for life in LIVES {
        match client.query_typed(&format!("SELECT {}, {}", life.identity, life.floor), &[]).await {
            Ok(_) => return Ok(life),
            // Only for these: were a timeline left out that could be read the next time, a token that was given out
            // on it could be given out again.
            Err(error) if error.code().is_some_and(|code| NEVER.contains(code)) => last = Some(error),
            Err(error) => return Err(errors::of_statement(error)),
        }
    }
    Err(last.map_or_else(|| StoreError::refused("the database does not say which it is"), errors::of_statement))
}

/// Another program's table, or one of a version to come, is left alone.
fn check_tables(schema: &str, mark: Option<&str>, columns: &str) -> Result<(), StoreError> {
    let ours = ["name", "record", "version", "token", "written", "session", "lock_id"];
    let has = |column: &&str| columns.split(' ').any(|other| other == *column);
    if !ours.iter().all(has) {
        return Err(StoreError::denied(format!(
            "the table {}.seats is not of Tenure's making: use another schema (schema=…), or remove it",
            schema::quoted(schema)
        )));
    }
    let version = mark.and_then(|mark| mark.strip_prefix(MARK)).and_then(|version| version.parse::<u32>().ok());
    match version.filter(|version| *version > VERSION) {
        None => Ok(()),
        Some(version) => Err(StoreError::denied(format!(
            "the tables in {} are of a newer version of Tenure ({version}, known up to {VERSION}): upgrade this program",
            schema::quoted(schema)
        ))),
    }
}

async fn create_tables(client: &Client, schema: &str) -> Result<(), StoreError> {
    let Err(error) = client.batch_execute(&schema::creation(schema)).await else { return Ok(()) };
    let Some(why) = error.as_db_error().map(errors::words) else { return Err(errors::of_statement(error)) };
    let role = client.query_typed_one("SELECT current_user::text", &[]).await.map_err(errors::of_statement)?;
    let sql = schema::schema_sql(schema) + &schema::grants_sql(schema, role.get(0));
    let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    Err(StoreError::denied(format!(
        "tables are missing in the schema {} and this role cannot create them ({why}); ask an administrator to run \
         the output of `tenure schema postgres`: {sql}",
        schema::quoted(schema)
    )))
}

/// The settings of the connection that all calls share, which also listens. A row that somebody else has locked holds up
/// one call, not all that come behind it; and what nobody waits for any more does not stay on the server.
pub(crate) fn call_settings(schema: &str) -> String {
    let channel = schema::quoted(&schema::channel(schema));
    format!("SET lock_timeout = 500; SET statement_timeout = 10000; {PLANS} LISTEN {channel}")
}

/// The settings of a session that seats are to be held on. Once it holds one, the server ends it a lease
/// after it last heard from us, and not before, whether we are paused ([`idle_session_timeout`]), gone or
/// cut off (the others).
pub(crate) fn session_settings(version: i32, lease: Duration) -> String {
    let millis = millis(lease);
    let seconds = lease.as_nanos().div_ceil(1_000_000_000).clamp(1, 32_767);
    let mut settings = format!(
        "SET statement_timeout = {millis}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = 0; {PLANS}
         SET tcp_keepalives_idle = {seconds}; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3;",
        // A row that somebody else has locked must not hold up the heartbeat.
        millis.div_ceil(10)
    );
    if version >= 120_000 {
        settings.push_str(&format!("SET tcp_user_timeout = {millis};"));
    }
    if version >= 140_000 {
        settings.push_str("SET idle_session_timeout = 0;");
    } else {
        tracing::warn!(
            "this PostgreSQL is older than 14: it does not end the session of a leader that is paused, only of one that is gone"
        );
    }
    settings
}

/// Rows are found by their names: a plan that was made while the tables were small stays for long. So it can be
/// made once, and not again for every call, as that takes longer than the call; and so does compiling one.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off;";

/// After how long the server is to end a session that holds seats, if it can.
pub(crate) fn idle_session_timeout(version: i32, lease: Duration) -> Option<String> {
    (version >= 140_000).then(|| millis(lease).to_string())
}

/// Never less than a lease: rounded up.
fn millis(lease: Duration) -> u128 {
    lease.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128)
}

/// The settings of a session that waits for another to end, a piece at a time. If this process is gone
/// meanwhile, the server notices at the end of the piece, or by keepalives.
pub(crate) fn waiting_settings(version: i32) -> String {
    let mut settings = format!(
        "SET statement_timeout = 0; SET lock_timeout = {}; SET tcp_keepalives_idle = 10;
         SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3;",
        PIECE.as_millis()
    );
    if version >= 140_000 {
        settings.push_str("SET idle_session_timeout = 0;");
    }
    settings
}
