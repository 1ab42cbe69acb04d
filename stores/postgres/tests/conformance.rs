//! Runs every law against a real server: in both modes, and through a pooler.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_postgres::PostgresStore;
use tenure_testkit::servers::{PgBouncer, Postgres};
use tenure_testkit::{Kit, Subject};

fn main() {
    let server = Arc::new(Postgres::start());
    let pooler = PgBouncer::before(&server);
    let subject =
        |url: &str, sessions| Database { url: url.to_owned(), server: server.clone(), sessions, pooler: None };
    Kit::new()
        .subject("lease", subject(&server.url(), false))
        .subject("session", subject(&format!("{}?mode=session", server.url()), true))
        .subject("lease_through_pgbouncer", {
            let url = format!("{}?schema=pooled", pooler.url());
            Database { pooler: Some(pooler), ..subject(&url, false) }
        })
        .run();
}

struct Database {
    url: String,
    server: Arc<Postgres>,
    sessions: bool,
    pooler: Option<PgBouncer>,
}

impl Database {
    /// Runs SQL on the server directly, on a thread that may block.
    fn sql(&self, sql: String) -> BoxFuture<'_, ()> {
        let server = self.server.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || server.sql(&sql)).await.expect("the server answers");
        })
    }

    fn schema(&self) -> &str {
        if self.url.contains("schema=pooled") { "pooled" } else { "tenure" }
    }
}

fn literal(seat: &SeatName) -> String {
    format!("'{}'", seat.as_str().replace('\'', "''"))
}

impl Subject for Database {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(PostgresStore::from_url(&self.url).expect("the URL is valid"))
    }

    /// Long enough to open a connection within the time of one call while a dozen laws do the same.
    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn pushes_releases(&self) -> bool {
        self.pooler.is_none()
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(self.sql(format!("DELETE FROM {}.seats WHERE name = {}", self.schema(), literal(seat))))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let end = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_locks, {}.seats WHERE name = {} AND locktype = 'advisory' \
             AND granted AND objsubid = 1 AND classid::int8 << 32 | objid::int8 = lock_id",
            self.schema(),
            literal(seat)
        );
        self.sessions.then(|| self.sql(end))
    }

    fn ends_with_its_connection(&self) -> bool {
        self.sessions
    }

    fn is_told(&self) -> bool {
        self.pooler.is_none()
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let url = match self.url.contains("schema=pooled") {
            true => self.url.replace("schema=pooled", "schema=pooled2"),
            false => format!("{}{}schema=tenure2", self.url, if self.url.contains('?') { '&' } else { '?' }),
        };
        Some(Box::new(PostgresStore::from_url(&url).expect("the URL is valid")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(PostgresStore::from_url("postgres://nobody@127.0.0.1:1/nothing").expect("the URL is valid")))
    }
}
