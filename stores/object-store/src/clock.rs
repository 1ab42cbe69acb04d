//! The server's clock, from the `Date` of its responses. Notes expire by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use chrono::DateTime;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// The time of the last response, in seconds since 1970; 0 before the first one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerClock(Arc<AtomicI64>);

impl ServerClock {
    pub(crate) fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl HttpConnector for ServerClock {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Timed { client, clock: self.clone() }))
    }
}

/// A client that reads the date of each response.
#[derive(Debug)]
struct Timed {
    client: HttpClient,
    clock: ServerClock,
}

#[async_trait]
impl HttpService for Timed {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.client.execute(request).await?;
        let date = response.headers().get("date").and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()) {
            self.clock.0.store(date.timestamp(), Ordering::Relaxed);
        }
        Ok(response)
    }
}
