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
            "{address} hung up before it said anything: it is going down, or wants TLS (rediss://)"
        )),
        _ => StoreError::refused(format!("{address} cannot be reached")),
    }
    .because(error)
}

/// The server is a replica.
pub(crate) fn replica(address: &str) -> StoreError {
    StoreError::refused(format!(
        "{address} is a replica and takes no writes (READONLY): name the master, or the Sentinels (redis+sentinel://)"
    ))
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
    } else if is("NOPERM") {
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
        StoreError::denied(format!("{address} is part of a cluster: name it as redis+cluster://"))
    } else if is("BUSY") {
        StoreError::refused(format!("{address} is busy with somebody's script (BUSY)"))
    } else if is("NOSCRIPT") {
        StoreError::refused(format!("{address} forgets scripts (NOSCRIPT)"))
    } else if said.contains("DB index is out of range") || said.contains("SELECT is not allowed in cluster mode") {
        StoreError::denied(format!("{address} has no such database"))
    } else if said.contains("max number of clients reached") {
        StoreError::refused(format!("{address} takes no more connections: raise maxclients"))
    } else {
        return None;
    })
}

fn wrong_password(address: &str) -> StoreError {
    StoreError::denied(format!("{address} knows no such user and password (WRONGPASS)"))
}
