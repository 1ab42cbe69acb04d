//! A real server, which the variable `TENURE_TEST_SQLSERVER` names by a URL or a connection string. Its login must be allowed
//! to create tables and to end sessions.

use std::time::Duration;

use tenure_core::{BoxFuture, Builder, DynStore, SeatName, Takeover};
use tenure_sqlserver::{Encrypt, Mode, SqlServerOptions, SqlServerStore};
use tenure_testkit::Subject;
use tenure_testkit::faults::{self, Wish};
use tiberius::{AuthMethod, Config, EncryptionLevel};
use tokio_util::compat::TokioAsyncWriteCompatExt;

/// Returns the options of the server, if there is one.
pub(crate) fn options() -> Option<SqlServerOptions> {
    let text = std::env::var("TENURE_TEST_SQLSERVER").ok()?;
    Some(SqlServerOptions::parse(&text).unwrap_or_else(|error| panic!("TENURE_TEST_SQLSERVER: {error}")))
}

pub(crate) struct Real(pub(crate) SqlServerOptions);

impl Real {
    pub(crate) fn new(mode: Mode) -> Self {
        Self(SqlServerOptions { mode, ..options().expect("there is a real server") })
    }

    fn store(&self, change: impl FnOnce(&mut SqlServerOptions)) -> Box<dyn DynStore> {
        let mut options = self.0.clone();
        change(&mut options);
        Box::new(SqlServerStore::new(options).expect("the options are valid"))
    }

    /// Runs SQL on the server directly.
    async fn sql(&self, sql: String) {
        let mut config = Config::new();
        let (user, password) = (self.0.user.clone().unwrap_or_default(), self.0.password.clone());
        config.authentication(AuthMethod::sql_server(user, password.map_or(String::new(), |password| password.0)));
        config.database(&self.0.database);
        config.encryption(EncryptionLevel::Required);
        config.trust_cert();
        let stream = tokio::net::TcpStream::connect(self.0.hosts[0].as_str()).await.expect("the server is there");
        let mut client = tiberius::Client::connect(config, stream.compat_write()).await.expect("the log-in works");
        client.simple_query(sql).await.expect("the SQL is sent").into_results().await.expect("the SQL works");
    }
}

fn literal(seat: &SeatName) -> String {
    format!("0x{}", seat.as_str().bytes().map(|byte| format!("{byte:02x}")).collect::<String>())
}

impl Subject for Real {
    fn open(&self) -> Box<dyn DynStore> {
        self.store(|_| {})
    }

    /// Long enough to open a connection within the time of one call while a dozen laws do the same.
    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let sql = format!("DELETE FROM [{}].[seats] WHERE name = {}", self.0.schema, literal(seat));
        Some(Box::pin(self.sql(sql)))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let (schema, name) = (&self.0.schema, literal(seat));
        let sql = format!(
            "DECLARE @kill nvarchar(40) = (SELECT CONCAT(N'KILL ', JSON_VALUE(note.value, '$.spid')) \
             FROM [{schema}].[seats] AS seat JOIN [{schema}].[notes] AS note ON note.kind = 'heartbeat' \
             AND note.note_key = CONVERT(varbinary(1024), CONVERT(varchar(20), seat.session)) \
             WHERE seat.name = {name}); EXEC (@kill)"
        );
        (self.0.mode == Mode::Session).then(|| -> BoxFuture<'a, ()> { Box::pin(self.sql(sql)) })
    }

    fn ends_with_its_connection(&self) -> bool {
        self.0.mode == Mode::Session
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(self.store(|options| options.schema = "tenure_other".to_owned()))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(self.store(|options| options.hosts = vec!["127.0.0.1:1".to_owned()]))
    }
}

/// For the laws about the network. A test cannot stop the server, so the laws that do are left out.
impl faults::Server for Real {
    fn start(_: Wish) -> Self {
        panic!("the mode is chosen by Real::new")
    }

    fn address(&self) -> String {
        self.0.hosts[0].clone()
    }

    /// Without encryption: some laws search the traffic.
    fn open(&self, address: &str) -> Box<dyn DynStore> {
        self.store(|options| {
            options.hosts = vec![address.to_owned()];
            options.encrypt = Encrypt::Disable;
        })
    }

    fn connections(&self, processes: usize) -> usize {
        if self.0.mode == Mode::Session { 1 + 2 * (processes - 1) } else { processes }
    }

    fn pause(&mut self) {}

    fn resume(&mut self) {}

    fn restart(&mut self) {}

    fn configure(&self, election: Builder) -> Builder {
        election.takeover(Takeover::Safe)
    }

    fn ends_with_its_connection(&self) -> bool {
        self.0.mode == Mode::Session
    }

    fn bid(&self) -> &'static str {
        BID
    }

    fn renewals(&self) -> &'static [&'static str] {
        renewals(self.0.mode)
    }
}

/// `write n`, in the UTF-16 of TDS: in the names of the batches that take or release a seat.
pub(crate) const BID: &str = "w\0r\0i\0t\0e\0 \0n\0";

/// `: renew` and `: heart`, in UTF-16.
pub(crate) fn renewals(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Lease => &[":\0 \0r\0e\0n\0e\0w\0"],
        Mode::Session => &[":\0 \0h\0e\0a\0r\0t\0"],
    }
}
