//! Errors: their messages, and whether the failed request took effect.

use tenure_core::Fault::{Denied, Refused, Unknown};
use tenure_core::StoreError;
use tenure_kit::{cannot_connect, causes};

/// An answer of the server that is neither a success nor a refusal.
pub(crate) struct Failed<'a> {
    pub(crate) status: u16,
    pub(crate) code: &'a str,
    pub(crate) text: &'a str,
    /// Whether the clock of this host differs from the server's by more than the server accepts.
    pub(crate) is_skewed: bool,
    /// Whether the shared access signature has expired by the server's clock.
    pub(crate) has_expired: bool,
}

impl Failed<'_> {
    /// Returns the error for a request to the container at `place`, such as `azblob://account/jobs`.
    pub(crate) fn into_error(self, place: &str) -> StoreError {
        let Self { status, code, text, is_skewed, has_expired } = self;
        let (fault, what) = match (status, code) {
            (401 | 403, _) if is_skewed => (Denied, "rejected the time of the request; set the clock of this host"),
            (401 | 403, _) if has_expired => {
                (Denied, "rejected the shared access signature: it has expired; get a new one")
            }
            (_, "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation") => {
                (Denied, "rejected the credentials; check the key, the signature or the identity")
            }
            (403, _) if text.contains("failed to authenticate") => {
                (Denied, "rejected the credentials; check the key, the signature or the identity")
            }
            (_, "KeyBasedAuthenticationNotPermitted") => {
                (Denied, "accepts no account key; use a Microsoft Entra identity")
            }
            (401 | 403, _) => {
                (Denied, "forbids the request; grant the role Storage Blob Data Contributor, or a SAS with racwl")
            }
            (400, "InvalidResourceName" | "OutOfRangeInput") => (Denied, "has a name that Azure rejects; use another"),
            (404, _) => (Denied, "does not exist; check the account and the endpoint"),
            (409, "ContainerBeingDeleted") => (Refused, "is being deleted; wait, or use another container"),
            (409, "BlobImmutableDueToPolicy") => (Denied, "has an immutability policy; use a container without one"),
            (429, _) => (Refused, "is overloaded; the request was not processed"),
            (500.., _) => (Unknown, "failed to answer the request"),
            _ => (Denied, "rejected the request; check the options"),
        };
        let message = format!("{place} {what}");
        let error = match fault {
            Denied => StoreError::denied(message),
            Refused => StoreError::refused(message),
            Unknown => StoreError::unknown(message),
        };
        // The text can contain the string that was signed, but neither a key nor a signature of ours.
        let said = element(text, "Message").unwrap_or_default().lines().next().unwrap_or_default();
        error.because(format!("{status} {code}: {said}"))
    }
}

/// Returns whether the server has refused a request because of its condition or a lease, or because there is no such blob or
/// container. Nothing has changed.
pub(crate) fn is_refusal(status: u16, code: &str) -> bool {
    match status {
        409 | 412 => {
            code.starts_with("Lease")
                || ["ConditionNotMet", "BlobAlreadyExists", "ContainerAlreadyExists"].contains(&code)
        }
        404 => ["BlobNotFound", "ContainerNotFound"].contains(&code),
        _ => false,
    }
}

pub(crate) fn no_container(place: &str) -> StoreError {
    let advice = "create it, or use credentials that can";
    StoreError::denied(format!(
        "the container {place} does not exist, and these credentials cannot create it; {advice}"
    ))
}

/// Describes a lease that no candidate holds.
pub(crate) fn foreign_lease(blob: &str, election: &str) -> StoreError {
    let advice = format!("stop that program, or run: tenure break-lease {election:?}");
    StoreError::denied(format!("another program holds a lease on the blob {blob}; {advice}"))
}

pub(crate) fn no_credentials(place: &str, error: &reqsign_core::Error) -> StoreError {
    let advice = "give a key, a SAS or an identity as options or in the environment, or check the token file and the service \
                  that issues tokens";
    let detail = error.context().iter().fold(causes(error), |text, more| format!("{text} ({more})"));
    StoreError::refused(format!("cannot get credentials for {place}; {advice}")).because(detail)
}

/// Classifies an error that left a request without an answer.
pub(crate) fn from_transport(place: &str, error: reqwest::Error) -> StoreError {
    // The URL can contain a shared access signature.
    let error = error.without_url();
    if error.is_connect() {
        return cannot_connect(place, "its server", "check the certificates of the endpoint", &error);
    }
    StoreError::unknown(format!("{place} did not answer before the connection was lost")).because(causes(&error))
}

/// Returns the content of the first XML element with this name.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(content, _)| content)
}

#[cfg(test)]
mod tests {
    use tenure_core::Fault;

    use super::*;

    #[test]
    fn answers_of_the_server_are_classified() {
        for (status, code, fault, expected) in [
            (403, "AuthenticationFailed", Fault::Denied, "rejected the credentials"),
            (401, "InvalidAuthenticationInfo", Fault::Denied, "rejected the credentials"),
            (403, "AuthorizationPermissionMismatch", Fault::Denied, "forbids the request"),
            (403, "KeyBasedAuthenticationNotPermitted", Fault::Denied, "accepts no account key"),
            (400, "InvalidResourceName", Fault::Denied, "has a name that Azure rejects"),
            (400, "InvalidHeaderValue", Fault::Denied, "rejected the request"),
            (404, "ResourceNotFound", Fault::Denied, "does not exist"),
            (409, "ContainerBeingDeleted", Fault::Refused, "is being deleted"),
            (409, "BlobImmutableDueToPolicy", Fault::Denied, "immutability policy"),
            (429, "", Fault::Refused, "is overloaded"),
            (503, "ServerBusy", Fault::Unknown, "failed to answer"),
            (500, "OperationTimedOut", Fault::Unknown, "failed to answer"),
        ] {
            assert!(!is_refusal(status, code), "{status} {code}");
            let text = "<Error><Code>x</Code><Message>m\nRequestId:1</Message></Error>";
            let error =
                Failed { status, code, text, is_skewed: false, has_expired: false }.into_error("azblob://a/jobs");
            assert_eq!(error.fault(), fault, "{status} {code}");
            assert!(error.to_string().contains(expected), "{status} {code}: {error}");
        }
        for (status, code) in [(412, "ConditionNotMet"), (412, "LeaseIdMissing"), (409, "LeaseAlreadyPresent")] {
            assert!(is_refusal(status, code), "{status} {code}");
        }
    }
}
