//! Maps errors of members to messages that say what to do, and to faults that say whether the call took effect.

use std::error::Error as _;
use std::io;

use tenure_core::StoreError;
use tonic::{Code, Status};

/// What a member reports, and the message for it. No retry succeeds until the setup is changed.
const DENIED: &[(&str, &str)] = &[
    ("permission denied", "denied permission; grant the user a role with readwrite on the prefix (see the README)"),
    ("user name is empty", "requires a user and a password; use etcd://user:password@host"),
    ("invalid user ID or password", "rejected the user or the password; check both"),
    (
        "authentication is not enabled",
        "has authentication disabled, but a user is configured; remove the user, or run `etcdctl auth enable`",
    ),
    ("too many operations", "accepts too few operations per transaction; set its --max-txn-ops to at least 128"),
    ("corrupt", "reports that its data is corrupt; see `etcdctl alarm list`"),
];

/// The call had no effect, and can succeed later.
const REFUSED: &[(&str, &str)] = &[
    (UNKNOWN_TOKEN, "no longer accepts the login token"),
    (OLD_TOKEN, "no longer accepts the login token"),
    // Reported before the call has any effect, because all calls require a leader (`hasleader`).
    ("no leader", "has no leader; most members of the cluster are down or unreachable from it"),
    ("database space exceeded", "has no space left; compact and defragment it, then run `etcdctl alarm disarm`"),
    ("too many requests", "is overloaded (too many requests)"),
    ("lease not found", "reports that the lease of this process has ended"),
];

/// The call may have taken effect.
const UNKNOWN: &[(&str, &str)] = &[
    ("leader changed", "could not commit in time; the cluster is electing a leader, or is slow"),
    ("request timed out", "could not commit in time; the cluster is electing a leader, or is slow"),
];

const UNKNOWN_TOKEN: &str = "invalid auth token";
const OLD_TOKEN: &str = "revision of auth store is old";

/// Classifies the error of a call to a member.
pub(crate) fn from_call(address: &str, status: Status) -> StoreError {
    let message = status.message();
    let known = |table: &[(&str, &str)]| {
        let (_, text) = table.iter().find(|(said, _)| message.contains(said))?;
        Some(format!("{address} {text}"))
    };
    let error = if is_broken(&status) {
        StoreError::unknown(format!("the connection to {address} was lost before it answered"))
    } else if let Some(text) = known(DENIED) {
        StoreError::denied(text)
    } else if let Some(text) = known(REFUSED) {
        StoreError::refused(text)
    } else if let Some(text) = known(UNKNOWN) {
        StoreError::unknown(text)
    } else {
        match status.code() {
            Code::Unimplemented => StoreError::denied(format!("{address} is not etcd 3.4 or later")),
            Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => {
                StoreError::denied(format!("{address} rejected the call: {message}"))
            }
            _ => StoreError::unknown(format!("the call to {address} failed: {message}")),
        }
    };
    match causes(&status) {
        Some(causes) => error.because(causes),
        None => error,
    }
}

/// Returns the causes of an error of the connection; `None` for an error that a member reported.
fn causes(status: &Status) -> Option<String> {
    status.source().map(tenure_kit::causes)
}

/// Whether the connection failed. Otherwise the member answered with an error.
pub(crate) fn is_broken(status: &Status) -> bool {
    status.source().is_some() || status.code() == Code::Cancelled
}

/// Whether the other end cancelled a stream although the connection works.
pub(crate) fn is_cancelled_stream(status: &Status) -> bool {
    status.source().is_none() && status.message().contains("context canceled")
}

/// Whether the member no longer accepts the login token. Then the call had no effect.
pub(crate) fn is_stale_login(status: &Status) -> bool {
    let said = status.message();
    said.contains(UNKNOWN_TOKEN) || said.contains(OLD_TOKEN)
}

/// Classifies a failure to connect.
pub(crate) fn unreachable(address: &str, error: io::Error) -> StoreError {
    tenure_kit::cannot_connect(address, "etcd", TLS_ADVICE, &error)
}

/// Classifies a failed TLS handshake.
pub(crate) fn no_tls(address: &str, error: io::Error) -> StoreError {
    tenure_kit::no_tls(address, TLS_ADVICE, &error)
}

const TLS_ADVICE: &str = "check that it serves TLS (otherwise use etcd://), that its certificate is trusted (?ca=FILE) and \
     names this host, and whether it requires a client certificate (?cert=FILE&key=FILE)";

/// Classifies an error of the first call on a connection, when the server may be something other than etcd.
pub(crate) fn from_first_call(address: &str, status: Status) -> StoreError {
    if !is_broken(&status) {
        return from_call(address, status);
    }
    let advice = "check the port, and whether it requires TLS (etcds://) or a client certificate (?cert=FILE&key=FILE)";
    let said = causes(&status).unwrap_or_default();
    let foreign = ["frame", "preface", "protocol error", "CertificateRequired", "BadCertificate", "alert", "Handshake"];
    let error = if foreign.iter().any(|word| said.contains(word)) {
        StoreError::denied(format!("{address} did not answer as etcd does; {advice}"))
    } else {
        StoreError::refused(format!(
            "{address} closed the connection without an answer; if it is not shutting down, {advice}"
        ))
    };
    error.because(said)
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    #[test]
    fn each_error_of_a_member_has_its_fault_and_its_advice() {
        for (code, said, fault, expected) in [
            (Code::PermissionDenied, "etcdserver: permission denied", Fault::Denied, "denied permission"),
            (Code::InvalidArgument, "etcdserver: user name is empty", Fault::Denied, "requires a user and a password"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Fault::Denied,
                "rejected the user",
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
                Fault::Denied,
                "etcdctl auth enable",
            ),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Fault::Refused, "login token"),
            (Code::Unavailable, "etcdserver: no leader", Fault::Refused, "has no leader"),
            (Code::Unavailable, "etcdserver: leader changed", Fault::Unknown, "electing a leader"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Fault::Unknown,
                "in time",
            ),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Fault::Refused, "alarm disarm"),
            (Code::ResourceExhausted, "etcdserver: too many requests", Fault::Refused, "overloaded"),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", Fault::Denied, "--max-txn-ops"),
            (Code::DataLoss, "etcdserver: corrupt cluster", Fault::Denied, "corrupt"),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", Fault::Denied, "not etcd"),
            (Code::Unknown, "an unexpected error", Fault::Unknown, "failed"),
        ] {
            let error = from_call("host:1", Status::new(code, said));
            assert_eq!(error.fault(), fault, "{said}");
            assert!(error.to_string().contains(expected), "{said}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
