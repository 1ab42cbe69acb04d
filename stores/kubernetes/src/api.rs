//! The calls to the API server: five verbs on one kind of object.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use tenure_core::{Clock, Moment, StoreError};
use tenure_kit::{Connection, Reconnect, lock};

use crate::connection::{KubeConnection, Reply};
use crate::errors::{self, Verb};
use crate::lease::{self, Lease, Meta};

/// Makes calls about the Leases of one namespace.
pub(crate) struct Api {
    connection: Reconnect<KubeConnection>,
    /// The time that the server last reported, and the moment at which the report was received.
    server_date: Mutex<Option<(Timestamp, Moment)>>,
    /// The end of the pause that the server has requested (`Retry-After`), and its answer.
    overloaded: Mutex<Option<(Instant, StoreError)>>,
}

/// A `Retry-After` counts for at most this long: a seat must not stay free for hours.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The number of objects in a page.
const PAGE: u32 = 500;

/// The result of a list: the objects at one revision.
pub(crate) struct List {
    pub(crate) items: Vec<Lease>,
    pub(crate) revision: u64,
    /// Where the next page begins; empty if this is the last one.
    next: String,
    /// The server's time, in whole seconds.
    pub(crate) date: Option<Timestamp>,
}

/// Selects objects.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The object with this name.
    Name(String),
    /// The objects that match this label selector.
    Labels(String),
}

impl Which {
    fn query(&self) -> String {
        match self {
            Self::Name(name) => format!("fieldSelector={}", encoded(&format!("metadata.name={name}"))),
            Self::Labels(labels) => format!("labelSelector={}", encoded(labels)),
        }
    }
}

impl Api {
    pub(crate) fn new(connection: Reconnect<KubeConnection>) -> Self {
        Self { connection, server_date: Mutex::default(), overloaded: Mutex::default() }
    }

    /// Returns a connection whose credential has not expired.
    async fn connection(&self) -> Result<Arc<KubeConnection>, StoreError> {
        if let Some(expired) = self.connection.open().filter(|connection| connection.has_expired()) {
            expired.liveness().close();
        }
        self.connection.get().await
    }

    /// Returns a lower bound for the server's current time, if it has reported its time before.
    pub(crate) fn server_time(&self) -> Option<Timestamp> {
        let (date, heard) = (*lock(&self.server_date))?;
        date.checked_add(Clock::system().now().since(heard)).ok()
    }

    /// Admits a call that can wait: reads, bids, notes and watches, but not the calls by which a leader keeps or
    /// releases its seat. An overloaded server is better off without the calls that can wait. Holding back the
    /// others would gain little: each is one small write, and without it a seat would be lost, or stay taken for
    /// no reason.
    ///
    /// # Errors
    /// Returns the answer of a server that requested a pause (429, `Retry-After`), until the pause is over.
    /// Nothing is sent.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        match &*lock(&self.overloaded) {
            Some((until, error)) if Instant::now() < *until => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Lists the current objects. The call names no revision, so the server does not answer from a cache.
    pub(crate) async fn list(&self, which: &Which) -> Result<List, StoreError> {
        self.list_page(&which.query()).await
    }

    /// Lists the current objects in pages, for lists that can be long. All pages are from one revision.
    pub(crate) async fn list_in_pages(&self, which: &Which) -> Result<Vec<Lease>, StoreError> {
        let query = format!("{}&limit={PAGE}", which.query());
        let mut page = self.list_page(&query).await?;
        let mut items = std::mem::take(&mut page.items);
        while !page.next.is_empty() {
            page = self.list_page(&format!("{query}&continue={}", encoded(&page.next))).await?;
            items.append(&mut page.items);
        }
        Ok(items)
    }

    async fn list_page(&self, query: &str) -> Result<List, StoreError> {
        let connection = self.connection().await?;
        let answer = self.call(&connection, Verb::List, Method::GET, "", query, Vec::new()).await?;
        if !answer.status.is_success() {
            return Err(self.error_from(&connection, Verb::List, &answer));
        }
        let form: ListForm = serde_json::from_slice(&answer.body)
            .map_err(|error| errors::from_invalid_answer(&connection, Verb::List, &error))?;
        Ok(List {
            revision: lease::revision(&form.metadata.resource_version)?,
            next: form.metadata.r#continue,
            items: form.items.unwrap_or_default(),
            date: date(&answer),
        })
    }

    /// Creates an object. Returns `None` if an object with that name exists.
    pub(crate) async fn create(&self, lease: &Lease) -> Result<Option<Lease>, StoreError> {
        self.write(Verb::Create, Method::POST, "", lease).await
    }

    /// Replaces an object. Returns `None` if it was changed or deleted since it was read.
    ///
    /// # Correctness
    /// The object carries the resourceVersion and the uid that were read. The server compares both with its own
    /// object in the transaction that writes, so no other write can come in between. A deleted object is not
    /// recreated, because no object has that uid any more.
    pub(crate) async fn replace(&self, lease: &Lease) -> Result<Option<Lease>, StoreError> {
        self.write(Verb::Update, Method::PUT, &format!("/{}", lease.metadata.name), lease).await
    }

    /// Deletes an object. Returns whether it existed.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool, StoreError> {
        self.delete_if(name, Vec::new()).await
    }

    /// Deletes an object, unless it was changed since it was read: then its process has announced itself again.
    pub(crate) async fn delete_unchanged(&self, object: &Lease) -> Result<(), StoreError> {
        let Meta { name, uid, resource_version, .. } = &object.metadata;
        let preconditions = json!({ "uid": uid, "resourceVersion": resource_version });
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
        self.delete_if(name, options.to_string().into_bytes()).await.map(|_| ())
    }

    async fn delete_if(&self, name: &str, options: Vec<u8>) -> Result<bool, StoreError> {
        let connection = self.connection().await?;
        let answer = self.call(&connection, Verb::Delete, Method::DELETE, &format!("/{name}"), "", options).await?;
        match answer.status {
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(false),
            status if status.is_success() => Ok(true),
            _ => Err(self.error_from(&connection, Verb::Delete, &answer)),
        }
    }

    /// Resolves when the server rejects the current credential. Pending forever if there is no connection.
    pub(crate) async fn credential_rejected(&self) {
        match self.connection().await {
            Ok(connection) => connection.liveness().closed().await,
            Err(_) => std::future::pending().await,
        }
    }

    /// Starts a watch for changes after a revision.
    pub(crate) async fn watch(&self, which: &Which, after: u64) -> Result<(Arc<KubeConnection>, Body), StoreError> {
        let connection = self.connection().await?;
        // The server ends the watch after this time, so that connections move to new servers.
        let query =
            format!("{}&watch=1&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion={after}", which.query());
        let request = request(&connection, Method::GET, "", &query, Vec::new())?;
        let response = connection
            .open_stream(request)
            .await
            .map_err(|error| errors::from_call(&connection, Verb::Watch, error))?;
        if response.status().is_success() {
            return Ok((connection, response.into_body()));
        }
        let answer = Reply { status: response.status(), headers: response.headers().clone(), body: Vec::new() };
        Err(self.error_from(&connection, Verb::Watch, &answer))
    }

    async fn write(&self, verb: Verb, method: Method, path: &str, lease: &Lease) -> Result<Option<Lease>, StoreError> {
        let connection = self.connection().await?;
        let answer = self.call(&connection, verb, method, path, "", lease.to_json()).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(None),
            StatusCode::NOT_FOUND if verb == Verb::Update => Ok(None),
            status if status.is_success() => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(|error| errors::from_invalid_answer(&connection, verb, &error)),
            _ => Err(self.error_from(&connection, verb, &answer)),
        }
    }

    async fn call(
        &self,
        connection: &Arc<KubeConnection>,
        verb: Verb,
        method: Method,
        path: &str,
        query: &str,
        body: Vec<u8>,
    ) -> Result<Reply, StoreError> {
        let request = request(connection, method, path, query, body)?;
        let answer = connection.call(request).await.map_err(|error| errors::from_call(connection, verb, error))?;
        if let Some(date) = date(&answer) {
            let received = Some((date, Clock::system().now()));
            *lock(&self.server_date) = received;
        }
        Ok(answer)
    }

    /// Returns the error for an answer with an error status. After a 401, the next call reads the credentials
    /// again.
    fn error_from(&self, connection: &Arc<KubeConnection>, verb: Verb, answer: &Reply) -> StoreError {
        if answer.status == StatusCode::UNAUTHORIZED {
            connection.liveness().close();
        }
        let error = errors::from_status(connection, verb, answer);
        if answer.status == StatusCode::TOO_MANY_REQUESTS
            && let Some(seconds) = errors::retry_after(&answer.headers)
        {
            let until = Instant::now() + Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER);
            let overloaded = Some((until, error.clone()));
            *lock(&self.overloaded) = overloaded;
        }
        error
    }
}

fn request(
    connection: &KubeConnection,
    method: Method,
    path: &str,
    query: &str,
    body: Vec<u8>,
) -> Result<Request<Body>, StoreError> {
    let mark = if query.is_empty() { "" } else { "?" };
    let url =
        format!("/apis/{}/namespaces/{}/leases{path}{mark}{query}", lease::API_VERSION, encoded(&connection.namespace));
    Request::builder()
        .method(method)
        .uri(url)
        // The server records the user agent in the object, and an old server fails on a request without one.
        .header(http::header::USER_AGENT, concat!("tenure/", env!("CARGO_PKG_VERSION")))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .map_err(|error| StoreError::denied("cannot build a valid request for the API server").because(error))
}

fn date(answer: &Reply) -> Option<Timestamp> {
    let text = answer.headers.get(http::header::DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// Escapes text for use in a URL.
fn encoded(text: &str) -> String {
    tenure_kit::url::encoded(text, "-_.")
}

#[derive(Deserialize)]
struct ListForm {
    metadata: ListMeta,
    items: Option<Vec<Lease>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}
