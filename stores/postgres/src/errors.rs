//! Errors: their messages, and whether the failed statement took effect ([`Fault`]).

use std::error::Error as _;
use std::io;

use tenure_core::{Fault, StoreError};
use tenure_kit::socket;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::connect::Target;
use crate::options::SslMode;
use crate::socket::NOT_POSTGRES;

const TLS_ADVICE: &str = "check the certificates and the host name";

/// Describes a connection that could not be opened, or that ended before the log-in.
pub(crate) fn unreachable(target: &Target, error: io::Error) -> StoreError {
    socket::unreachable(&target.address, "PostgreSQL", TLS_ADVICE, error)
}

/// Describes a server that accepts a connection, or may have accepted it, but does not answer.
pub(crate) fn silent(target: &Target) -> StoreError {
    socket::silent(&target.address, "PostgreSQL")
}

/// Describes a server that does not accept writes. If other hosts are named, the error is not permanent: one of
/// them may be promoted.
pub(crate) fn standby(target: &Target) -> StoreError {
    match target.alone {
        true => StoreError::denied(format!(
            "{target} is a standby and does not accept writes; name the primary, or all hosts, separated by commas"
        )),
        false => StoreError::refused(format!(
            "{target} is a standby, and no other host accepts writes; check that one of the hosts is the primary"
        )),
    }
}

/// Describes a log-in that failed.
pub(crate) fn login_failed(target: &Target, ssl: SslMode, error: Error) -> StoreError {
    if let Some(reply) = error.as_db_error() {
        let mut message = format!("cannot log in to {target}: {}", message_of(reply));
        if reply.message().contains("no encryption") && ssl == SslMode::Disable {
            message.push_str("; the server may require encryption: remove sslmode=disable");
        } else if let Some(advice) = advice(reply.code()) {
            message.push_str(&format!("; {advice}"));
        }
        return match fault(reply.code()) {
            Fault::Denied => StoreError::denied(message),
            // A log-in writes nothing, and the next one may succeed.
            Fault::Refused | Fault::Unknown => StoreError::refused(message),
        };
    }
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let kind = error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let is_broken =
        matches!(kind, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::TimedOut));
    let mode = ssl.as_str();
    if cause.contains(NOT_POSTGRES) {
        StoreError::denied(format!("cannot connect to {target}: {NOT_POSTGRES}; check host and port"))
    } else if cause.contains("password missing") {
        StoreError::denied(format!(
            "cannot log in to {target}: a password is required; give one: postgres://USER:PASSWORD@HOST"
        ))
    } else if kind == Some(io::ErrorKind::Unsupported) {
        StoreError::denied(format!(
            "cannot connect to {target}: the server does not support TLS, but sslmode={mode} requires it; \
             turn on ssl on the server, or use sslmode=prefer"
        ))
    } else if error.to_string().contains("TLS") && !is_broken {
        tenure_kit::no_tls(format!("{target} (sslmode={mode})"), TLS_ADVICE, &error)
    } else if let Some(kind) = kind {
        unreachable(target, io::Error::new(kind, cause))
    } else {
        StoreError::denied(format!("cannot log in to {target}: {error} ({cause}); check the settings of the log-in"))
    }
}

/// Returns what to do about an error of a log-in.
fn advice(code: &SqlState) -> Option<&'static str> {
    Some(match *code {
        SqlState::INVALID_PASSWORD => "check user and password: postgres://USER:PASSWORD@HOST",
        SqlState::INVALID_CATALOG_NAME => "create the database, or name another one: postgres://HOST/DATABASE",
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => "check the user, and pg_hba.conf on the server",
        SqlState::TOO_MANY_CONNECTIONS => "raise max_connections, or use fewer connections",
        _ => return None,
    })
}

/// Describes a statement that failed.
pub(crate) fn statement_failed(error: Error) -> StoreError {
    let Some(reply) = error.as_db_error() else {
        let message = if error.is_closed() {
            "the connection to PostgreSQL is closed"
        } else {
            "the connection to PostgreSQL failed during a statement"
        };
        // The statement was in flight, and the server may have received it.
        return StoreError::unknown(message).because(error);
    };
    let mut message = format!("a PostgreSQL statement failed: {}", message_of(reply));
    if is_missing_table(reply.code()) || *reply.code() == SqlState::INSUFFICIENT_PRIVILEGE {
        message.push_str("; ask an administrator to run the output of `tenure schema postgres --role ROLE`");
    }
    match fault(reply.code()) {
        Fault::Refused => StoreError::refused(message),
        Fault::Unknown => StoreError::unknown(message),
        Fault::Denied => StoreError::denied(message),
    }
}

/// Returns whether a table is missing. The next connection creates it if its role is allowed to.
fn is_missing_table(code: &SqlState) -> bool {
    [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code)
}

/// The error of a statement.
#[derive(Debug)]
pub(crate) enum Failed {
    Driver(Error),
    Unanswered,
}

impl Failed {
    /// Returns the error that the server replied with, if it replied.
    fn reply(&self) -> Option<&DbError> {
        if let Self::Driver(error) = self { error.as_db_error() } else { None }
    }

    pub(crate) fn is_missing_table(&self) -> bool {
        self.reply().is_some_and(|reply| is_missing_table(reply.code()))
    }

    /// Returns whether the statement had no effect and one of its seats or notes may be the cause: by its content, or
    /// by a conflict with another transaction. Errors about the role or the state of the server concern all of them.
    fn is_caused_by_one(&self) -> bool {
        let is_one =
            |code: &SqlState| ["22", "23", "40", "54"].contains(&class(code)) || *code == SqlState::LOCK_NOT_AVAILABLE;
        self.reply().is_some_and(|reply| is_one(reply.code()))
    }

    /// Returns whether to replace the connection: a new one, or another server, may work.
    pub(crate) fn ends_the_connection(&self) -> bool {
        let Some(reply) = self.reply() else { return true };
        let code = reply.code();
        let is_recovery = *code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE && reply.message().contains("recovery");
        let is_read_only = *code == SqlState::READ_ONLY_SQL_TRANSACTION || is_recovery;
        ["57P", "08"].contains(&class(code)) || is_read_only
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        let is_caused_by_one = failed.is_caused_by_one();
        let error = match failed {
            Failed::Driver(error) => statement_failed(error),
            Failed::Unanswered => Self::unknown("PostgreSQL does not answer"),
        };
        if is_caused_by_one { error.caused_by_one() } else { error }
    }
}

fn class(code: &SqlState) -> &str {
    let code = code.code();
    if code.starts_with("57P") { "57P" } else { &code[..2.min(code.len())] }
}

/// Returns whether a statement with this error took effect.
fn fault(code: &SqlState) -> Fault {
    match class(code) {
        // The session ended, possibly after its commit, while it waited for a standby to confirm it.
        "57P" | "08" | "XX" | "F0" => Fault::Unknown,
        // A conflict, a time-out or a lack of resources: the transaction was rolled back.
        "40" | "53" | "54" | "55" | "57" | "58" => Fault::Refused,
        // Read-only for now: another server may be promoted.
        "25" => Fault::Refused,
        _ if is_missing_table(code) => Fault::Refused,
        _ => Fault::Denied,
    }
}

/// Returns the server's message, its code and its hint, in one line.
pub(crate) fn message_of(reply: &DbError) -> String {
    let mut message = format!("{} (SQLSTATE {})", reply.message().replace('\n', " "), reply.code().code());
    if let Some(hint) = reply.hint() {
        message.push_str(&format!("; {}", hint.replace('\n', " ")));
    }
    message
}

/// Describes a pooler in `mode=session`: locks belong to sessions, and a pooler shares those between programs.
pub(crate) fn pooler() -> StoreError {
    StoreError::denied(
        "mode=session does not work through a connection pooler (PgBouncer?), which shares sessions between programs; connect to the server directly, or use mode=lease",
    )
}

/// Describes a second election in a store with `lock_id`: two elections cannot share one lock.
pub(crate) fn one_lock() -> StoreError {
    StoreError::denied(
        "lock_id is the lock of one election, and this store already has one; use another store for each further election",
    )
}
