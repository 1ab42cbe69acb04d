//! Runs every law against a real server, in both modes.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_mysql::MysqlStore;
use tenure_testkit::servers::Mysql;
use tenure_testkit::{Kit, Subject};

fn main() {
    let server = Arc::new(Mysql::start());
    let subject = |mode: &str| Database {
        url: format!("{}?mode={mode}", server.url()),
        server: server.clone(),
        sessions: mode == "session",
    };
    Kit::new().subject("lease", subject("lease")).subject("session", subject("session")).run();
}

struct Database {
    url: String,
    server: Arc<Mysql>,
    sessions: bool,
}

impl Database {
    /// Runs SQL on the server directly, on a thread that may block.
    fn sql(&self, sql: String) -> BoxFuture<'_, ()> {
        let server = self.server.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || server.sql(&sql)).await.expect("the server answers");
        })
    }
}

fn literal(seat: &SeatName) -> String {
    format!("x'{}'", seat.as_str().bytes().map(|byte| format!("{byte:02x}")).collect::<String>())
}

impl Subject for Database {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(MysqlStore::from_url(&self.url).expect("the URL is valid"))
    }

    /// Long enough to open a connection within the time of one call while a dozen laws do the same.
    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(self.sql(format!("DELETE FROM tenure_seats WHERE name = {}", literal(seat))))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let holder = format!("SELECT IS_USED_LOCK(lock_name) FROM tenure_seats WHERE name = {}", literal(seat));
        let server = self.server.clone();
        self.sessions.then(|| -> BoxFuture<'a, ()> {
            Box::pin(async move {
                let kill = move || server.sql(&format!("KILL {}", server.sql(&holder)));
                tokio::task::spawn_blocking(kill).await.expect("the server answers");
            })
        })
    }

    fn ends_with_its_connection(&self) -> bool {
        self.sessions
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let url = format!("{}&table_prefix=other_", self.url);
        Some(Box::new(MysqlStore::from_url(&url).expect("the URL is valid")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(MysqlStore::from_url("mysql://nobody@127.0.0.1:1/nothing").expect("the URL is valid")))
    }
}
