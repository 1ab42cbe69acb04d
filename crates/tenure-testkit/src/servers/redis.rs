//! A Redis or Valkey server.

use std::io;
use std::path::{Path, PathBuf};

use super::launch::in_cache;
use super::{Folder, Launch, Process, Reply, free_port, resp};

/// A Redis or Valkey server on this machine. Dropping it ends the server.
#[derive(Debug)]
pub struct Redis {
    /// The process of the server, which a test can signal.
    pub process: Process,
    folder: Folder,
    port: u16,
}

/// The configuration of a Redis server, to start it with.
#[derive(Clone, Debug)]
pub struct RedisSetup {
    program: PathBuf,
    name: &'static str,
    arguments: Vec<String>,
}

impl RedisSetup {
    /// Creates a configuration for the installed Redis, which loses its data at a restart.
    pub fn redis() -> Self {
        Self { program: "redis-server".into(), name: "redis", arguments: Vec::new() }
    }

    /// Creates a configuration for Valkey, from the system or from `scripts/servers`.
    pub fn valkey() -> Self {
        let kept = in_cache("valkey/usr/bin/valkey-server").filter(|path| path.exists());
        Self { program: kept.unwrap_or_else(|| "valkey-server".into()), name: "valkey", arguments: Vec::new() }
    }

    /// Writes every change to disk before the reply, so that a restart loses nothing.
    #[must_use]
    pub fn durable(self) -> Self {
        self.with(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Adds arguments of the `redis-server` command line.
    #[must_use]
    pub fn with<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Panics
    /// If the server is not installed, or does not start.
    pub fn start(&self) -> Redis {
        let folder = Folder::new(self.name);
        let log = folder.path().join("log");
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            let mut process = Process::spawn(self.launch(&folder, port), &log);
            let ready = process.try_wait_until(&mut || answers(port));
            match ready {
                Ok(()) => return Redis { process, folder, port },
                // Another process may have taken the port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("{} {why}\n{}", self.name, process.output()),
            }
        }
    }

    fn launch(&self, folder: &Folder, port: u16) -> Launch {
        let bus = free_port().to_string();
        let port = port.to_string();
        let is_cluster = self.arguments.iter().any(|argument| argument == "--cluster-enabled");
        let is_sentinel = self.arguments.iter().any(|argument| argument == "--sentinel");
        let config = folder.path().join("sentinel.conf");
        let mut launch = Launch::new(&self.program, self.name);
        if is_sentinel {
            // Sentinel writes its state to this file.
            std::fs::File::options().create(true).append(true).open(&config).expect("a file of this process");
            launch = launch.arg(&config);
        } else {
            launch = launch.args(["--save", "", "--repl-diskless-sync-delay", "0"]);
            if !self.arguments.iter().any(|argument| argument == "--appendonly") {
                launch = launch.args(["--appendonly", "no"]);
            }
        }
        launch = launch.args(["--port", &port, "--bind", "127.0.0.1", "--dir"]).arg(folder.path());
        if is_cluster {
            launch = launch.args(["--cluster-port", &bus]);
        }
        launch.args(&self.arguments)
    }
}

impl Redis {
    /// Starts the installed Redis with the default configuration, which loses its data at a restart.
    pub fn start() -> Self {
        RedisSetup::redis().start()
    }

    /// Returns the port of the server on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of the server, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL of a store on this server.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Returns its temporary folder, with its data and its log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a command on a new connection, and returns the reply.
    ///
    /// # Panics
    /// If the server does not reply.
    pub fn ask(&self, command: &[&str]) -> Reply {
        self.try_ask(command).unwrap_or_else(|error| panic!("no reply to {command:?}: {error}"))
    }

    /// Sends a command on a new connection, and returns the reply.
    ///
    /// # Errors
    /// If the server does not reply.
    pub fn try_ask(&self, command: &[&str]) -> io::Result<Reply> {
        resp::ask(self.port, command)
    }

    /// Returns one field of `INFO`; empty if there is none.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.ask(&["INFO", section]);
        let line = info.text().lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Returns how often a command was called, from the server's statistics.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.info("commandstats", &format!("cmdstat_{command}"));
        let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
    }

    /// Returns the number of connected clients, without this call's own, replicas and Sentinels.
    pub fn clients(&self) -> usize {
        let list = self.ask(&["CLIENT", "LIST"]);
        let asks = |line: &&str| line.contains(" cmd=client") || line.contains(" flags=S");
        let is_sentinel = |line: &&str| line.contains(" name=sentinel-");
        list.text().lines().filter(|line| !asks(line) && !is_sentinel(line)).count()
    }

    /// Pauses the server (SIGSTOP): its connections stay open, but it does not answer.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Resumes the server (SIGCONT) after [`Redis::pause`].
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills the server (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the server again on the same port, with the data in its folder.
    pub fn restart(&mut self) {
        self.process.restart();
        let port = self.port;
        self.process.wait_until("it answers", || answers(port));
    }

    /// Kills the server and starts it again on the same port without its data.
    ///
    /// # Panics
    /// If its data cannot be removed, or it does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        let written = self.folder.path().join("appendonlydir");
        if written.exists() {
            std::fs::remove_dir_all(written).expect("a folder of this process");
        }
        let _ = std::fs::remove_file(self.folder.path().join("appendonly.aof"));
        self.restart();
    }
}

/// Returns whether the server runs and has loaded its data. It may require a password.
fn answers(port: u16) -> bool {
    resp::ask(port, &["PING"])
        .is_ok_and(|reply| reply.text() == "PONG" || ["NOAUTH", "NOPERM"].iter().any(|e| reply.text().starts_with(e)))
}
