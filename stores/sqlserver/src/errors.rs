//! Errors: their messages, and whether the failed statement took effect ([`Fault`]).

use std::io;

use tenure_core::{Fault, StoreError};
use tenure_kit::socket::{self, Address};
use tenure_kit::sql::BatchError;
use tiberius::error::{Error, TokenError};

use crate::options::Encrypt;

const TLS_ADVICE: &str = "check the certificates and the host name, or set trust_server_certificate=true";

/// Describes a connection that could not be opened, or that ended before the log-in.
pub(crate) fn unreachable(address: &Address, error: io::Error) -> StoreError {
    socket::unreachable(address, "SQL", TLS_ADVICE, error)
}

/// Describes a server that accepts a connection, or may have accepted it, but does not answer.
pub(crate) fn silent(address: &Address) -> StoreError {
    socket::silent(address, "SQL")
}

/// Describes a database that does not accept writes. If other hosts are named, the error is not permanent: one of them
/// may become the primary.
pub(crate) fn read_only(address: &Address, is_alone: bool) -> StoreError {
    match is_alone {
        true => StoreError::denied(format!(
            "the database at {address} is read-only, as a secondary replica is; name the listener or the primary"
        )),
        false => StoreError::refused(format!(
            "the database at {address} is read-only, and no other host accepts writes; check that one of the hosts is the \
             primary"
        )),
    }
}

/// Describes a log-in that failed.
pub(crate) fn login_failed(address: &Address, encrypt: Encrypt, error: Error) -> StoreError {
    let setting = encrypt.as_str();
    let no_tls = |cause: &str| {
        tenure_kit::no_tls(format!("{address} (encrypt={setting})"), TLS_ADVICE, &io::Error::other(cause.to_owned()))
    };
    match error {
        Error::Server(reply) => {
            let advice = match reply.code() {
                18456 | 18452 | 18470 | 18486 | 18487 | 18488 => "; check user and password",
                916 => "; ask an administrator to create a user for this login in the database",
                4060 => "; create the database, or name another one, and create a user for this login in it",
                _ => "",
            };
            let message = format!("cannot log in to {address}: {}{advice}", message_of(&reply));
            match fault(&reply) {
                Fault::Denied => StoreError::denied(message),
                // A log-in writes nothing, and the next one may succeed.
                Fault::Refused | Fault::Unknown => StoreError::refused(message),
            }
        }
        Error::Protocol(text) if text.contains("encryption level") => StoreError::denied(format!(
            "cannot connect to {address}: the server does not support encryption, but encrypt={setting} requires it; turn \
             it on on the server, or use encrypt=disable"
        )),
        Error::Io { kind, message } if socket::is_closed(&kind.into()) => {
            unreachable(address, io::Error::new(kind, message))
        }
        // The socket is open by now, so this is about a file.
        Error::Io { kind: io::ErrorKind::NotFound, message } => {
            StoreError::denied("the file of the option ca does not exist; correct its path").because(message)
        }
        // The driver's advice is about its own API.
        Error::Tls(text) => no_tls(text.split(". ").next().unwrap_or_default()),
        Error::Io { message, .. } if tenure_kit::is_about_tls(&io::Error::other(message.as_str())) => no_tls(&message),
        error => StoreError::denied(format!(
            "cannot connect to {address}: the server does not speak the TDS protocol; check host and port"
        ))
        .because(error),
    }
}

/// The error of a batch of statements.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The server replied with an error, after as many statements that returned rows.
    Reply(TokenError, usize),
    /// The connection broke.
    Broken(Error),
    /// The server did not reply in time.
    Unanswered,
}

/// The number of the error that a batch raises if the session no longer holds its lock.
pub(crate) const NOT_OUR_SESSION: u32 = 50_117;

impl Failed {
    fn code(&self) -> u32 {
        if let Self::Reply(reply, _) = self { reply.code() } else { 0 }
    }

    /// Returns whether the statement had no effect and one of its seats may be the cause: by the content of its record,
    /// or by a conflict with another transaction.
    fn is_caused_by_one(&self) -> bool {
        is_conflict(self.code()) || is_about_content(self.code())
    }

    /// Returns the error for a batch whose first rows come right after its only write. If a later statement failed, the
    /// write has happened, and the answer about each seat is missing.
    pub(crate) fn after_a_write(self) -> StoreError {
        match self {
            Self::Reply(reply, at) if at > 0 => {
                StoreError::unknown(format!("a SQL Server statement after a write failed: {}", message_of(&reply)))
            }
            failed => failed.into(),
        }
    }
}

impl BatchError for Failed {
    fn unanswered() -> Self {
        Self::Unanswered
    }

    fn ends_the_connection(&self) -> bool {
        // The server closes the connection after an error of class 20 or higher.
        let is_over = |reply: &TokenError| {
            reply.class() >= 20 || is_read_only(reply.code()) || [596, 6005, NOT_OUR_SESSION].contains(&reply.code())
        };
        if let Self::Reply(reply, _) = self { is_over(reply) } else { true }
    }

    fn is_missing_table(&self) -> bool {
        self.code() == 208
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        let is_caused_by_one = failed.is_caused_by_one();
        let error = match failed {
            Failed::Reply(reply, _) if reply.code() == NOT_OUR_SESSION => Self::refused(
                "the session has lost its lock: a pool or a proxy in between shares sessions, or the lock was released \
                 by hand; connect to the server directly, or use mode=lease",
            ),
            Failed::Reply(reply, _) => {
                let mut message = format!("a SQL Server statement failed: {}", message_of(&reply));
                if [208, 229, 230].contains(&reply.code()) {
                    message
                        .push_str("; ask an administrator to run the output of `tenure schema sqlserver --role USER`");
                }
                match fault(&reply) {
                    Fault::Refused => Self::refused(message),
                    Fault::Unknown => Self::unknown(message),
                    Fault::Denied => Self::denied(message),
                }
            }
            Failed::Broken(error) => {
                Self::unknown("the connection to SQL Server failed during a statement").because(error)
            }
            Failed::Unanswered => Self::unknown("SQL Server does not answer"),
        };
        if is_caused_by_one { error.caused_by_one() } else { error }
    }
}

/// A deadlock, a lock time-out, a conflict of snapshots or a row that exists: the statement was rolled back.
fn is_conflict(code: u32) -> bool {
    [1205, 1222, 2601, 2627, 3960].contains(&code)
}

/// A value that a column or a conversion does not accept.
fn is_about_content(code: u32) -> bool {
    [2628, 8114, 8115, 8152, 9803, 13609].contains(&code)
}

/// A database that is, or has become, a secondary replica or read-only.
fn is_read_only(code: u32) -> bool {
    [976, 978, 983, 3906].contains(&code)
}

/// Returns whether a statement with this error took effect.
fn fault(reply: &TokenError) -> Fault {
    match reply.code() {
        code if is_conflict(code) || is_read_only(code) => Fault::Refused,
        // A lack of memory, locks, disk or connections, or a server that is busy: the statement was not executed, or was
        // rolled back.
        701 | 802 | 1101 | 1105 | 1204 | 8645 | 8651 | 9002 | 10928 | 10929 | 17809 | 17810 | 40501 | 40544 | 40613 => {
            Fault::Refused
        }
        // A missing table, which the next connection creates if its login is allowed to; or a table that another process
        // has just created.
        208 | 2714 => Fault::Refused,
        // No access for this login, database or object.
        229 | 230 | 262 | 297 | 300 | 916 | 2760 | 4060 | 6102 | 15247 | 15151 => Fault::Denied,
        18450..=18470 | 18486..=18488 | 40615 => Fault::Denied,
        code if is_about_content(code) => Fault::Denied,
        // A statement or a table that the server does not understand: it did not compile.
        102 | 156 | 195 | 207 | 213 | 2812 => Fault::Denied,
        // A kill (596), a shutdown (6005) or any other error: possibly after the commit.
        _ => Fault::Unknown,
    }
}

/// Returns the server's message and its number, in one line.
pub(crate) fn message_of(reply: &TokenError) -> String {
    format!("{} (error {})", reply.message().replace(['\r', '\n'], " "), reply.code())
}

/// Describes a secondary replica that answered in place of the primary.
pub(crate) fn answered_by_replica() -> StoreError {
    StoreError::refused(
        "the database has become read-only, as a secondary replica is; another replica is the primary now",
    )
}
