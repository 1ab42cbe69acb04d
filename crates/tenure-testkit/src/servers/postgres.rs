//! A PostgreSQL server.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Folder, Launch, Process, free_port};

/// A PostgreSQL server on this machine, with a database `postgres` and a superuser of that name.
#[derive(Debug)]
pub struct Postgres {
    /// The postmaster. The server's other processes are its children.
    pub process: Process,
    folder: Folder,
    port: u16,
    /// Lets its processes go on, should this one be killed while they are paused.
    waker: Option<Child>,
}

/// How a PostgreSQL server is set up.
#[derive(Clone, Debug, Default)]
pub struct PostgresSetup {
    settings: Vec<String>,
    access: Option<String>,
    clock_by_hand: bool,
    copy_of: Option<u16>,
}

impl PostgresSetup {
    /// A server that lets everybody in, and has its data on disk when it says so as far as a crash of its
    /// own processes goes, not of the machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a setting, as `name=value`.
    #[must_use]
    pub fn with(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// With these lines as `pg_hba.conf`.
    #[must_use]
    pub fn access(mut self, lines: &str) -> Self {
        self.access = Some(format!("{lines}\n"));
        self
    }

    /// With a certificate of its own making in `server.crt`, for `localhost` and 127.0.0.1.
    #[must_use]
    pub fn encrypts(self) -> Self {
        self.with("ssl=on").with("ssl_cert_file=server.crt").with("ssl_key_file=server.key")
    }

    /// With a wall clock that [`Postgres::step_clock`] sets. Needs libfaketime.
    #[must_use]
    pub fn clock_by_hand(mut self) -> Self {
        self.clock_by_hand = true;
        self
    }

    /// As a standby of this one.
    #[must_use]
    pub fn standby_of(mut self, primary: &Postgres) -> Self {
        self.copy_of = Some(primary.port);
        self
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
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
            // The test itself gets in by the socket, whatever it says of hosts.
            std::fs::write(data.join("pg_hba.conf"), format!("local all all trust\n{access}")).expect("our own file");
        }
        if self.settings.iter().any(|setting| setting == "ssl=on") {
            make_certificate(&data);
        }
        let clock = folder.path().join("clock");
        std::fs::write(&clock, "+0\n").expect("our own file");
        let log = folder.path().join("log");
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            let mut process = Process::spawn(self.launch(folder.path(), port), &log);
            let ready = process.try_wait_until(&mut || answers(folder.path(), port));
            match ready {
                Ok(()) => return Postgres { process, folder, port, waker: None },
                // Somebody else may have been quicker to take the port.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("postgres {why}\n{}", process.output()),
            }
        }
    }

    fn launch(&self, folder: &Path, port: u16) -> Launch {
        let mut launch = tool("postgres");
        if self.clock_by_hand {
            let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
            assert!(Path::new(library).exists(), "libfaketime is not installed here: run scripts/servers faketime");
            // For the server alone, not for what starts it as another user.
            launch = Launch::new("env", "postgres")
                .as_user("postgres")
                .arg(format!("LD_PRELOAD={library}"))
                .arg(format!("FAKETIME_TIMESTAMP_FILE={}", folder.join("clock").display()))
                .args(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"])
                .arg(program("postgres"));
        }
        launch = launch.arg("-D").arg(folder.join("data")).args(["-p", &port.to_string()]);
        let socket = format!("unix_socket_directories={}", folder.display());
        // In its folder, where nothing is left behind when it is killed.
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
    /// A server that lets everybody in.
    pub fn start() -> Self {
        PostgresSetup::new().start()
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
        format!("postgres://postgres@{}/postgres", self.address())
    }

    /// Its temporary folder, with its socket. Its data is in `data` there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs SQL as the superuser, on a connection of its own, and returns what it answers: a line a row,
    /// with `|` between columns.
    ///
    /// # Panics
    /// If it fails.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The same, told instead of a panic.
    ///
    /// # Errors
    /// What the server says.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        ask(self.folder.path(), self.port, sql)
    }

    /// Stops all of its processes (SIGSTOP): connections stay open, and nothing is answered.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
        // The postmaster dies with us whatever its state, but its children must run to notice.
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

    /// Lets them go on (SIGCONT).
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.wake(None);
    }

    /// Ends the last waker, which wakes whoever still sleeps.
    fn wake(&mut self, next: Option<Child>) {
        if let Some(mut last) = std::mem::replace(&mut self.waker, next) {
            drop(last.stdin.take());
            let _ = last.wait();
        }
    }

    /// Kills all of its processes (SIGKILL), as a crash of the machine would.
    pub fn kill(&mut self) {
        // Stopped first, or it starts others in place of those that die.
        self.process.pause();
        let children = self.children();
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        self.process.kill();
        // One that is dead and not buried yet has let go of everything.
        let is_alive = |child: &Pid| {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero())).unwrap_or_default();
            status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
        };
        while children.iter().any(is_alive) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Starts it again on the same port, with what its folder holds.
    pub fn restart(&mut self) {
        self.process.restart();
        let (folder, port) = (self.folder.path().to_owned(), self.port);
        self.process.wait_until("it answers", || answers(&folder, port));
    }

    /// Kills it, and starts another on the same port that knows nothing of what it was told, nor of how it
    /// was set up.
    pub fn restart_empty(&mut self) {
        self.kill();
        self.remove_shared_memory();
        let data = self.folder.path().join("data");
        std::fs::remove_dir_all(&data).expect("our own folder");
        init(&data);
        self.restart();
    }

    /// Sets the wall clock that it goes by this many seconds from the true time. Only with
    /// [`PostgresSetup::clock_by_hand`].
    pub fn step_clock(&self, seconds: i32) {
        let (now, next) = (self.folder.path().join("clock"), self.folder.path().join("clock.next"));
        // Renamed into place, as it is read at every look at the clock.
        std::fs::write(&next, format!("{seconds:+}\n")).expect("our own file");
        std::fs::rename(&next, &now).expect("our own file");
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
            // At once, but it clears away what its processes share.
            self.resume();
            self.process.end(Signal::QUIT);
        } else {
            self.remove_shared_memory();
        }
        self.wake(None);
        // What libfaketime shares among the processes of a server outlives one that is killed.
        for name in ["sem.faketime_sem_", "faketime_shm_"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}{}", self.process.id()));
        }
    }
}

/// Removes the segment of shared memory by which a server knows that another is still there, if nobody uses
/// it any more. It outlives a server that is killed.
pub(super) fn remove_shared_memory(folder: &Path) {
    let notes = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap_or_default();
    let Some(named) = notes.lines().nth(6).map(|line| line.split_whitespace().collect::<Vec<_>>()) else { return };
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    // Of each its key, its number, its mode, its size, who made it, who used it last, and how many do now.
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
        .map_err(|error| format!("psql: {error}: run scripts/servers postgres"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Gives a folder to the user that the server runs as.
fn own(folder: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == "postgres");
    let numbers = user.and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
    let (user, group) = numbers.expect("the user postgres is not there: run scripts/servers postgres");
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
