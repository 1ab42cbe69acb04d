//! Maps errors of the API server to messages that say what to do, and to faults that say whether the call took
//! effect.

use std::error::Error as _;

use http::{HeaderMap, StatusCode};
use kube::client::AuthError;
use kube::config::KubeconfigError;
use serde::Deserialize;
use tenure_core::StoreError;
use tenure_kit::causes;

use crate::connection::{KubeConnection, Reply};

/// A verb of the API server, as a role permits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Watch,
    Create,
    Update,
    Delete,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// Whether the call can have changed something.
    const fn writes(self) -> bool {
        !matches!(self, Self::List | Self::Watch)
    }
}

/// The permissions that a role must have, for errors.
pub(crate) const NEEDS: &str = "create, update, delete, list and watch on leases.coordination.k8s.io";

/// Classifies an answer with an error status.
pub(crate) fn from_status(connection: &KubeConnection, verb: Verb, answer: &Reply) -> StoreError {
    let (server, namespace) = (&connection.server, &connection.namespace);
    let status: Status = serde_json::from_slice(&answer.body).unwrap_or_default();
    let said = status.message.replace('\n', " ");
    let said = if said.is_empty() { answer.status.to_string() } else { said };
    match answer.status {
        StatusCode::UNAUTHORIZED => StoreError::denied(format!(
            "the API server at {server} rejected the credentials (401); check that the token or certificate is right \
             and has not expired or been revoked"
        )),
        StatusCode::FORBIDDEN if said.contains("because it is being terminated") => {
            StoreError::denied(format!("namespace {namespace} is being deleted; use another one"))
        }
        _ if answer.status.is_client_error() && said.starts_with("admission webhook") => StoreError::denied(format!(
            "the API server at {server} did not {} a Lease in namespace {namespace}: {said}",
            verb.as_str()
        )),
        StatusCode::FORBIDDEN => StoreError::denied(format!(
            "the API server at {server} denied {} on Leases in namespace {namespace} (403); grant {NEEDS}; it reports: \
             {said}",
            verb.as_str()
        )),
        StatusCode::NOT_FOUND if status.details.kind == "namespaces" => StoreError::denied(format!(
            "namespace {namespace} does not exist at {server}; create it, or use another one"
        )),
        StatusCode::NOT_FOUND => StoreError::denied(format!(
            "{server} has no Leases (404), so it is not a Kubernetes API server; check its address"
        )),
        StatusCode::TOO_MANY_REQUESTS => {
            let retry =
                retry_after(&answer.headers).map_or_else(String::new, |after| format!("; Retry-After: {after} s"));
            StoreError::refused(format!("the API server at {server} is overloaded (429{retry})"))
        }
        StatusCode::GONE => {
            StoreError::refused(format!("the API server at {server} no longer has that revision (410)"))
        }
        code if code.is_server_error() => {
            let text = format!("the API server at {server} failed ({code}): {said}");
            if verb.writes() { StoreError::unknown(text) } else { StoreError::refused(text) }
        }
        code if code.is_redirection() => StoreError::denied(format!(
            "{server} sent a redirect ({code}), so it is not a Kubernetes API server; check its address"
        )),
        code => StoreError::denied(format!("the API server at {server} rejected the call ({code}): {said}")),
    }
}

/// Classifies an error that left a call without an answer.
pub(crate) fn from_call(connection: &KubeConnection, verb: Verb, error: kube::Error) -> StoreError {
    let server = &connection.server;
    let pooled = error.source().and_then(|source| source.downcast_ref::<hyper_util::client::legacy::Error>());
    if auth(&error).is_some() {
        return from_configuration(&error);
    }
    let causes = causes(&error);
    if pooled.is_some_and(hyper_util::client::legacy::Error::is_connect) {
        return match connection.proxy.as_ref().filter(|_| causes.contains("tunnel error")) {
            None => tenure_kit::cannot_connect(server, "the API server", TLS_ADVICE, &error),
            Some(proxy) if causes.contains("Connection refused") => StoreError::refused(format!(
                "nothing listens at the proxy {proxy}; check proxy-url in the kubeconfig, or HTTPS_PROXY"
            )),
            Some(proxy) => {
                let text = format!("cannot connect to the API server at {server} through the proxy {proxy}");
                StoreError::refused(text).because(causes)
            }
        };
    }
    if causes.contains("invalid HTTP") {
        return StoreError::denied(format!("{server} does not speak HTTP; check the address of the API server"));
    }
    let text = format!("the connection to the API server at {server} was lost");
    if verb.writes() { StoreError::unknown(text) } else { StoreError::refused(text) }.because(causes)
}

const TLS_ADVICE: &str = "check that it serves HTTPS, and certificate-authority of the cluster in the kubeconfig";

/// Classifies an error of the client's configuration or credentials.
pub(crate) fn from_configuration(error: &kube::Error) -> StoreError {
    let words = causes(error);
    StoreError::denied(format!("cannot use the configuration of the cluster: {words}"))
}

/// Returns the error of the credentials, if that is the cause.
fn auth(error: &kube::Error) -> Option<&AuthError> {
    match error {
        kube::Error::Auth(auth) => Some(auth),
        error => error.source()?.downcast_ref(),
    }
}

/// Classifies an error of the kubeconfig.
pub(crate) fn from_kubeconfig(error: &KubeconfigError) -> StoreError {
    let words = match error {
        // The error would show lines of the file, which may contain a token.
        KubeconfigError::Parse(_) => "it is not valid YAML".to_owned(),
        error => error.to_string().replace('\n', " "),
    };
    StoreError::denied(format!("cannot use the kubeconfig: {words}"))
}

/// Returns the error for a certificate authority without a certificate.
pub(crate) fn no_certificate(file: Option<&str>) -> StoreError {
    let authority = file.map_or_else(|| "the certificate authority".to_owned(), |file| format!("the file {file}"));
    StoreError::denied(format!("{authority} (certificate-authority of the cluster) contains no PEM certificate"))
}

pub(crate) fn no_cryptography() -> StoreError {
    StoreError::denied(
        "rustls has no default cryptography provider; call install_default() of one of its providers when the program \
         starts",
    )
}

/// Classifies an answer that is not valid.
pub(crate) fn from_invalid_answer(connection: &KubeConnection, verb: Verb, error: &serde_json::Error) -> StoreError {
    let text = format!("{} is not a Kubernetes API server; check its address: {error}", connection.server);
    if verb.writes() { StoreError::unknown(text) } else { StoreError::denied(text) }
}

/// Returns the seconds in the `Retry-After` header, if the server sent one.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    kind: String,
}
