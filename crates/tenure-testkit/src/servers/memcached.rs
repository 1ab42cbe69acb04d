//! A memcached server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;

use super::{Folder, Launch, Process, free_port};

/// A memcached server on this machine. Dropping it ends the server.
#[derive(Debug)]
pub struct Memcached {
    /// The process of the server, which a test can signal.
    pub process: Process,
    folder: Folder,
    port: u16,
}

/// The configuration of a memcached server, to start it with.
#[derive(Clone, Debug, Default)]
pub struct MemcachedSetup {
    arguments: Vec<String>,
    login: Option<String>,
}

impl MemcachedSetup {
    /// Creates the default configuration: 64 MB of memory, and no log-in.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds arguments of the `memcached` command line.
    #[must_use]
    pub fn with<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Requires this log-in, as `user:password`. Several log-ins are on lines of their own.
    #[must_use]
    pub fn login(mut self, login: &str) -> Self {
        self.login = Some(login.to_owned());
        self
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Panics
    /// If the server is not installed, or does not start.
    pub fn start(&self) -> Memcached {
        let folder = Folder::new("memcached");
        let (log, logins) = (folder.path().join("log"), folder.path().join("logins"));
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            // The server refuses to run as root. For other users, `-u` has no effect.
            let mut launch = Launch::new("memcached", "memcached").args(["-u", "nobody", "-l", "127.0.0.1"]);
            launch = launch.args(["-p", &port.to_string(), "-U", "0"]).args(&self.arguments);
            if let Some(login) = &self.login {
                std::fs::write(&logins, format!("{login}\n")).expect("a file of this process");
                launch = launch.arg("-Y").arg(&logins);
            }
            let mut process = Process::spawn(launch, &log);
            match process.try_wait_until(&mut || is_open(port)) {
                Ok(()) => return Memcached { process, folder, port },
                // Another process may have taken the port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("memcached {why}\n{}", process.output()),
            }
        }
    }
}

impl Memcached {
    /// Starts the installed memcached with the default configuration.
    pub fn start() -> Self {
        MemcachedSetup::new().start()
    }

    /// Returns the address of the server, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL of a store on this server.
    pub fn url(&self) -> String {
        format!("memcached://{}", self.address())
    }

    /// Sends one line on a new connection, and returns the first line of the reply.
    ///
    /// # Panics
    /// If the server does not reply.
    pub fn ask(&self, line: &str) -> String {
        self.try_ask(line, |_| false).expect("a reply").trim_end().to_owned()
    }

    /// Returns one number of the server's statistics, such as `cmd_get`.
    ///
    /// # Panics
    /// If the server does not reply, or has no such number.
    pub fn stat(&self, name: &str) -> u64 {
        let stats = self.try_ask("stats", |line| line.starts_with("STAT")).expect("a reply");
        let number =
            |line: &str| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        stats.lines().find_map(number).unwrap_or_else(|| panic!("no number {name} in the statistics"))
    }

    fn try_ask(&self, line: &str, has_more: impl Fn(&str) -> bool) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(format!("{line}\r\n").as_bytes())?;
        let (mut from, mut reply) = (BufReader::new(stream.take(1 << 20)), String::new());
        loop {
            let before = reply.len();
            from.read_line(&mut reply)?;
            if reply.len() == before || !has_more(&reply[before..]) {
                return Ok(reply);
            }
        }
    }

    /// Replaces all log-ins of a server that was started with one. The server reads them within some seconds, and checks
    /// those of connections that are opened after that.
    ///
    /// # Panics
    /// If the log-ins cannot be written.
    pub fn set_login(&mut self, login: &str) {
        std::fs::write(self.folder.path().join("logins"), format!("{login}\n")).expect("a file of this process");
        self.process.signal(Signal::HUP);
    }

    /// Pauses the server (SIGSTOP): its connections stay open, but it does not answer.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Resumes the server (SIGCONT) after [`Memcached::pause`].
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills the server (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the server again on the same port, without any data: it keeps them only in its memory.
    pub fn restart(&mut self) {
        self.process.restart();
        let port = self.port;
        self.process.wait_until("it answers", || is_open(port));
    }
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}
