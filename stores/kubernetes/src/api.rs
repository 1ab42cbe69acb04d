//! What is asked of the API server: five verbs on one kind of object.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
use jiff::Timestamp;
use kube::client::Body;
use serde::Deserialize;
use tenure_core::{Clock, Moment, StoreError};
use tenure_kit::lock;

use crate::connection::{Answer, KubeConnection, KubeConnections};
use crate::errors::{self, Verb};
use crate::lease::{self, Lease};

/// Asks the API server for Leases of one namespace.
pub(crate) struct Api {
    connections: KubeConnections,
    /// What time the server last said it was, and when that was heard.
    told: Mutex<Option<(Timestamp, Moment)>>,
    /// Until when the server has asked to be left alone, and its answer.
    overloaded: Mutex<Option<(Instant, StoreError)>>,
}

/// A `Retry-After` counts for this long at the most: a seat is not to stay free for hours.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// What was there at one revision.
pub(crate) struct List {
    pub(crate) items: Vec<Lease>,
    pub(crate) revision: u64,
    /// What time the server says it is, in whole seconds.
    pub(crate) date: Option<Timestamp>,
}

/// Which objects are meant.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// The one with this name.
    Name(String),
    /// Those with labels like these.
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
    pub(crate) fn new(connections: KubeConnections) -> Self {
        Self { connections, told: Mutex::default(), overloaded: Mutex::default() }
    }

    /// What time it is for the server, as far as it has told us: a little less than it is.
    pub(crate) fn server_time(&self) -> Option<Timestamp> {
        let (date, heard) = (*lock(&self.told))?;
        date.checked_add(Clock::system().now().since(heard)).ok()
    }

    /// Lets a call through that can wait: readings, bids, notes and watches, but not what a leader does to keep
    /// its seat or to give it up. A server that has too much to do is better off without the former, and would gain
    /// little from the latter: one small write each, without which a seat would be lost or stay taken for no reason.
    ///
    /// # Errors
    /// The answer of a server that has said when to come back (429, `Retry-After`), until then. Nothing is sent.
    pub(crate) fn admit(&self) -> Result<(), StoreError> {
        match &*lock(&self.overloaded) {
            Some((until, error)) if Instant::now() < *until => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// What is there now: not from a cache, as no revision is asked for.
    pub(crate) async fn list(&self, which: &Which) -> Result<List, StoreError> {
        let connection = self.connections.connection().await?;
        let answer = self.ask(&connection, Verb::List, Method::GET, "", &which.query(), Vec::new()).await?;
        if !answer.status.is_success() {
            return Err(self.no(&connection, Verb::List, &answer));
        }
        let form: ListForm = serde_json::from_slice(&answer.body)
            .map_err(|error| errors::of_nonsense(&connection, Verb::List, &error))?;
        Ok(List {
            revision: lease::revision(&form.metadata.resource_version)?,
            items: form.items.unwrap_or_default(),
            date: date(&answer),
        })
    }

    /// Makes an object, unless there is one of that name: then `None`.
    pub(crate) async fn create(&self, lease: &Lease) -> Result<Option<Lease>, StoreError> {
        self.write(Verb::Create, Method::POST, "", lease).await
    }

    /// Replaces an object, unless it is another or gone since it was read: then `None`.
    ///
    /// # Correctness
    /// The object carries the resourceVersion and the uid that were read. The server compares both with
    /// what it has in the transaction that writes, so nothing can come in between; and an object that was
    /// deleted is not made anew by this, as none has that uid.
    pub(crate) async fn replace(&self, lease: &Lease) -> Result<Option<Lease>, StoreError> {
        self.write(Verb::Update, Method::PUT, &format!("/{}", lease.metadata.name), lease).await
    }

    /// Deletes an object, and returns whether it was there.
    pub(crate) async fn delete(&self, name: &str) -> Result<bool, StoreError> {
        let connection = self.connections.connection().await?;
        let answer = self.ask(&connection, Verb::Delete, Method::DELETE, &format!("/{name}"), "", Vec::new()).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            _ => Err(self.no(&connection, Verb::Delete, &answer)),
        }
    }

    /// Resolves when the server no longer takes the present credential, or never.
    pub(crate) async fn credential_refused(&self) {
        match self.connections.connection().await {
            Ok(connection) => connection.over().await,
            Err(_) => std::future::pending().await,
        }
    }

    /// Begins to listen to what changes after a revision.
    pub(crate) async fn watch(&self, which: &Which, after: u64) -> Result<(Arc<KubeConnection>, Body), StoreError> {
        let connection = self.connections.connection().await?;
        // Ended by the server after a while, so that connections move on to servers that are new.
        let query =
            format!("{}&watch=1&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion={after}", which.query());
        let request = request(&connection, Method::GET, "", &query, Vec::new())?;
        let response = self
            .connections
            .listen(&connection, request)
            .await
            .map_err(|error| errors::of_asking(&connection, Verb::Watch, error))?;
        if response.status().is_success() {
            return Ok((connection, response.into_body()));
        }
        let answer = Answer { status: response.status(), headers: response.headers().clone(), body: Vec::new() };
        Err(self.no(&connection, Verb::Watch, &answer))
    }

    async fn write(&self, verb: Verb, method: Method, path: &str, lease: &Lease) -> Result<Option<Lease>, StoreError> {
        let connection = self.connections.connection().await?;
        let answer = self.ask(&connection, verb, method, path, "", lease.to_json()).await?;
        match answer.status {
            StatusCode::CONFLICT => Ok(None),
            StatusCode::NOT_FOUND if verb == Verb::Update => Ok(None),
            status if status.is_success() => serde_json::from_slice(&answer.body)
                .map(Some)
                .map_err(|error| errors::of_nonsense(&connection, verb, &error)),
            _ => Err(self.no(&connection, verb, &answer)),
        }
    }

    async fn ask(
        &self,
        connection: &Arc<KubeConnection>,
        verb: Verb,
        method: Method,
        path: &str,
        query: &str,
        body: Vec<u8>,
    ) -> Result<Answer, StoreError> {
        let request = request(connection, method, path, query, body)?;
        let answer = self
            .connections
            .ask(connection, request)
            .await
            .map_err(|error| errors::of_asking(connection, verb, error))?;
        if let Some(date) = date(&answer) {
            let told = Some((date, Clock::system().now()));
            *lock(&self.told) = told;
        }
        Ok(answer)
    }

    /// The server said no. If it does not know us, what we know of ourselves is read anew the next time.
    fn no(&self, connection: &Arc<KubeConnection>, verb: Verb, answer: &Answer) -> StoreError {
        if answer.status == StatusCode::UNAUTHORIZED {
            self.connections.give_up(connection);
        }
        let error = errors::of_status(connection, verb, answer);
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
        // Who it was stands in the object, and an old server falls over one that does not say.
        .header(http::header::USER_AGENT, concat!("tenure/", env!("CARGO_PKG_VERSION")))
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .map_err(|error| StoreError::denied("this cannot be asked of an API server").because(error))
}

fn date(answer: &Answer) -> Option<Timestamp> {
    let text = answer.headers.get(http::header::DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// Text as a part of a URL.
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
}
