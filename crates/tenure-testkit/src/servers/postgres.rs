//! A PostgreSQL server.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Folder, Launch, Process, free_port};

/// A PostgreSQL server on this machine, with a database `postgres` and a superuser `postgres`. Dropping it ends the
/// server.
#[derive(Debug)]
pub struct Postgres {
    /// The postmaster, which is the parent of the server's other processes.
    pub process: Process,
    folder: Folder,
    port: u16,
    /// A process that resumes the server's processes if this process is killed while they are paused.
    waker: Option<Child>,
}

/// The configuration of a PostgreSQL server, to start it with.
#[derive(Clone, Debug, Default)]
pub struct PostgresSetup {
    settings: Vec<String>,
    access: Option<String>,
    clock_by_hand: bool,
    copy_of: Option<u16>,
}

impl PostgresSetup {
    /// Creates the default configuration: all users can log in without a password. Committed data survives a crash of
    /// the server's processes, but not of the machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting of `postgresql.conf`, as `name=value`.
    #[must_use]
    pub fn with(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Sets the lines of `pg_hba.conf`, which says who can log in and how.
    #[must_use]
    pub fn access(mut self, lines: &str) -> Self {
        self.access = Some(format!("{lines}\n"));
        self
    }

    /// Turns TLS on, with a self-signed certificate for `localhost` and 127.0.0.1 in `server.crt`.
    #[must_use]
    pub fn encrypts(self) -> Self {
        self.with("ssl=on").with("ssl_cert_file=server.crt").with("ssl_key_file=server.key")
    }

    /// Gives the server a wall clock that [`Postgres::step_clock`] sets. Needs libfaketime.
    #[must_use]
    pub fn clock_by_hand(mut self) -> Self {
        self.clock_by_hand = true;
        self
    }

    /// Makes the server a standby of this primary.
    #[must_use]
    pub fn standby_of(mut self, primary: &Postgres) -> Self {
        self.copy_of = Some(primary.port);
        self
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Panics
    /// If PostgreSQL is not installed, or does not start.
    pub fn start(&self) -> Postgres {
        let folder = Folder::new("postgres");
        own(folder.path());
        let data = folder.path().join("data");
        match self.copy_of {
            None => init(&data),
            Some(port) => tool("pg_basebackup")
                .arg("-D")
                .arg(&data)
                .args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-c", "fast", "-X", "stream", "-p"])
                .arg(port.to_string())
                .run(),
        }
        if let Some(access) = &self.access {
            // The test itself connects through the Unix socket, whatever the lines say about hosts.
            std::fs::write(data.join("pg_hba.conf"), format!("local all all trust\n{access}"))
                .expect("a file of this process");
        }
        if self.settings.iter().any(|setting| setting == "ssl=on") {
            make_certificate(&data);
        }
        let clock = folder.path().join("clock");
        std::fs::write(&clock, "+0\n").expect("a file of this process");
        let log = folder.path().join("log");
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            let mut process = Process::spawn(self.launch(folder.path(), port), &log);
            let ready = process.try_wait_until(&mut || answers(folder.path(), port));
            match ready {
                Ok(()) => return Postgres { process, folder, port, waker: None },
                // Another process may have taken the port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("postgres {why}\n{}", process.output()),
            }
        }
    }

    fn launch(&self, folder: &Path, port: u16) -> Launch {
        let mut launch = tool("postgres");
        if self.clock_by_hand {
            let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
            assert!(Path::new(library).exists(), "libfaketime is not installed; run scripts/servers faketime");
            // Only for the server, not for the wrapper that starts it as another user.
            launch = Launch::new("env", "postgres")
                .as_user("postgres")
                .arg(format!("LD_PRELOAD={library}"))
                .arg(format!("FAKETIME_TIMESTAMP_FILE={}", folder.join("clock").display()))
                .args(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"])
                .arg(program("postgres"));
        }
        launch = launch.arg("-D").arg(folder.join("data")).args(["-p", &port.to_string()]);
        let socket = format!("unix_socket_directories={}", folder.display());
        // Shared memory in its folder, so that a killed server leaves nothing elsewhere.
        let memory = "dynamic_shared_memory_type=mmap";
        let common =
            ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=300", "autovacuum=off", memory, &socket];
        for setting in common.into_iter().chain(self.settings.iter().map(String::as_str)) {
            launch = launch.args(["-c", setting]);
        }
        launch
    }
}

impl Postgres {
    /// Starts a server with the default configuration, which lets all users log in.
    pub fn start() -> Self {
        PostgresSetup::new().start()
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
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Returns its temporary folder, with its socket and, in `data`, its data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs SQL as the superuser on a new connection, and returns the result: one line per row, with `|` between
    /// columns.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs SQL as the superuser on a new connection, like [`Postgres::sql`].
    ///
    /// # Errors
    /// The message of the server, if the statement fails.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        ask(self.folder.path(), self.port, sql)
    }

    /// Pauses all processes of the server (SIGSTOP): connections stay open, but the server does not answer.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
        // The postmaster dies with this process, even while it is paused, but its children must run to notice that.
        let children = self.children();
        let waker = Command::new("sh")
            .args(["-c", "read _; kill -CONT \"$@\"", "sh"])
            .args(children.iter().map(|child| child.as_raw_nonzero().to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        self.wake(waker.ok());
    }

    /// Resumes all processes of the server (SIGCONT) after [`Postgres::pause`].
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.wake(None);
    }

    /// Ends the current waker, which resumes all paused processes, and sets the next one.
    fn wake(&mut self, next: Option<Child>) {
        if let Some(mut last) = std::mem::replace(&mut self.waker, next) {
            drop(last.stdin.take());
            let _ = last.wait();
        }
    }

    /// Kills all processes of the server (SIGKILL), as a crash of the machine would.
    pub fn kill(&mut self) {
        // The postmaster is stopped first. Otherwise it would replace processes that die.
        self.process.pause();
        let children = self.children();
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        self.process.kill();
        // A zombie has already closed all of its files.
        let is_alive = |child: &Pid| {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())).unwrap_or_default();
            status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
        };
        while children.iter().any(is_alive) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Starts the server again on the same port, with the data in its folder.
    pub fn restart(&mut self) {
        self.process.restart();
        let (folder, port) = (self.folder.path().to_owned(), self.port);
        self.process.wait_until("it answers", || answers(&folder, port));
    }

    /// Kills the server and starts a new one on the same port, without its data and without its configuration.
    pub fn restart_empty(&mut self) {
        self.kill();
        self.remove_shared_memory();
        let data = self.folder.path().join("data");
        std::fs::remove_dir_all(&data).expect("our own folder");
        init(&data);
        self.restart();
    }

    /// Sets the wall clock of the server to this many seconds from the true time. Needs
    /// [`PostgresSetup::clock_by_hand`].
    pub fn step_clock(&self, seconds: i32) {
        let (now, next) = (self.folder.path().join("clock"), self.folder.path().join("clock.next"));
        // Renamed into place, because the file is read whenever the server reads its clock.
        std::fs::write(&next, format!("{seconds:+}\n")).expect("a file of this process");
        std::fs::rename(&next, &now).expect("a file of this process");
    }

    fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
        for child in self.children() {
            let _ = kill_process(child, signal);
        }
    }

    fn remove_shared_memory(&self) {
        remove_shared_memory(self.folder.path());
    }

    fn children(&self) -> Vec<Pid> {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.ended().is_none() {
            // This ends the server at once, but lets it remove its shared memory.
            self.resume();
            self.process.end(Signal::QUIT);
        } else {
            self.remove_shared_memory();
        }
        self.wake(None);
        // The shared memory of libfaketime outlives a server that is killed.
        for name in ["sem.faketime_sem_", "faketime_shm_"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}{}", self.process.id()));
        }
    }
}

/// Removes the shared memory segment that shows a new server whether the old one still runs, if no process uses it. The
/// segment outlives a server that is killed.
pub(super) fn remove_shared_memory(folder: &Path) {
    let notes = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    let Some(named) = notes.lines().nth(6).map(|line| line.split_whitespace().collect::<Vec<_>>()) else { return };
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    // The columns: key, id, mode, size, creator, last user, and the number of processes that use it.
    let is_it = |segment: &Vec<&str>| segment.len() > 6 && segment[..2] == named && segment[6] == "0";
    if segments.lines().map(|line| line.split_whitespace().collect()).any(|segment| is_it(&segment)) {
        let _ = Command::new("ipcrm").args(["-m", named[1]]).output();
    }
}

fn init(data: &Path) {
    let options = ["-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8"];
    tool("initdb").arg("-D").arg(data).args(options).run();
}

fn tool(name: &str) -> Launch {
    Launch::new(program(name), "postgres").as_user("postgres")
}

fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("PG_BIN").map_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin"), PathBuf::from);
    folder.join(name)
}

fn answers(folder: &Path, port: u16) -> bool {
    ask(folder, port, "SELECT 1").is_ok()
}

fn ask(folder: &Path, port: u16, sql: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args([
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-d",
            "postgres",
            "-p",
            &port.to_string(),
            "-c",
            sql,
        ])
        .arg("-h")
        .arg(folder)
        .env("PGCONNECT_TIMEOUT", "10")
        .output()
        .map_err(|error| format!("cannot run psql: {error}; run scripts/servers postgres"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Makes the server's user the owner of a folder.
fn own(folder: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == "postgres");
    let numbers = user.and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
    let (user, group) = numbers.expect("the user postgres does not exist; run scripts/servers postgres");
    std::os::unix::fs::chown(folder, Some(user), Some(group)).expect("our own folder");
}

fn make_certificate(data: &Path) {
    let (key, certificate) = (data.join("server.key"), data.join("server.crt"));
    Launch::new("openssl", "postgres")
        .as_user("postgres")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .run();
}
