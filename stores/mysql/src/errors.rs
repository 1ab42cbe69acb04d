//! Errors: their messages, and whether the failed statement took effect ([`Fault`]).

use std::io;

use mysql_async::{DriverError, Error, IoError, ServerError};
use tenure_core::{Fault, StoreError};
use tenure_kit::socket::{self, Address};
use tenure_kit::sql::BatchError;

use crate::options::SslMode;

const TLS_ADVICE: &str = "check the certificates and the host name";

/// Describes a connection that could not be opened, or that ended before the log-in.
pub(crate) fn unreachable(address: &Address, error: io::Error) -> StoreError {
    socket::unreachable(address, "MySQL", TLS_ADVICE, error)
}

/// Describes a server that accepts a connection, or may have accepted it, but does not answer.
pub(crate) fn silent(address: &Address) -> StoreError {
    socket::silent(address, "MySQL")
}

/// Describes a server that does not accept writes. If other hosts are named, the error is not permanent: one of them
/// may be promoted.
pub(crate) fn read_only(address: &Address, is_alone: bool) -> StoreError {
    match is_alone {
        true => StoreError::denied(format!(
            "{address} is read-only (read_only or innodb_read_only), as a replica is, and does not accept writes; name the primary, or all \
             hosts, separated by commas"
        )),
        false => StoreError::refused(format!(
            "{address} is read-only (read_only or innodb_read_only), and no other host accepts writes; check that one of the hosts is the \
             primary"
        )),
    }
}

/// Describes a log-in that failed.
pub(crate) fn login_failed(address: &Address, ssl: SslMode, error: Error) -> StoreError {
    let mode = ssl.as_str();
    match error {
        Error::Server(reply) => {
            let advice = match reply.code {
                1045 | 1698 => "; check user and password",
                1044 | 1130 => "; ask an administrator to grant this user access",
                1049 => "; create the database, or name another one",
                1040 | 1203 | 1226 => "; raise max_connections, or the limit of this user",
                _ => "",
            };
            let message = format!("cannot log in to {address}: {}{advice}", message_of(&reply));
            match fault(&reply) {
                Fault::Denied => StoreError::denied(message),
                // A log-in writes nothing, and the next one may succeed.
                Fault::Refused | Fault::Unknown => StoreError::refused(message),
            }
        }
        Error::Driver(DriverError::NoClientSslFlagFromServer) => StoreError::denied(format!(
            "cannot connect to {address}: the server does not support TLS, but ssl-mode={mode} requires it; turn on TLS \
             on the server, or use ssl-mode=preferred"
        )),
        Error::Driver(DriverError::UnknownAuthPlugin { name }) => StoreError::denied(format!(
            "cannot log in to {address}: the user logs in with {name}, which is not supported; use another plugin for \
             this user"
        )),
        Error::Io(error) if tenure_kit::is_about_tls(&error) => {
            tenure_kit::no_tls(format!("{address} (ssl-mode={mode})"), TLS_ADVICE, &error)
        }
        Error::Io(IoError::Io(error)) if socket::is_closed(&error) => unreachable(address, error),
        // The socket is open by now, so this is about a file.
        Error::Io(IoError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            StoreError::denied("a file of ssl-ca, ssl-cert or ssl-key does not exist; correct its path").because(error)
        }
        error => StoreError::denied(format!(
            "cannot connect to {address}: the server does not speak the MySQL protocol; check host and port"
        ))
        .because(error),
    }
}

/// The error of a batch of statements.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The server replied with an error to a statement of the batch, after as many statements that succeeded.
    Reply(ServerError, usize),
    /// The connection broke.
    Broken(Error),
    /// The server did not reply in time.
    Unanswered,
}

impl Failed {
    fn reply(&self) -> Option<&ServerError> {
        if let Self::Reply(reply, _) = self { Some(reply) } else { None }
    }

    /// Returns whether the statement had no effect and one of its seats may be the cause: by the content of its record,
    /// or by a conflict with another transaction.
    fn is_caused_by_one(&self) -> bool {
        let is_one = |reply: &ServerError| {
            matches!(reply.code, 1020 | 1205 | 1213 | 1366 | 3572) || ["22", "23"].contains(&class(reply))
        };
        self.reply().is_some_and(is_one)
    }

    /// Returns the error for a batch in which the statement at this place is the only one that writes. If a later
    /// statement failed, the write has happened, and the answer about each seat is missing.
    pub(crate) fn into_error(self, writes_at: usize) -> StoreError {
        match self {
            Self::Reply(reply, at) if at > writes_at => {
                StoreError::unknown(format!("a MySQL statement after a write failed: {}", message_of(&reply)))
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
        self.reply().is_none_or(|reply| is_read_only(reply) || matches!(reply.code, 1046 | 1053 | 1152 | 1927))
    }

    fn is_missing_table(&self) -> bool {
        self.reply().is_some_and(|reply| reply.code == 1146)
    }
}

impl From<Failed> for StoreError {
    fn from(failed: Failed) -> Self {
        let is_caused_by_one = failed.is_caused_by_one();
        let error = match failed {
            Failed::Reply(reply, _) => {
                let mut message = format!("a MySQL statement failed: {}", message_of(&reply));
                if matches!(reply.code, 1142 | 1143 | 1146) {
                    message.push_str("; ask an administrator to run the output of `tenure schema mysql --role USER`");
                } else if reply.code == 1665 {
                    message.push_str("; set binlog_format to ROW or MIXED");
                }
                match fault(&reply) {
                    Fault::Refused => Self::refused(message),
                    Fault::Unknown => Self::unknown(message),
                    Fault::Denied => Self::denied(message),
                }
            }
            Failed::Broken(error) => Self::unknown("the connection to MySQL failed during a statement").because(error),
            Failed::Unanswered => Self::unknown("MySQL does not answer"),
        };
        if is_caused_by_one { error.caused_by_one() } else { error }
    }
}

fn class(reply: &ServerError) -> &str {
    reply.state.get(..2).unwrap_or_default()
}

fn is_read_only(reply: &ServerError) -> bool {
    matches!(reply.code, 1290 | 1792 | 1836)
}

/// Returns whether a statement with this error took effect.
fn fault(reply: &ServerError) -> Fault {
    match reply.code {
        // A conflict or a lock wait time-out: the statement was rolled back.
        1020 | 1205 | 1213 | 3572 => Fault::Refused,
        // A lack of connections, memory or disk: the statement was not executed, or was rolled back.
        1021 | 1037 | 1038 | 1040 | 1041 | 1114 | 1135 | 1203 | 1226 => Fault::Refused,
        // A missing table. The next connection creates it if its user is allowed to.
        1146 => Fault::Refused,
        // Read-only for now: another server may be promoted.
        _ if is_read_only(reply) => Fault::Refused,
        // No access for this user, host or database; a server or a binary log that is configured otherwise.
        1044 | 1045 | 1049 | 1130 | 1142 | 1143 | 1227 | 1370 | 1410 | 1665 | 1698 | 1366 => Fault::Denied,
        // The content of a value, or a statement that the server does not understand.
        _ if ["22", "23", "42"].contains(&class(reply)) => Fault::Denied,
        // A shutdown (1053), a kill (1317, 1927), a time-out (1969, 3024) or any other error: possibly after the commit.
        _ => Fault::Unknown,
    }
}

/// Returns the server's message and its code, in one line.
pub(crate) fn message_of(reply: &ServerError) -> String {
    format!("{} (error {})", reply.message.replace('\n', " "), reply.code)
}

/// Describes a proxy in `mode=session`: locks belong to sessions, and a proxy shares those between programs.
pub(crate) fn pooler() -> StoreError {
    StoreError::denied(
        "mode=session does not work through a proxy (ProxySQL?), which shares sessions between programs; connect to the server directly, or use mode=lease",
    )
}

/// Describes a cluster with several primaries in `mode=session`.
pub(crate) fn cluster(cluster: &str) -> StoreError {
    StoreError::denied(format!(
        "mode=session does not work with {cluster}, whose servers do not share locks; use mode=lease"
    ))
}

/// Describes a read-only server that answered in place of the primary.
pub(crate) fn answered_by_replica() -> StoreError {
    StoreError::refused(
        "the server has become read-only, or a proxy has sent the statement to a replica; send all statements to the primary",
    )
}
