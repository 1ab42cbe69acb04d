//! What went wrong, and whether it happened all the same.

use std::error::Error as _;
use std::io;

use tenure_core::{Fault, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::dial::{Place, Target};
use crate::ear::NOT_POSTGRES;
use crate::options::SslMode;

/// There is no connection.
pub(crate) fn unreachable(target: &Target, error: io::Error) -> StoreError {
    match (error.kind(), &target.place) {
        (io::ErrorKind::NotFound, Place::Socket(_)) => {
            StoreError::refused(format!("no server listens at {target}: is it started, and its socket there?"))
        }
        (io::ErrorKind::ConnectionRefused, _) => StoreError::refused(format!("no server listens at {target}")),
        (io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset, _) => {
            StoreError::refused(format!("{target} closes connections as soon as they are made")).because(error)
        }
        _ => StoreError::refused(format!("{target} cannot be reached: {error}")),
    }
}

/// There is a connection, or may be, but nothing comes of it.
pub(crate) fn silent(target: &Target) -> StoreError {
    StoreError::unknown(format!("{target} does not answer: see that it is a PostgreSQL server, and can be reached"))
}

/// The server cannot be written to. Where others are named, too, one of them may be in a moment.
pub(crate) fn standby(target: &Target) -> StoreError {
    match target.alone {
        true => StoreError::denied(format!(
            "{target} is a standby and cannot be written to: name the primary, or all of them, separated by commas"
        )),
        false => StoreError::refused(format!(
            "{target} is a standby, and none of the others can be written to: is there a primary?"
        )),
    }
}

/// Encryption could not be agreed upon.
pub(crate) fn of_tls(target: &Target, ssl: SslMode, error: io::Error) -> StoreError {
    let broken = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::TimedOut];
    if broken.contains(&error.kind()) {
        return unreachable(target, error);
    }
    StoreError::denied(format!("no encryption with {target} as sslmode={} wants it: {error}", ssl.as_str()))
}

/// The server did not let us in.
pub(crate) fn of_log_in(target: &Target, ssl: SslMode, error: Error) -> StoreError {
    if let Some(said) = error.as_db_error() {
        let mut message = format!("{target} does not let us in: {}", words(said));
        if said.message().contains("no encryption") && ssl == SslMode::Disable {
            message.push_str("; sslmode=disable is in the way");
        } else if let Some(advice) = advice(said.code()) {
            message.push_str(&format!("; {advice}"));
        }
        return match fault(said.code()) {
            Fault::Denied => StoreError::denied(message),
            // It may let us in the next time; nothing has happened.
            Fault::Refused | Fault::Unknown => StoreError::refused(message),
        };
    }
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    if cause.contains(NOT_POSTGRES) {
        StoreError::denied(format!("{target}: {NOT_POSTGRES}"))
    } else if cause.contains("password missing") {
        StoreError::denied(format!("{target} wants a password, and none was given"))
    } else if let Some(io) = io {
        unreachable(target, io::Error::new(io.kind(), cause))
    } else {
        StoreError::denied(format!("{target} cannot be talked to: {error} ({cause})"))
    }
}

/// What to do about it, where the server does not say.
fn advice(code: &SqlState) -> Option<&'static str> {
    Some(match *code {
        SqlState::INVALID_PASSWORD => "see that user and password are right: postgres://USER:PASSWORD@HOST",
        SqlState::INVALID_CATALOG_NAME => "create it, or name another: postgres://HOST/DATABASE",
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => "see that the user is right, and pg_hba.conf of the server",
        SqlState::TOO_MANY_CONNECTIONS => "raise max_connections, or use fewer connections",
        _ => return None,
    })
}

/// A statement failed.
pub(crate) fn of_statement(error: Error) -> StoreError {
    let Some(said) = error.as_db_error() else {
        let message =
            if error.is_closed() { "the connection to PostgreSQL is closed" } else { "PostgreSQL cannot be asked" };
        // It was on its way, and may have arrived.
        return StoreError::unknown(message).because(error);
    };
    let mut words = words(said);
    if TABLES_OR_RIGHTS.contains(said.code()) {
        words.push_str("; ask an administrator to run the output of `tenure schema postgres --role ROLE`");
    }
    match fault(said.code()) {
        Fault::Refused => StoreError::refused(words),
        Fault::Unknown => StoreError::unknown(words),
        Fault::Denied => StoreError::denied(words),
    }
}

/// A table or a right is missing. The next connection creates missing tables if its role may.
const TABLES_OR_RIGHTS: [SqlState; 3] =
    [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME, SqlState::INSUFFICIENT_PRIVILEGE];

/// Whether a table is missing.
pub(crate) fn is_missing_table(error: &Error) -> bool {
    error.code().is_some_and(|code| [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code))
}

/// Whether the connection that this was said on is of no more use: another server may do better.
pub(crate) fn ends_the_connection(error: &Error) -> bool {
    let Some(code) = error.code() else { return true };
    let is_moved = *code == SqlState::READ_ONLY_SQL_TRANSACTION || is_missing_table(error);
    class(code) == "57P" || class(code) == "08" || is_moved || is_recovery(error)
}

/// Whether a statement for several may have failed because of one of them: of what it says, not of who asks
/// or of the state that the server is in.
pub(crate) fn may_be_of_one(error: &Error) -> bool {
    error.code().is_some_and(|code| ["22", "23", "54"].contains(&class(code)))
}

/// Whether somebody else was in the way.
pub(crate) fn is_a_conflict(error: &Error) -> bool {
    error.code().is_some_and(|code| class(code) == "40" || *code == SqlState::LOCK_NOT_AVAILABLE)
}

fn is_recovery(error: &Error) -> bool {
    error.as_db_error().is_some_and(|said| {
        *said.code() == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE && said.message().contains("recovery")
    })
}

fn class(code: &SqlState) -> &str {
    let code = code.code();
    if code.starts_with("57P") { "57P" } else { &code[..2.min(code.len())] }
}

/// Did it happen?
fn fault(code: &SqlState) -> Fault {
    match class(code) {
        // The session was ended, perhaps while it waited for a replica to confirm what it had done.
        "57P" | "08" | "XX" | "F0" => Fault::Unknown,
        // A conflict, a time-out, too little of something: the transaction was rolled back.
        "40" | "53" | "54" | "55" | "57" | "58" => Fault::Refused,
        // Read-only for now: there may be another server to write to in a moment.
        "25" => Fault::Refused,
        _ if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) => Fault::Refused,
        _ => Fault::Denied,
    }
}

/// The server's own words, in one line.
pub(crate) fn words(said: &DbError) -> String {
    // One line, whatever the server has to say.
    let mut words = format!("PostgreSQL says: {} ({})", said.message().replace('\n', " "), said.code().code());
    if let Some(hint) = said.hint() {
        words.push_str(&format!("; {}", hint.replace('\n', " ")));
    }
    words
}

/// Locks belong to sessions, and a pooler gives those away.
pub(crate) fn pooler() -> StoreError {
    StoreError::denied(
        "there is a connection pooler (PgBouncer?) before PostgreSQL, which hands sessions from one program to the next: connect to the server itself, or use mode=lease",
    )
}
