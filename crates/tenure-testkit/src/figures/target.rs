//! The targets of the benchmarks: stores, their servers, and the servers' statistics.

use std::process::Command;

use super::Load;
use crate::servers::{Folder, Mysql, MysqlSetup, Postgres, PostgresSetup, Redis};

/// The target of a benchmark: a store, and its server if it has one.
pub trait BenchTarget {
    /// Returns the name of the target, to print with its figures.
    fn name(&self) -> String;

    /// Returns the URL of the store, with which other processes open it, too.
    fn url(&self) -> String;

    /// Returns the address of the server, as `host:port`; `None` if the store has no server.
    fn address(&self) -> Option<String> {
        None
    }

    /// Returns the URL of the store through a proxy at this address.
    fn url_at(&self, address: &str) -> String {
        self.address().map_or_else(|| self.url(), |own| self.url().replace(&own, address))
    }

    /// Returns whether other processes can use the store.
    fn is_shared(&self) -> bool {
        true
    }

    /// Returns the largest number of elections, with a lease of 3 s, to measure on one server.
    fn most(&self) -> u64 {
        u64::MAX
    }

    /// Returns what the server has done so far, from its own statistics; `None` if it has none.
    fn work(&self) -> Option<Work> {
        None
    }

    /// Starts another process that puts as much load on the server as it can; `None` if that is not supported.
    fn saturate(&self) -> Option<Load> {
        None
    }
}

/// The work that a server has done, from its own statistics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// The number of commands or statements about seats.
    pub commands: u64,
    /// The number of reads from clients, if the server counts them. A batch of commands counts once.
    pub reads: Option<u64>,
}

impl Work {
    /// Returns the work since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(earlier.commands),
            reads: self.reads.zip(earlier.reads).map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Returns the number of round trips: the reads if the server counts them, or else the commands.
    pub fn round_trips(self) -> u64 {
        self.reads.unwrap_or(self.commands)
    }
}

/// The memory store, within one process, as the target of a benchmark.
#[derive(Debug)]
pub struct MemoryTarget;

impl BenchTarget for MemoryTarget {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn url(&self) -> String {
        "memory:".to_owned()
    }

    fn is_shared(&self) -> bool {
        false
    }
}

/// The SQLite store, with a file in a temporary folder, as the target of a benchmark.
#[derive(Debug)]
pub struct FileTarget(Folder);

impl FileTarget {
    /// Creates a new folder, which is removed with the target.
    pub fn new() -> Self {
        Self(Folder::new("figures"))
    }
}

impl Default for FileTarget {
    fn default() -> Self {
        Self::new()
    }
}

impl BenchTarget for FileTarget {
    fn name(&self) -> String {
        "sqlite".to_owned()
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path().join("tenure.db").display())
    }
}

/// A Redis server as the target of a benchmark.
#[derive(Debug)]
pub struct RedisTarget(pub Redis);

impl RedisTarget {
    /// Starts a new server, which ends with the target.
    pub fn start() -> Self {
        Self(Redis::start())
    }
}

impl BenchTarget for RedisTarget {
    fn name(&self) -> String {
        "redis".to_owned()
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn address(&self) -> Option<String> {
        Some(self.0.address())
    }

    fn work(&self) -> Option<Work> {
        let stats = self.0.ask(&["INFO", "commandstats", "stats"]);
        let (mut commands, mut reads) = (0, None);
        for line in stats.text().lines() {
            if let Some(count) = line.strip_prefix("total_reads_processed:") {
                reads = count.parse().ok();
            }
            // The statistics include commands that scripts call. Only commands from clients count here.
            let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls=")) else {
                continue;
            };
            if ["evalsha", "eval", "subscribe", "unsubscribe", "ping", "wait"].contains(&name) {
                commands += rest.split(',').next().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Some(Work { commands, reads })
    }

    fn saturate(&self) -> Option<Load> {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &self.0.port().to_string(), "-q", "-l", "-c", "20", "-t", "set,get"]);
        Some(Load::start(command))
    }
}

/// A PostgreSQL server, with one mode of the store, as the target of a benchmark.
#[derive(Debug)]
pub struct PostgresTarget {
    /// The server that the store uses, which a benchmark can pause or kill.
    pub server: Postgres,
    mode: &'static str,
}

impl PostgresTarget {
    /// Starts a new server for this mode, which ends with the target.
    pub fn start(mode: &'static str) -> Self {
        let setup =
            PostgresSetup::new().with("shared_preload_libraries=pg_stat_statements").with("max_connections=200");
        let server = setup.start();
        server.sql("CREATE EXTENSION pg_stat_statements");
        Self { server, mode }
    }
}

impl BenchTarget for PostgresTarget {
    fn name(&self) -> String {
        format!("postgres mode={}", self.mode)
    }

    fn url(&self) -> String {
        format!("{}?mode={}", self.server.url(), self.mode)
    }

    fn address(&self) -> Option<String> {
        Some(self.server.address())
    }

    fn url_at(&self, address: &str) -> String {
        format!("postgres://postgres@{address}/postgres?mode={}", self.mode)
    }

    fn work(&self) -> Option<Work> {
        let sql = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements \
                   WHERE query LIKE '%\"tenure\".%' OR query LIKE '%pg_locks%'";
        Some(Work { commands: self.server.sql(sql).parse().expect("a number"), reads: None })
    }

    fn saturate(&self) -> Option<Load> {
        let port = self.server.port().to_string();
        let pgbench = |arguments: &[&str]| {
            let mut command = Command::new("/usr/lib/postgresql/15/bin/pgbench");
            command.args(arguments).args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port, "postgres"]);
            command
        };
        let filled = pgbench(&["-i", "-q"]).stderr(std::process::Stdio::null()).status();
        assert!(filled.expect("cannot run pgbench; run scripts/servers postgres").success());
        Some(Load::start(pgbench(&["-c", "10", "-T", "100000"])))
    }
}

/// A MariaDB server, with one mode of the store, as the target of a benchmark.
#[derive(Debug)]
pub struct MysqlTarget {
    /// The server that the store uses, which a benchmark can pause or kill.
    pub server: Mysql,
    mode: &'static str,
}

impl MysqlTarget {
    /// Starts a new server for this mode, which ends with the target.
    pub fn start(mode: &'static str) -> Self {
        Self { server: MysqlSetup::new().with("innodb-buffer-pool-size=128M").start(), mode }
    }
}

impl BenchTarget for MysqlTarget {
    fn name(&self) -> String {
        format!("mysql mode={}", self.mode)
    }

    fn url(&self) -> String {
        format!("{}?mode={}", self.server.url(), self.mode)
    }

    fn address(&self) -> Option<String> {
        Some(self.server.address())
    }

    fn url_at(&self, address: &str) -> String {
        format!("mysql://root@{address}/app?mode={}", self.mode)
    }

    fn work(&self) -> Option<Work> {
        let questions = self.server.sql("SHOW GLOBAL STATUS LIKE 'Questions'");
        let count = questions.split_whitespace().next_back().and_then(|count| count.parse().ok());
        Some(Work { commands: count.expect("a number"), reads: None })
    }

    fn saturate(&self) -> Option<Load> {
        self.server.sql("CREATE TABLE load_rows (number INT PRIMARY KEY, content TEXT)");
        let forever = "BEGIN NOT ATOMIC WHILE TRUE DO \
                       REPLACE INTO app.load_rows VALUES (FLOOR(RAND() * 1000), SHA2(RAND(), 512)); END WHILE; END";
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-uroot", "--delimiter=//", "-e", forever]);
        command.arg(format!("--socket={}", self.server.folder().join("socket").display()));
        Some(Load::start(command))
    }
}
