//! What went wrong, and whether it happened all the same.

use std::error::Error as _;
use std::io;

use tenure_core::{Fault, StoreError};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::connect::{Place, Target};
use crate::options::SslMode;
use crate::socket::NOT_POSTGRES;

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
    let kind = error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
    let is_broken =
        matches!(kind, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::TimedOut));
    let mode = ssl.as_str();
    if cause.contains(NOT_POSTGRES) {
        StoreError::denied(format!("{target}: {NOT_POSTGRES}"))
    } else if cause.contains("password missing") {
        StoreError::denied(format!("{target} wants a password, and none was given"))
    } else if kind == Some(io::ErrorKind::Unsupported) {
        StoreError::denied(format!(
            "the server at {target} does not encrypt, but sslmode={mode} wants it: turn on ssl there, or use sslmode=prefer"
        ))
    } else if error.to_string().contains("TLS") && !is_broken {
        StoreError::denied(format!("no encryption with {target} as sslmode={mode} wants it: {cause}"))
    } else if let Some(kind) = kind {
        unreachable(target, io::Error::new(kind, cause))
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
    if is_missing_table(said.code()) || *said.code() == SqlState::INSUFFICIENT_PRIVILEGE {
        words.push_str("; ask an administrator to run the output of `tenure schema postgres --role ROLE`");
    }
    match fault(said.code()) {
        Fault::Refused => StoreError::refused(words),
        Fault::Unknown => StoreError::unknown(words),
        Fault::Denied => StoreError::denied(words),
    }
}

/// Whether a table is missing. The next connection creates it if its role may.
fn is_missing_table(code: &SqlState) -> bool {
    [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code)
}

/// A statement failed.
#[derive(Debug)]
pub(crate) enum Failed {
    Driver(Error),
    Unanswered,
}

impl Failed {
    fn said(&self) -> Option<&DbError> {
        if let Self::Driver(error) = self { error.as_db_error() } else { None }
    }

    /// Whether the server has said nothing, so that the statement may still go on.
    pub(crate) fn is_open(&self) -> bool {
        self.said().is_none()
    }

    pub(crate) fn is_missing_table(&self) -> bool {
        self.said().is_some_and(|said| is_missing_table(said.code()))
    }

    /// Whether nothing has happened, and one of several seats may be to blame: what it says, or that somebody else is
    /// just writing the same; not who asks, or the state that the server is in.
    pub(crate) fn is_caused_by_one(&self) -> bool {
        let is_one =
            |code: &SqlState| ["22", "23", "40", "54"].contains(&class(code)) || *code == SqlState::LOCK_NOT_AVAILABLE;
        self.said().is_some_and(|said| is_one(said.code()))
    }

    /// Whether the connection is of no more use: another one, or another server, may do better.
    pub(crate) fn ends_the_connection(&self) -> bool {
        let Some(said) = self.said() else { return true };
        let code = said.code();
        let is_recovery = *code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE && said.message().contains("recovery");
        let is_read_only = *code == SqlState::READ_ONLY_SQL_TRANSACTION || is_recovery;
        ["57P", "08"].contains(&class(code)) || is_missing_table(code) || is_read_only
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Driver(error) => of_statement(error),
            Failed::Unanswered => Self::unknown("PostgreSQL does not answer"),
        }
    }
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
        _ if is_missing_table(code) => Fault::Refused,
        _ => Fault::Denied,
    }
}

/// The server's own words, in one line.
pub(crate) fn words(said: &DbError) -> String {
    // One connection, whatever the server has to say.
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

/// Two elections cannot share one lock.
pub(crate) fn one_lock() -> StoreError {
    StoreError::denied("lock_id is one lock, for one election: give another election a store of its own")
}
