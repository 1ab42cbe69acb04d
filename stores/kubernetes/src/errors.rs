//! What went wrong, and whether it happened all the same.

use std::error::Error as _;

use http::{HeaderMap, StatusCode};
use kube::client::AuthError;
use kube::config::KubeconfigError;
use serde::Deserialize;
use tenure_core::StoreError;

use crate::connection::{Answer, KubeConnection};

/// What is asked of the API server: the verb that a role must permit.
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

    /// Whether something may have changed if it was asked for.
    const fn writes(self) -> bool {
        !matches!(self, Self::List | Self::Watch)
    }
}

/// What a role must permit, in an error that says that it does not.
pub(crate) const NEEDS: &str = "create, update, delete, list and watch on leases.coordination.k8s.io";

/// The server said no.
pub(crate) fn of_status(connection: &KubeConnection, verb: Verb, answer: &Answer) -> StoreError {
    let (server, namespace) = (&connection.server, &connection.namespace);
    let status: Status = serde_json::from_slice(&answer.body).unwrap_or_default();
    let said = status.message.replace('\n', " ");
    let said = if said.is_empty() { answer.status.to_string() } else { said };
    match answer.status {
        StatusCode::UNAUTHORIZED => StoreError::denied(format!(
            "the API server at {server} does not know who we are (401): the token or certificate is wrong, has expired or was revoked"
        )),
        StatusCode::FORBIDDEN if said.contains("because it is being terminated") => {
            StoreError::denied(format!("the namespace {namespace} is being deleted"))
        }
        _ if answer.status.is_client_error() && said.starts_with("admission webhook") => StoreError::denied(format!(
            "the API server at {server} does not {} a Lease in the namespace {namespace}: {said}",
            verb.as_str()
        )),
        StatusCode::FORBIDDEN => StoreError::denied(format!(
            "the API server at {server} does not let us {} Leases in the namespace {namespace} (403): we need {NEEDS} there; it says: {said}",
            verb.as_str()
        )),
        StatusCode::NOT_FOUND if status.details.kind == "namespaces" => {
            StoreError::denied(format!("there is no namespace {namespace} at {server}: create it, or name another one"))
        }
        StatusCode::NOT_FOUND => {
            StoreError::denied(format!("what answers at {server} has no Leases (404): it is no Kubernetes API server"))
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let retry =
                retry_after(&answer.headers).map_or_else(String::new, |after| format!("; Retry-After: {after} s"));
            StoreError::refused(format!("the API server at {server} is overloaded (429{retry})"))
        }
        StatusCode::GONE => {
            StoreError::refused(format!("the API server at {server} no longer knows that revision (410)"))
        }
        code if code.is_server_error() => {
            let text = format!("the API server at {server} has failed ({code}): {said}");
            if verb.writes() { StoreError::unknown(text) } else { StoreError::refused(text) }
        }
        code if code.is_redirection() => StoreError::denied(format!(
            "what answers at {server} sends us elsewhere ({code}): it is no Kubernetes API server"
        )),
        code => StoreError::denied(format!("the API server at {server} does not take this ({code}): {said}")),
    }
}

/// There was no answer.
pub(crate) fn of_asking(connection: &KubeConnection, verb: Verb, error: kube::Error) -> StoreError {
    let server = &connection.server;
    let pooled = error.source().and_then(|source| source.downcast_ref::<hyper_util::client::legacy::Error>());
    if auth(&error).is_some() {
        return of_configuration(&error);
    }
    let chain = chain(&error);
    if pooled.is_some_and(hyper_util::client::legacy::Error::is_connect) {
        let tunnel = chain.iter().any(|cause| cause.contains("tunnel error"));
        if let Some(proxy) = connection.proxy.as_ref().filter(|_| tunnel) {
            if chain.iter().any(|cause| cause.contains("Connection refused")) {
                return StoreError::refused(format!(
                    "nothing listens at the proxy {proxy}, which the kubeconfig (proxy-url) or HTTPS_PROXY names"
                ));
            }
            let text = format!("the API server at {server} cannot be reached through the proxy {proxy}");
            return StoreError::refused(text).because(Cause(chain));
        }
        if let Some(tls) = chain.iter().find(|cause| cause.contains("certificate") || cause.contains("handshake")) {
            return StoreError::denied(format!("no TLS with the API server at {server}: {tls}"));
        }
        if chain.iter().any(|cause| cause.contains("InvalidContentType") || cause.contains("corrupt message")) {
            return StoreError::denied(format!("what answers at {server} does not speak TLS"));
        }
        if chain.iter().any(|cause| cause.contains("Connection refused")) {
            return StoreError::refused(format!("nothing listens at {server}: is the API server there?"));
        }
        return StoreError::refused(format!("the API server at {server} cannot be reached")).because(Cause(chain));
    }
    if chain.iter().any(|cause| cause.contains("invalid HTTP")) {
        return StoreError::denied(format!("what answers at {server} does not speak HTTP"));
    }
    let text = format!("the connection to the API server at {server} was lost");
    if verb.writes() {
        StoreError::unknown(text).because(Cause(chain))
    } else {
        StoreError::refused(text).because(Cause(chain))
    }
}

/// We do not know where to go, or who we are.
pub(crate) fn of_configuration(error: &kube::Error) -> StoreError {
    let words = chain(error).join(": ");
    StoreError::denied(format!("the cluster cannot be reached as it is configured: {words}"))
}

/// What went wrong with who we are, if it was that.
fn auth(error: &kube::Error) -> Option<&AuthError> {
    match error {
        kube::Error::Auth(auth) => Some(auth),
        error => error.source()?.downcast_ref(),
    }
}

/// The kubeconfig makes no sense.
pub(crate) fn of_kubeconfig(error: &KubeconfigError) -> StoreError {
    let words = match error {
        // It would show the lines around, and those may hold a token.
        KubeconfigError::Parse(_) => "it is not the YAML that it should be".to_owned(),
        error => error.to_string().replace('\n', " "),
    };
    StoreError::denied(format!("the kubeconfig cannot be used: {words}"))
}

/// A certificate authority was named, and there is none.
pub(crate) fn no_certificate(file: Option<&str>) -> StoreError {
    let holds = file.map_or_else(|| "the certificate authority".to_owned(), |file| format!("the file {file}"));
    StoreError::denied(format!("{holds} (certificate-authority of the cluster) holds no certificate: it must be PEM"))
}

pub(crate) fn no_cryptography() -> StoreError {
    StoreError::denied(
        "rustls does not know which cryptography to use: call install_default() of one of its providers when the program starts",
    )
}

/// What the server sent makes no sense.
pub(crate) fn of_nonsense(connection: &KubeConnection, verb: Verb, error: &serde_json::Error) -> StoreError {
    let text = format!("what answers at {} is no Kubernetes API server: {error}", connection.server);
    if verb.writes() { StoreError::unknown(text) } else { StoreError::denied(text) }
}

/// When to come back, in seconds, if the server says so.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// What each cause adds to the one before.
fn chain(error: &kube::Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string().replace('\n', " "));
        next = cause.source();
    }
    if causes.is_empty() {
        causes.push(error.to_string());
    }
    // Errors that print their source say everything twice.
    let more: Vec<bool> =
        (0..causes.len()).map(|at| causes.get(at + 1).is_none_or(|next| !causes[at].contains(next.as_str()))).collect();
    let mut more = more.into_iter();
    causes.retain(|_| more.next() == Some(true));
    causes
}

/// Causes in words.
#[derive(Debug)]
struct Cause(Vec<String>);

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(": "))
    }
}

impl std::error::Error for Cause {}

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
