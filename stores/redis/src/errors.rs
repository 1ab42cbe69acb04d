//! What went wrong, in words that say what to do, and whether it happened.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tenure_core::StoreError;

/// Classifies an error of a call that a server was asked.
pub(crate) fn of_asking(address: &str, error: RedisError) -> StoreError {
    match by_code(address, &error) {
        Some(told) => told.because(error),
        None if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) => {
            // An error from within a script leaves open how far it got.
            StoreError::unknown(format!("{address} failed")).because(error)
        }
        None => StoreError::unknown(format!("the connection to {address} was lost before it answered")).because(error),
    }
}

/// Classifies an error of connecting: nothing was asked yet, so nothing has happened.
pub(crate) fn of_connecting(address: &str, error: RedisError) -> StoreError {
    if let Some(told) = by_code(address, &error) {
        return told.because(error);
    }
    let said = error.to_string();
    if said.contains("CertificateRequired") {
        return StoreError::denied(format!("{address} wants to see a certificate of ours: ?cert=FILE&key=FILE"))
            .because(error);
    }
    let tls = ["tls", "certificate", "CorruptMessage", "InvalidContentType", "corrupt message"];
    match error.kind() {
        ErrorKind::RESP3NotSupported => {
            StoreError::denied(format!("{address} is too old: this needs Redis 6 or later, or Valkey"))
        }
        ErrorKind::AuthenticationFailed => wrong_password(address),
        ErrorKind::Parse => StoreError::denied(format!(
            "{address} does not speak Redis' protocol: see that the port is right, and whether it wants TLS (rediss://)"
        )),
        ErrorKind::InvalidClientConfig => StoreError::denied(format!("{address} cannot be connected to as configured")),
        _ if tls.iter().any(|word| said.contains(word)) => StoreError::denied(format!(
            "no TLS with {address}: see that it serves TLS (if not, redis://), and that its certificate is trusted (?ca=FILE) and names this host"
        )),
        _ if error.is_connection_refusal() => StoreError::refused(format!("nothing listens at {address}")),
        _ if error.is_connection_dropped() => StoreError::refused(format!(
            "{address} hung up before it said anything: it is going down, wants TLS (rediss://), or is no Redis server"
        )),
        _ => StoreError::refused(format!("{address} cannot be reached")),
    }
    .because(error)
}

/// The server answers, but not to TLS.
pub(crate) fn plain(address: &str) -> StoreError {
    StoreError::denied(format!("no TLS with {address}: it serves Redis' protocol without: redis://"))
}

/// The server is a replica.
pub(crate) fn replica(address: &str) -> StoreError {
    StoreError::refused(format!(
        "{address} is a replica and takes no writes (READONLY): name the master, or the Sentinels (redis+sentinel://)"
    ))
}

/// The server is one of several.
pub(crate) fn in_cluster(address: &str) -> StoreError {
    StoreError::denied(format!("{address} is part of a cluster: name it as redis+cluster://"))
}

/// The script is not known to the server.
pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) || said(error).contains("NOSCRIPT")
}

/// The server is no longer what it was when it was connected to.
pub(crate) fn is_demotion(error: &RedisError) -> bool {
    let said = said(error);
    ["READONLY", "MASTERDOWN", "NOAUTH"].iter().any(|code| said.contains(code))
}

/// Everything that an error says. Where a script was at fault, its code may stand anywhere in it.
fn said(error: &RedisError) -> String {
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

fn by_code(address: &str, error: &RedisError) -> Option<StoreError> {
    let said = said(error);
    let is = |code: &str| said.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == code);
    let detail = error.detail().unwrap_or_default();
    Some(if is("WRONGPASS") {
        wrong_password(address)
    } else if is("NOAUTH") {
        StoreError::denied(format!("{address} wants a password: redis://user:password@host"))
    } else if is("NOPERM") || said.contains("The user executing the script can't") {
        let detail = detail.split(" script:").next().unwrap_or_default();
        StoreError::denied(format!("{address} does not permit this ({detail}): see the README for the rights needed"))
    } else if is("WRONGTYPE") {
        StoreError::denied(format!(
            "there is a key at {address} in the place of the seat that Tenure did not write, as another library's lock: \
             use another name, or another ?prefix="
        ))
    } else if is("READONLY") {
        replica(address)
    } else if is("LOADING") {
        StoreError::refused(format!("{address} is loading its data"))
    } else if is("OOM") {
        StoreError::refused(format!("{address} has no memory left (OOM): raise maxmemory"))
    } else if is("MISCONF") {
        StoreError::refused(format!("{address} cannot save to its disk and refuses writes (MISCONF)"))
    } else if is("NOREPLICAS") {
        StoreError::refused(format!("{address} has fewer replicas than it wants (NOREPLICAS)"))
    } else if is("CLUSTERDOWN") || is("MASTERDOWN") || is("TRYAGAIN") {
        StoreError::refused(format!("{address} cannot serve this now ({})", error.code().unwrap_or_default()))
    } else if is("MOVED") || is("ASK") {
        in_cluster(address)
    } else if is("BUSY") {
        StoreError::refused(format!("{address} is busy with somebody's script (BUSY)"))
    } else if is("NOSCRIPT") {
        StoreError::refused(format!("{address} forgets scripts (NOSCRIPT)"))
    } else if said.contains("DB index is out of range") || said.contains("SELECT is not allowed in cluster mode") {
        StoreError::denied(format!("{address} has no such database: use a lower number, or raise `databases` there"))
    } else if said.contains("unknown command") {
        StoreError::denied(format!(
            "{address} does not know a command that is needed: is it a Redis server, 6 or later?"
        ))
    } else if said.contains("max number of clients reached") {
        StoreError::refused(format!("{address} takes no more connections: raise maxclients"))
    } else {
        return None;
    })
}

fn wrong_password(address: &str) -> StoreError {
    StoreError::denied(format!(
        "{address} knows no such user and password (WRONGPASS): see that they are right: redis://user:password@host"
    ))
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    fn of(answer: &str) -> StoreError {
        let value = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        of_asking("host:1", value.extract_error().unwrap_err())
    }

    #[test]
    fn what_servers_say_is_told_apart() {
        for (answer, fault, told) in [
            ("LOADING Redis is loading the dataset in memory", Fault::Refused, "is loading its data"),
            ("OOM command not allowed when used memory > 'maxmemory'.", Fault::Refused, "no memory left"),
            ("MISCONF Redis is configured to save RDB snapshots", Fault::Refused, "cannot save"),
            ("READONLY You can't write against a read only replica.", Fault::Refused, "is a replica"),
            ("CLUSTERDOWN The cluster is down", Fault::Refused, "cannot serve this now (CLUSTERDOWN)"),
            ("MASTERDOWN RedisConnection with MASTER is down", Fault::Refused, "cannot serve this now (MASTERDOWN)"),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Fault::Refused, "cannot serve this now"),
            ("NOREPLICAS Not enough good replicas to write.", Fault::Refused, "fewer replicas"),
            ("BUSY Redis is busy running a script.", Fault::Refused, "busy with somebody's script"),
            ("NOSCRIPT No matching script.", Fault::Refused, "forgets scripts"),
            ("MOVED 3999 127.0.0.1:6381", Fault::Denied, "redis+cluster://"),
            ("NOAUTH Authentication required.", Fault::Denied, "wants a password"),
            ("WRONGPASS invalid username-password pair", Fault::Denied, "no such user and password"),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Fault::Denied, "does not permit this"),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", Fault::Denied, "did not write"),
            ("ERR unknown command 'EVALSHA'", Fault::Denied, "does not know a command"),
            // As older servers put what went wrong within a script.
            (
                "ERR Error running script (call to f_1): @user_script:4: -OOM command not allowed",
                Fault::Refused,
                "no memory left",
            ),
            ("ERR something that nobody has thought of", Fault::Unknown, "host:1 failed"),
        ] {
            let error = of(answer);
            assert_eq!(error.fault(), fault, "{answer}");
            assert!(error.to_string().contains(told), "{answer}: {error}");
            assert!(std::error::Error::source(&error).is_some(), "the server's own words are kept");
        }
    }
}
