//! The requests of the Blob service that the store uses. No request is repeated, except a put that found no container.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::{HeaderMap, Method, Request};
use reqsign_azure_storage::Credential;
use reqsign_core::Signer;
use reqsign_core::time::Timestamp;
use tenure_core::{ConfigError, StoreError};
use tenure_kit::objects::{Condition, Object, Objects};
use tenure_kit::options::Variables;
use tenure_kit::url::encoded;

use crate::credentials;
use crate::errors::{self, Failed};
use crate::options::AzureBlobOptions;

/// A container of a storage account.
pub(crate) struct Client {
    http: reqwest::Client,
    signer: Signer<Credential>,
    /// The URL of the container.
    url: String,
    /// The container as users name it, for messages.
    pub(crate) place: String,
    prefix: String,
    /// When the shared access signature expires, if there is one.
    sas_expiry: Option<Timestamp>,
    /// The time of the last response, in seconds of the server's clock. Notes expire by it.
    now: AtomicI64,
}

/// A blob as it was read. Its version is the ETag.
pub(crate) struct Blob {
    pub(crate) object: Object,
    pub(crate) lease: LeaseState,
}

/// The state of the lease of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// No lease protects the blob: there is none, or it has expired, or was broken.
    None,
    /// A lease protects the blob.
    Active,
    /// A lease protects the blob until its break period ends. It cannot be renewed.
    Breaking,
    /// A lease that does not expire protects the blob. This store never takes one.
    Infinite,
}

/// An action on the lease of a blob.
pub(crate) enum LeaseAction<'a> {
    Acquire {
        id: &'a str,
        lease: Duration,
    },
    Renew {
        id: &'a str,
    },
    Release {
        id: &'a str,
    },
    /// Ends the lease when its current period ends; at once, if it does not expire.
    Break,
}

/// The answer to a write on a condition: the ETag, or the code of the refusal. After a refusal, nothing has changed.
pub(crate) type Outcome = Result<String, String>;

impl Client {
    /// Creates the client, without connecting.
    pub(crate) fn new(options: AzureBlobOptions, variables: &Variables<'_>) -> Result<Self, ConfigError> {
        let options = options.completed(variables)?;
        let endpoint = options.endpoint.as_deref().unwrap_or_default();
        let mut http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            // The engine has its own time-outs. These end what no call waits for any more.
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(CONNECTIONS)
            .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
        if endpoint.starts_with("http://") {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| format!("cannot create an HTTP client: {error}"))?;
        let (account, container) = (&options.account, &options.container);
        let sas = options.sas_token.as_ref().map(|sas| sas.0.trim_start_matches('?'));
        let expiry = sas.and_then(|sas| sas.split('&').find_map(|one| one.strip_prefix("se=")));
        Ok(Self {
            signer: credentials::signer(&options, variables, http.clone()),
            http,
            url: format!("{endpoint}/{container}"),
            place: format!("azblob://{account}/{container}"),
            prefix: if options.prefix.is_empty() { "tenure".to_owned() } else { options.prefix.clone() },
            sas_expiry: expiry.and_then(|time| tenure_kit::url::decoded(time).ok()?.parse().ok()),
            now: AtomicI64::new(0),
        })
    }

    /// Returns a blob as users name it, for messages.
    pub(crate) fn shown(&self, path: &str) -> String {
        format!("{}/{}/{path}", self.place, self.prefix)
    }

    fn url_of(&self, path: &str) -> String {
        format!("{}/{}/{path}", self.url, self.prefix)
    }

    /// Reads a blob and the state of its lease; `None` if it does not exist.
    pub(crate) async fn read(&self, path: &str) -> Result<Option<Blob>, StoreError> {
        let refused = |code| StoreError::refused(format!("{} refused to read a blob: {code}", self.place));
        self.read_if_leased(path, None).await?.map_err(refused)
    }

    /// Like `read`, but the server refuses unless the lease with this id is active.
    pub(crate) async fn read_if_leased(
        &self,
        path: &str,
        lease: Option<&str>,
    ) -> Result<Result<Option<Blob>, String>, StoreError> {
        let request = Request::get(self.url_of(path));
        let request = lease.iter().fold(request, |request, id| request.header("x-ms-lease-id", *id));
        let (headers, content) = match self.send(request, String::new()).await? {
            Ok(found) => found,
            Err(code) if ["BlobNotFound", "ContainerNotFound"].contains(&code.as_str()) => return Ok(Ok(None)),
            Err(code) => return Ok(Err(code)),
        };
        let lease = match (header(&headers, "x-ms-lease-state"), header(&headers, "x-ms-lease-duration")) {
            ("leased", "infinite") => LeaseState::Infinite,
            ("leased", _) => LeaseState::Active,
            ("breaking", _) => LeaseState::Breaking,
            _ => LeaseState::None,
        };
        let (version, written) = (etag(&headers), seconds(&headers, "last-modified").unwrap_or_default());
        Ok(Ok(Some(Blob { object: Object { text: content, version, written }, lease })))
    }

    /// Writes a blob on a condition and under the lease with this id. A blob that a lease protects can be written only
    /// with the id of that lease.
    pub(crate) async fn write(
        &self,
        path: &str,
        text: &str,
        on: Condition<'_>,
        lease: Option<&str>,
    ) -> Result<Outcome, StoreError> {
        let request = Request::put(self.url_of(path)).header("x-ms-blob-type", "BlockBlob");
        let request = match on {
            Condition::Absent => request.header("if-none-match", "*"),
            Condition::Version(etag) => request.header("if-match", format!("\"{etag}\"")),
            Condition::None => request,
        };
        let request = lease.iter().fold(request, |request, id| request.header("x-ms-lease-id", *id));
        self.change(request.header("content-type", "application/json"), text.to_owned()).await
    }

    /// Changes the lease of a blob, if the blob still has this ETag. The ETag stays the same.
    pub(crate) async fn lease(
        &self,
        path: &str,
        action: LeaseAction<'_>,
        on: Option<&str>,
    ) -> Result<Outcome, StoreError> {
        let request = Request::put(format!("{}?comp=lease", self.url_of(path)));
        let (verb, id) = match &action {
            LeaseAction::Acquire { .. } => ("acquire", None),
            LeaseAction::Renew { id } => ("renew", Some(id)),
            LeaseAction::Release { id } => ("release", Some(id)),
            LeaseAction::Break => ("break", None),
        };
        let mut request = request.header("x-ms-lease-action", verb);
        if let LeaseAction::Acquire { id, lease } = action {
            request = request.header("x-ms-proposed-lease-id", id).header("x-ms-lease-duration", lease.as_secs());
        }
        let request = id.iter().fold(request, |request, id| request.header("x-ms-lease-id", **id));
        let request = on.iter().fold(request, |request, etag| request.header("if-match", format!("\"{etag}\"")));
        self.change(request, String::new()).await
    }

    /// Creates the container. Without the right to do so, it must exist, which the next request shows.
    pub(crate) async fn create_container(&self) -> Result<(), StoreError> {
        let request = Request::put(format!("{}?restype=container", self.url));
        match self.send(request, String::new()).await {
            Err(error) if error.fault() == tenure_core::Fault::Denied => Ok(()),
            other => other.map(drop),
        }
    }

    /// Makes a request that writes.
    async fn change(&self, request: http::request::Builder, content: String) -> Result<Outcome, StoreError> {
        Ok(self.send(request, content).await?.map(|(headers, _)| etag(&headers)))
    }

    /// Signs and sends a request. Returns the headers and the content, or the code with which the server has refused the
    /// request because of its condition, a lease, or because there is no such blob or container.
    async fn send(
        &self,
        request: http::request::Builder,
        content: String,
    ) -> Result<Result<(HeaderMap, String), String>, StoreError> {
        let invalid =
            |error| StoreError::denied(format!("{} has no valid URL; check endpoint", self.place)).because(error);
        let request = request.header("x-ms-version", VERSION);
        let request = match request.method_ref() {
            Some(&Method::PUT) => request.header("content-length", content.len()),
            _ => request,
        };
        let (mut parts, ()) = request.body(()).map_err(|error| invalid(error.to_string()))?.into_parts();
        let no_credentials = |error| errors::no_credentials(&self.place, &error);
        self.signer.sign(&mut parts, None).await.map_err(no_credentials)?;
        let signed = reqwest::Request::try_from(Request::from_parts(parts, content));
        let signed = signed.map_err(|error| invalid(error.without_url().to_string()))?;
        let sent = Timestamp::now().as_second();
        let answered = async {
            let response = self.http.execute(signed).await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Ok((status, headers, response.text().await?))
        };
        let (status, headers, text) = answered.await.map_err(|error| errors::from_transport(&self.place, error))?;
        let date = seconds(&headers, "date");
        date.inspect(|now| self.now.store(*now, Ordering::Relaxed));
        if status < 300 {
            return Ok(Ok((headers, text)));
        }
        let code = Some(header(&headers, "x-ms-error-code")).filter(|code| !code.is_empty());
        let code = code.or(errors::element(&text, "Code")).unwrap_or_default().to_owned();
        if errors::is_refusal(status, &code) {
            return Ok(Err(code));
        }
        let is_skewed = date.is_some_and(|now| now.abs_diff(sent) > MAX_SKEW);
        let has_expired = date.zip(self.sas_expiry).is_some_and(|(now, expiry)| now >= expiry.as_second());
        Err(Failed { status, code: &code, text: &text, is_skewed, has_expired }.into_error(&self.place))
    }
}

impl Objects for Client {
    async fn get(&self, path: &str) -> Result<Option<Object>, StoreError> {
        Ok(self.read(path).await?.map(|blob| blob.object))
    }

    /// Creates the container if it was deleted after the store was prepared.
    async fn put(&self, path: &str, text: &str, on: Condition<'_>) -> Result<Option<String>, StoreError> {
        let has_no_container = |outcome: &Outcome| outcome.as_ref().is_err_and(|code| code == "ContainerNotFound");
        let mut outcome = self.write(path, text, on, None).await?;
        if has_no_container(&outcome) {
            self.create_container().await?;
            outcome = self.write(path, text, on, None).await?;
        }
        if has_no_container(&outcome) { Err(errors::no_container(&self.place)) } else { Ok(outcome.ok()) }
    }

    async fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.send(Request::delete(self.url_of(path)), String::new()).await.map(drop)
    }

    /// Empty if the container does not exist.
    async fn list(&self, folder: &str) -> Result<Vec<(String, u64)>, StoreError> {
        let (mut found, mut marker) = (Vec::new(), String::new());
        let prefix = format!("{}/{folder}/", self.prefix);
        loop {
            let request = Request::get(format!("{}?restype=container&comp=list&prefix={prefix}{marker}", self.url));
            let Ok((_, page)) = self.send(request, String::new()).await? else { return Ok(found) };
            found.extend(page.split("<Blob>").skip(1).filter_map(|blob| {
                let name = errors::element(blob, "Name")?.strip_prefix(&prefix)?;
                Some((name.to_owned(), errors::element(blob, "Content-Length")?.parse().ok()?))
            }));
            match errors::element(&page, "NextMarker").filter(|next| !next.is_empty()) {
                Some(next) => marker = format!("&marker={}", encoded(next, "-_.~")),
                None => return Ok(found),
            }
        }
    }

    fn now(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn etag(headers: &HeaderMap) -> String {
    header(headers, "etag").trim_matches('"').to_owned()
}

fn seconds(headers: &HeaderMap, name: &str) -> Option<i64> {
    Timestamp::parse_rfc2822(header(headers, name)).ok().map(Timestamp::as_second)
}

/// The version of the protocol.
const VERSION: &str = "2022-11-02";

/// Azure rejects requests whose time differs from its own by more than this, in seconds.
const MAX_SKEW: u64 = 900;

/// How many idle connections a process keeps.
const CONNECTIONS: usize = 4;
