//! What went wrong, in words that say what to do, and whether it happened.

use std::error::Error;
use std::io;

use tenure_core::StoreError;
use tonic::{Code, Status};

/// What members say, and what to tell the user. This never works as things are.
const DENIED: &[(&str, &str)] = &[
    ("permission denied", "does not permit this: give the user a role with readwrite on the prefix, as in the README"),
    ("user name is empty", "wants a user and a password: etcd://user:password@host"),
    ("invalid user ID or password", "knows no such user and password"),
    (
        "authentication is not enabled",
        "has authentication switched off, but a user was given: leave it out, or run `etcdctl auth enable`",
    ),
    ("too many operations", "takes fewer operations at once than usual: set its --max-txn-ops to 128"),
    ("corrupt", "says that its data is corrupt: see `etcdctl alarm list`"),
];

/// The same: nothing was done, and it may work the next time.
const REFUSED: &[(&str, &str)] = &[
    (UNKNOWN_TOKEN, "does not know our log-in any more"),
    (OLD_TOKEN, "does not know our log-in any more"),
    // Said before anything is done: we ask only to be served where there is one.
    ("no leader", "has no leader: most of the members are down, or cut off from it"),
    ("database space exceeded", "has no space left: compact and defragment it, then `etcdctl alarm disarm`"),
    ("too many requests", "is behind with its work"),
    ("lease not found", "says that the lease of this process is over"),
];

/// The same: it may have been done.
const UNKNOWN: &[(&str, &str)] = &[
    ("leader changed", "could not settle it in time: its cluster is between two leaders, or slow"),
    ("request timed out", "could not settle it in time: its cluster is between two leaders, or slow"),
];

const UNKNOWN_TOKEN: &str = "invalid auth token";
const OLD_TOKEN: &str = "revision of auth store is old";

/// Classifies the error of a call that a member was asked.
pub(crate) fn of_call(address: &str, status: Status) -> StoreError {
    let message = status.message();
    let told = |table: &[(&str, &str)]| {
        let (_, told) = table.iter().find(|(said, _)| message.contains(said))?;
        Some(format!("{address} {told}"))
    };
    let error = if is_broken(&status) {
        StoreError::unknown(format!("the connection to {address} was lost before it answered"))
    } else if let Some(told) = told(DENIED) {
        StoreError::denied(told)
    } else if let Some(told) = told(REFUSED) {
        StoreError::refused(told)
    } else if let Some(told) = told(UNKNOWN) {
        StoreError::unknown(told)
    } else {
        match status.code() {
            Code::Unimplemented => StoreError::denied(format!("{address} is no etcd 3.4 or later")),
            Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied | Code::Unauthenticated => {
                StoreError::denied(format!("{address} refuses this: {message}"))
            }
            _ => StoreError::unknown(format!("{address} failed: {message}")),
        }
    };
    match root(&status) {
        Some(cause) => error.because(cause),
        None => error,
    }
}

/// What lies at the bottom of an error of the connection. What a member itself has said is in our own words.
fn root(status: &Status) -> Option<Cause> {
    let mut cause = status.source()?;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(Cause(cause.to_string()))
}

/// Whether the connection is at fault, and not the member that answered.
pub(crate) fn is_broken(status: &Status) -> bool {
    status.source().is_some() || status.code() == Code::Cancelled
}

/// Whether a stream was given up by the other end, though the connection is good and nothing is wrong.
pub(crate) fn is_given_up(status: &Status) -> bool {
    status.source().is_none() && status.message().contains("context canceled")
}

/// Whether the member has forgotten who we are, so that nothing was done.
pub(crate) fn is_stale_login(status: &Status) -> bool {
    let said = status.message();
    said.contains(UNKNOWN_TOKEN) || said.contains(OLD_TOKEN)
}

/// Nobody can be reached.
pub(crate) fn unreachable(address: &str, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => StoreError::refused(format!("nothing listens at {address}")),
        _ => StoreError::refused(format!("{address} cannot be reached")),
    }
    .because(error)
}

/// Somebody is there, but there is no TLS with them.
pub(crate) fn no_tls(address: &str, error: io::Error) -> StoreError {
    StoreError::denied(format!(
        "no TLS with {address}: see that it serves TLS (if not, etcd://), that its certificate is trusted (?ca=FILE) \
         and names this host, and whether it wants one of ours (?cert=FILE&key=FILE)"
    ))
    .because(error)
}

/// Somebody is there, but does not speak as etcd does.
pub(crate) fn of_greeting(address: &str, status: Status) -> StoreError {
    if !is_broken(&status) {
        return of_call(address, status);
    }
    let advice = "see that the port is right, and whether it wants TLS (etcds://) or a certificate of ours (?cert=FILE&key=FILE)";
    let said = root(&status).map(|cause| cause.0).unwrap_or_default();
    let foreign = ["frame", "preface", "protocol error", "CertificateRequired", "BadCertificate", "alert", "Handshake"];
    let told = if foreign.iter().any(|word| said.contains(word)) {
        StoreError::denied(format!("{address} does not speak as etcd does: {advice}"))
    } else {
        StoreError::refused(format!("{address} hung up before it said anything: it is going down, or {advice}"))
    };
    told.because(Cause(said))
}

#[derive(Debug)]
struct Cause(String);

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Cause {}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    #[test]
    fn what_members_say_is_told_apart() {
        for (code, said, fault, told) in [
            (Code::PermissionDenied, "etcdserver: permission denied", Fault::Denied, "does not permit this"),
            (Code::InvalidArgument, "etcdserver: user name is empty", Fault::Denied, "wants a user and a password"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                Fault::Denied,
                "no such user",
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
                Fault::Denied,
                "etcdctl auth enable",
            ),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Fault::Refused, "log-in"),
            (Code::Unavailable, "etcdserver: no leader", Fault::Refused, "has no leader"),
            (Code::Unavailable, "etcdserver: leader changed", Fault::Unknown, "between two leaders"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Fault::Unknown,
                "in time",
            ),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Fault::Refused, "alarm disarm"),
            (Code::ResourceExhausted, "etcdserver: too many requests", Fault::Refused, "behind"),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", Fault::Denied, "--max-txn-ops"),
            (Code::DataLoss, "etcdserver: corrupt cluster", Fault::Denied, "corrupt"),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", Fault::Denied, "no etcd"),
            (Code::Unknown, "something that nobody has thought of", Fault::Unknown, "failed"),
        ] {
            let error = of_call("host:1", Status::new(code, said));
            assert_eq!(error.fault(), fault, "{said}");
            assert!(error.to_string().contains(told), "{said}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
