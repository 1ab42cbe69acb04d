//! The stores that figures are taken of, and what their servers say of themselves.

use std::process::Command;

use super::Load;
use crate::servers::{Folder, Postgres, PostgresSetup, Redis};

/// A store to measure, and the server behind it.
pub trait BenchTarget {
    /// What to call it.
    fn name(&self) -> String;

    /// The URL of the store.
    fn url(&self) -> String;

    /// Where its server listens, if it has one.
    fn address(&self) -> Option<String> {
        None
    }

    /// The URL of the store through a proxy at another address.
    fn url_at(&self, address: &str) -> String {
        self.address().map_or_else(|| self.url(), |own| self.url().replace(&own, address))
    }

    /// Whether processes other than this one can use it.
    fn is_shared(&self) -> bool {
        true
    }

    /// How many elections with a lease of 3 s one server of it is asked to carry here.
    fn most(&self) -> u64 {
        u64::MAX
    }

    /// What the server has done so far, by its own statistics.
    fn work(&self) -> Option<Work> {
        None
    }

    /// Starts another process that asks as much of the server as it can.
    fn saturate(&self) -> Option<Load> {
        None
    }
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Commands or statements on seats.
    pub commands: u64,
    /// How often it has read from its clients, where it counts that: a batch of commands counts once.
    pub reads: Option<u64>,
}

impl Work {
    /// What came to it since.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            commands: self.commands.saturating_sub(earlier.commands),
            reads: self.reads.zip(earlier.reads).map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// Round trips, as far as the server can tell.
    pub fn round_trips(self) -> u64 {
        self.reads.unwrap_or(self.commands)
    }
}

/// The memory of one process.
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

/// A file in a temporary folder.
#[derive(Debug)]
pub struct FileTarget(Folder);

impl FileTarget {
    /// A new one.
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

/// A Redis server.
#[derive(Debug)]
pub struct RedisTarget(pub Redis);

impl RedisTarget {
    /// A new one.
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
            // What scripts call counts there, too: only what clients send is of interest.
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

/// A PostgreSQL server, in one mode of the store.
#[derive(Debug)]
pub struct PostgresTarget {
    /// The server.
    pub server: Postgres,
    mode: &'static str,
}

impl PostgresTarget {
    /// A new one.
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
        assert!(filled.expect("pgbench: scripts/servers postgres").success());
        Some(Load::start(pgbench(&["-c", "10", "-T", "100000"])))
    }
}
