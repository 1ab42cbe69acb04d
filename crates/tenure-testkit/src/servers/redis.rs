//! A Redis server, or one that speaks like it.

use std::io;
use std::path::{Path, PathBuf};

use super::{Folder, Launch, Process, Reply, free_port, resp};

/// A Redis server on this machine.
#[derive(Debug)]
pub struct Redis {
    /// Its process.
    pub process: Process,
    folder: Folder,
    port: u16,
}

/// How a Redis server is set up.
#[derive(Clone, Debug)]
pub struct RedisSetup {
    program: PathBuf,
    name: &'static str,
    arguments: Vec<String>,
}

impl RedisSetup {
    /// Redis as installed here, which keeps nothing over a restart.
    pub fn redis() -> Self {
        Self { program: "redis-server".into(), name: "redis", arguments: Vec::new() }
    }

    /// Valkey, from the system or from where `scripts/servers` keeps it.
    pub fn valkey() -> Self {
        let cache = std::env::var_os("TENURE_CACHE").map(PathBuf::from).or_else(|| {
            let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            caches.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache"))).map(|c| c.join("tenure"))
        });
        let kept = cache.map(|cache| cache.join("valkey/usr/bin/valkey-server")).filter(|path| path.exists());
        Self { program: kept.unwrap_or_else(|| "valkey-server".into()), name: "valkey", arguments: Vec::new() }
    }

    /// With every write on disk before it is answered, so that a restart loses nothing.
    #[must_use]
    pub fn durable(self) -> Self {
        self.with(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// With more settings, as on the command line.
    #[must_use]
    pub fn with<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
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
                // Somebody else may have been quicker to take the port.
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
            // It writes down what it learns.
            std::fs::File::options().create(true).append(true).open(&config).expect("a file in our own folder");
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
    /// A server that keeps nothing over a restart.
    pub fn start() -> Self {
        RedisSetup::redis().start()
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Its temporary folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Asks it something, on a connection of its own.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn ask(&self, command: &[&str]) -> Reply {
        self.try_ask(command).unwrap_or_else(|error| panic!("{command:?} was not answered: {error}"))
    }

    /// Asks it something, on a connection of its own.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn try_ask(&self, command: &[&str]) -> io::Result<Reply> {
        resp::ask(self.port, command)
    }

    /// One field of its `INFO`, empty if there is none.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.ask(&["INFO", section]);
        let line = info.text().lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// How often a command was called, by the server's own count.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.info("commandstats", &format!("cmdstat_{command}"));
        let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
    }

    /// How many clients are connected, without the one that asks, replicas and Sentinels.
    pub fn clients(&self) -> usize {
        let list = self.ask(&["CLIENT", "LIST"]);
        let asks = |line: &&str| line.contains(" cmd=client") || line.contains(" flags=S");
        let is_sentinel = |line: &&str| line.contains(" name=sentinel-");
        list.text().lines().filter(|line| !asks(line) && !is_sentinel(line)).count()
    }

    /// Stops it (SIGSTOP): its connections stay open, and nothing is answered.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port, with what its folder holds.
    pub fn restart(&mut self) {
        self.process.restart();
        let port = self.port;
        self.process.wait_until("it answers", || answers(port));
    }

    /// Kills it, and starts it again on the same port without what it has written down.
    ///
    /// # Panics
    /// If that cannot be removed.
    pub fn restart_empty(&mut self) {
        self.kill();
        let written = self.folder.path().join("appendonlydir");
        if written.exists() {
            std::fs::remove_dir_all(written).expect("our own folder");
        }
        let _ = std::fs::remove_file(self.folder.path().join("appendonly.aof"));
        self.restart();
    }
}

/// Whether it is there and has loaded its data. One that asks for a password is.
fn answers(port: u16) -> bool {
    resp::ask(port, &["PING"])
        .is_ok_and(|reply| reply.text() == "PONG" || ["NOAUTH", "NOPERM"].iter().any(|e| reply.text().starts_with(e)))
}
