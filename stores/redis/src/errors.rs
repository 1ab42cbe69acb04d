//! Errors: their messages, and whether the failed call took effect ([`Fault`](tenure_core::Fault)).

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tenure_core::StoreError;
use tenure_kit::is_about_tls;

/// Classifies an error of a call that was sent.
pub(crate) fn call_failed(address: &str, error: RedisError) -> StoreError {
    match by_code(address, &error) {
        Some(known) => known.because(error),
        None if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
            // An unknown error from within a script does not say whether the script wrote before it.
            StoreError::unknown(format!("a call to {address} failed")).because(error)
        }
        None => StoreError::unknown(format!("the connection to {address} was lost before the answer arrived"))
            .because(error),
    }
}

/// Classifies an error of connecting. No call was sent, so nothing was written.
pub(crate) fn connect_failed(address: &str, error: RedisError) -> StoreError {
    if let Some(known) = by_code(address, &error) {
        return known.because(error);
    }
    if error.to_string().contains("CertificateRequired") {
        return StoreError::denied(format!("{address} requires a client certificate; give one: ?cert=FILE&key=FILE"))
            .because(error);
    }
    let is_closed = error.is_connection_dropped() && !error.is_connection_refusal() && !is_about_tls(&error);
    match error.kind() {
        ErrorKind::RESP3NotSupported => {
            StoreError::denied(format!("{address} is too old; upgrade it to Redis 6 or later, or to Valkey"))
        }
        ErrorKind::AuthenticationFailed => wrong_password(address),
        ErrorKind::Parse => StoreError::denied(format!(
            "{address} does not speak the Redis protocol; check the port, and whether it requires TLS (rediss://)"
        )),
        ErrorKind::InvalidClientConfig => {
            StoreError::denied(format!("cannot connect to {address} with this configuration; check the URL"))
        }
        _ if is_closed => StoreError::refused(format!(
            "{address} closed the connection at once; it is shutting down, requires TLS (rediss://), or is not a Redis \
             server"
        )),
        _ => return tenure_kit::cannot_connect(address, "the server", TLS_ADVICE, &error),
    }
    .because(error)
}

const TLS_ADVICE: &str = "check that it serves TLS (if not, use redis://), and that its certificate is trusted (?ca=FILE) \
     and names this host";

/// Describes a server that speaks the Redis protocol, but without TLS.
pub(crate) fn plain(address: &str) -> StoreError {
    StoreError::denied(format!(
        "cannot establish TLS with {address}: it serves the Redis protocol without TLS; use redis://"
    ))
}

/// Describes a server that is a replica.
pub(crate) fn replica(address: &str) -> StoreError {
    StoreError::refused(format!(
        "{address} is a replica and does not accept writes (READONLY); name the master, or the Sentinels \
         (redis+sentinel://)"
    ))
}

/// Describes a node of a cluster that the URL names as a single server.
pub(crate) fn in_cluster(address: &str) -> StoreError {
    StoreError::denied(format!("{address} is part of a cluster; use redis+cluster://"))
}

/// Returns whether the server does not have the script.
pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) || message_of(error).contains("NOSCRIPT")
}

/// Returns whether the server has become a replica or requires another log-in, so that a new connection is needed.
pub(crate) fn is_demotion(error: &RedisError) -> bool {
    let message = message_of(error);
    ["READONLY", "MASTERDOWN", "NOAUTH"].iter().any(|code| message.contains(code))
}

/// Returns the code and the detail of an error. If a command within a script failed, its code may be anywhere in
/// them.
fn message_of(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

fn by_code(address: &str, error: &RedisError) -> Option<StoreError> {
    let message = message_of(error);
    let is = |code: &str| message.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == code);
    let detail = error.detail().unwrap_or_default();
    Some(if is("WRONGPASS") {
        wrong_password(address)
    } else if is("NOAUTH") {
        StoreError::denied(format!("{address} requires a password; give one: redis://user:password@host"))
    } else if is("NOPERM") || message.contains("The user executing the script can't") {
        let detail = detail.split(" script:").next().unwrap_or_default();
        StoreError::denied(format!(
            "{address} does not permit a command ({detail}); grant the rights that the README of tenure-redis lists"
        ))
    } else if is("WRONGTYPE") {
        StoreError::denied(format!(
            "a key at {address} has the name of the seat, but Tenure did not write it (it may be another library's lock); \
             use another election name, or another ?prefix="
        ))
    } else if is("READONLY") {
        replica(address)
    } else if is("LOADING") {
        StoreError::refused(format!("{address} is still loading its data (LOADING); wait until it has finished"))
    } else if is("OOM") {
        StoreError::refused(format!("{address} has no memory left (OOM); raise maxmemory"))
    } else if is("MISCONF") {
        StoreError::refused(format!(
            "{address} cannot save to its disk and refuses writes (MISCONF); check its disk and its log"
        ))
    } else if is("NOREPLICAS") {
        StoreError::refused(format!(
            "{address} has fewer replicas than min-replicas-to-write requires (NOREPLICAS); check its replicas"
        ))
    } else if is("CLUSTERDOWN") || is("MASTERDOWN") || is("TRYAGAIN") {
        StoreError::refused(format!(
            "{address} cannot serve the call now ({}); check its cluster or its master",
            error.code().unwrap_or_default()
        ))
    } else if is("MOVED") || is("ASK") {
        in_cluster(address)
    } else if is("BUSY") {
        StoreError::refused(format!("{address} is busy with another client's script (BUSY); run SCRIPT KILL to end it"))
    } else if is("NOSCRIPT") {
        StoreError::refused(format!(
            "{address} does not keep scripts (NOSCRIPT); check whether another client runs SCRIPT FLUSH"
        ))
    } else if message.contains("DB index is out of range") || message.contains("SELECT is not allowed in cluster mode")
    {
        StoreError::denied(format!("{address} has no such database; use a lower number, or raise `databases` on it"))
    } else if message.contains("unknown command") {
        StoreError::denied(format!(
            "{address} does not know a command that Tenure needs; check that it is Redis 6 or later, or Valkey"
        ))
    } else if message.contains("max number of clients reached") {
        StoreError::refused(format!("{address} accepts no more connections; raise maxclients"))
    } else {
        return None;
    })
}

fn wrong_password(address: &str) -> StoreError {
    StoreError::denied(format!(
        "{address} rejected the user or the password (WRONGPASS); check them: redis://user:password@host"
    ))
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    fn of(answer: &str) -> StoreError {
        let value = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        call_failed("host:1", value.extract_error().unwrap_err())
    }

    #[test]
    fn errors_of_servers_are_classified() {
        for (answer, fault, expected) in [
            ("LOADING Redis is loading the dataset in memory", Fault::Refused, "is still loading its data"),
            ("OOM command not allowed when used memory > 'maxmemory'.", Fault::Refused, "no memory left"),
            ("MISCONF Redis is configured to save RDB snapshots", Fault::Refused, "cannot save"),
            ("READONLY You can't write against a read only replica.", Fault::Refused, "is a replica"),
            ("CLUSTERDOWN The cluster is down", Fault::Refused, "cannot serve the call now (CLUSTERDOWN)"),
            (
                "MASTERDOWN RedisConnection with MASTER is down",
                Fault::Refused,
                "cannot serve the call now (MASTERDOWN)",
            ),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Fault::Refused, "cannot serve the call now"),
            ("NOREPLICAS Not enough good replicas to write.", Fault::Refused, "fewer replicas"),
            ("BUSY Redis is busy running a script.", Fault::Refused, "busy with another client's script"),
            ("NOSCRIPT No matching script.", Fault::Refused, "does not keep scripts"),
            ("MOVED 3999 127.0.0.1:6381", Fault::Denied, "redis+cluster://"),
            ("NOAUTH Authentication required.", Fault::Denied, "requires a password"),
            ("WRONGPASS invalid username-password pair", Fault::Denied, "rejected the user or the password"),
            (
                "NOPERM this user has no permissions to run the 'evalsha' command",
                Fault::Denied,
                "does not permit a command",
            ),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Fault::Denied, "did not write"),
            ("ERR unknown command 'EVALSHA'", Fault::Denied, "does not know a command"),
            // The form in which older servers report an error within a script.
            (
                "ERR Error running script (call to f_1): @user_script:4: -OOM command not allowed",
                Fault::Refused,
                "no memory left",
            ),
            ("ERR some unknown error", Fault::Unknown, "a call to host:1 failed"),
        ] {
            let error = of(answer);
            assert_eq!(error.fault(), fault, "{answer}");
            assert!(error.to_string().contains(expected), "{answer}: {error}");
            assert!(std::error::Error::source(&error).is_some(), "{answer}: the server's error is not the source");
        }
    }
}
