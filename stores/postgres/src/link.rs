//! One connection that works: logged in, greeted, and driven by a task of its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::StoreError;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::bells::Bells;
use crate::dial::{self, Target};
use crate::hello::{self, Server};
use crate::options::{PostgresOptions, SslMode};
use crate::{faults, schema, tls};

/// The parameters of a statement, with their types: nothing is prepared, so that a statement is one
/// message and one answer, and a pooler may hand it to any session.
pub(crate) type Params<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// How to get a connection.
pub(crate) struct Dialer {
    pub(crate) config: Config,
    pub(crate) schema: String,
    ssl: SslMode,
    options: PostgresOptions,
}

impl Dialer {
    pub(crate) fn new(mut config: Config, options: PostgresOptions) -> Self {
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        Self { config, schema: options.schema().to_owned(), ssl: options.sslmode.unwrap_or_default(), options }
    }

    /// A connection to the first host that can be written to. `bells` are rung by what it hears.
    pub(crate) async fn dial(&self, bells: Option<Arc<Bells>>) -> Result<Link, StoreError> {
        let tls = tls::connector(&self.options)?;
        let longest = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_WITHIN);
        let mut problem = StoreError::denied("no host is named");
        for target in Target::all(&self.config) {
            let opened = tokio::time::timeout(longest, self.dial_one(&target, tls.as_ref(), bells.clone())).await;
            // Nothing has happened; but it is told as a call is that was given up for the same reason, so
            // that a server which does not answer is one piece of news and not two.
            match opened.unwrap_or_else(|_| Err(StoreError::unknown(format!("{target} does not answer")))) {
                Ok(link) => return Ok(link),
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    async fn dial_one(
        &self,
        target: &Target,
        tls: Option<&MakeRustlsConnect>,
        bells: Option<Arc<Bells>>,
    ) -> Result<Link, StoreError> {
        let dial::Dialed { client, mut connection, process } = dial::dial(&self.config, target, self.ssl, tls).await?;
        let (closed, is_closed) = watch::channel(false);
        let ring = bells.clone();
        let driver = tokio::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        if let Some(bells) = &ring {
                            bells.ring(notification.payload());
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        tracing::debug!(%error, "a connection to PostgreSQL has ended");
                        break;
                    }
                    None => break,
                }
            }
            drop(connection);
            let _ = closed.send(true);
        })
        .abort_handle();
        // Ended with what was opened, if the greeting fails or is dropped.
        let guard = Ending(Some(driver));
        let server = hello::greet(&client, target, &process, &self.schema).await?;
        if bells.is_some() && !server.pooled {
            let channel = schema::quoted(&schema::channel(&self.schema));
            // A row that somebody else has locked holds up one call, not all that come behind it; and what
            // nobody waits for any more does not stay on the server.
            let settings = format!("SET lock_timeout = 500; SET statement_timeout = 10000; LISTEN {channel}");
            client.batch_execute(&settings).await.map_err(faults::of_statement)?;
        }
        Ok(Link { client, server, is_closed, doubted: AtomicBool::new(false), driver: guard })
    }
}

/// How long a connection may take, unless the URL says otherwise (`connect_timeout`).
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// One connection that works.
pub(crate) struct Link {
    client: Client,
    pub(crate) server: Server,
    is_closed: watch::Receiver<bool>,
    /// A call was given up, and nothing was heard since.
    doubted: AtomicBool,
    driver: Ending,
}

struct Ending(Option<AbortHandle>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(driver) = self.0.take() {
            driver.abort();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The driver says goodbye by itself once the client is gone, and what is on its way is still
        // sent; it must not be cut off before that.
        self.driver.0 = None;
    }
}

impl Link {
    /// Runs one statement and waits for its rows. If this is dropped before that, the connection is
    /// doubted.
    pub(crate) async fn query(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, StoreError> {
        let doubt = Doubt(&self.doubted);
        let answer = self.client.query_typed(sql, params).await;
        std::mem::forget(doubt);
        self.doubted.store(false, Ordering::Relaxed);
        answer.map_err(|error| {
            if faults::ends_the_connection(&error) {
                self.doubted.store(true, Ordering::Relaxed);
            }
            faults::of_statement(error)
        })
    }

    /// The same for those who may stop waiting at any time and for any reason: that tells nothing about the
    /// connection.
    pub(crate) async fn query_idly(&self, sql: &str, params: &Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.client.query_typed(sql, params).await.map_err(faults::of_statement)
    }

    /// Runs several statements without parameters.
    pub(crate) async fn batch(&self, sql: &str) -> Result<(), StoreError> {
        self.client.batch_execute(sql).await.map_err(faults::of_statement)
    }

    /// Whether another call may be made on it.
    pub(crate) fn is_good(&self) -> bool {
        !self.doubted.load(Ordering::Relaxed) && !self.is_closed()
    }

    pub(crate) fn is_closed(&self) -> bool {
        // The one who would tell is gone, too, when the runtime is.
        *self.is_closed.borrow() || self.is_closed.has_changed().is_err() || self.client.is_closed()
    }

    /// Resolves when the connection has ended.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_closed = self.is_closed.clone();
        async move {
            let _ = is_closed.wait_for(|closed| *closed).await;
        }
    }

    /// Ends the connection at once, whatever is on its way.
    pub(crate) fn cut(&self) {
        if let Some(driver) = &self.driver.0 {
            driver.abort();
        }
    }
}

struct Doubt<'a>(&'a AtomicBool);

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
