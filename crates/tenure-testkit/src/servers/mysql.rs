//! A MariaDB server, which speaks the protocol of MySQL.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use rustix::process::Signal;

use super::{Folder, Launch, Process, free_port};

/// A MariaDB server on this machine, with a database `app` and a superuser `root`. Dropping it ends the server.
#[derive(Debug)]
pub struct Mysql {
    /// The process of the server. It has no children.
    pub process: Process,
    folder: Folder,
    port: u16,
    /// Kept for the next server of this program, and removed with the last one.
    empty: Arc<Folder>,
}

/// The configuration of a MariaDB server, to start it with.
#[derive(Clone, Debug, Default)]
pub struct MysqlSetup {
    settings: Vec<String>,
    clock_by_hand: bool,
    encrypts: bool,
}

impl MysqlSetup {
    /// Creates the default configuration: the user `root` logs in without a password. Committed data survives a crash
    /// of the server's process, but not of the machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting of `my.cnf`, as `name=value`.
    #[must_use]
    pub fn with(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Turns TLS on, with a self-signed certificate for `localhost` in `server.crt`.
    #[must_use]
    pub fn encrypts(mut self) -> Self {
        self.encrypts = true;
        self
    }

    /// Gives the server a wall clock that [`Mysql::step_clock`] sets. Needs libfaketime.
    #[must_use]
    pub fn clock_by_hand(mut self) -> Self {
        self.clock_by_hand = true;
        self
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Panics
    /// If MariaDB is not installed, or does not start.
    pub fn start(&self) -> Mysql {
        let (folder, empty) = (Folder::new("mysql"), empty());
        own(folder.path());
        copy_data(&empty, folder.path());
        if self.encrypts {
            make_certificate(folder.path());
        }
        std::fs::write(folder.path().join("clock"), "+0\n").expect("a file of this process");
        let log = folder.path().join("log");
        let mut tries = 0;
        loop {
            tries += 1;
            let port = free_port();
            let mut process = Process::spawn(self.launch(folder.path(), port), &log);
            match process.try_wait_until(&mut || answers(folder.path())) {
                Ok(()) => {
                    let server = Mysql { process, folder, port, empty };
                    server.sql("CREATE DATABASE IF NOT EXISTS app");
                    return server;
                }
                // Another process may have taken the port first.
                Err(_) if tries < 5 => {}
                Err(why) => panic!("mariadbd {why}\n{}", process.output()),
            }
        }
    }

    fn launch(&self, folder: &Path, port: u16) -> Launch {
        let mut launch = Launch::new("mariadbd", "mysql").as_user(USER);
        if self.clock_by_hand {
            let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
            assert!(Path::new(library).exists(), "libfaketime is not installed; run scripts/servers faketime");
            // Only for the server, not for the wrapper that starts it as another user.
            launch = Launch::new("env", "mysql")
                .as_user(USER)
                .arg(format!("LD_PRELOAD={library}"))
                .arg(format!("FAKETIME_TIMESTAMP_FILE={}", folder.join("clock").display()))
                .args(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "mariadbd"]);
        }
        let at = |option: &str, file: &str| format!("--{option}={}", folder.join(file).display());
        // Small, and without a sync of the disk: its data need not survive a crash of the machine.
        let common = ["bind-address=127.0.0.1", "skip-name-resolve", "max-connections=400", "innodb-log-file-size=8M"];
        let small = ["innodb-buffer-pool-size=16M", "innodb-flush-method=nosync", "key-buffer-size=1M"];
        launch = launch
            .arg("--no-defaults")
            .args([at("datadir", "data"), at("tmpdir", ""), at("socket", "socket"), at("pid-file", "pid")])
            .arg(format!("--port={port}"))
            .args(common.into_iter().chain(small).map(|setting| format!("--{setting}")));
        if self.encrypts {
            launch = launch.args([at("ssl-cert", "server.crt"), at("ssl-key", "server.key")]);
        }
        launch.args(self.settings.iter().map(|setting| format!("--{setting}")))
    }
}

impl Mysql {
    /// Starts a server with the default configuration.
    pub fn start() -> Self {
        MysqlSetup::new().start()
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
        format!("mysql://root@{}/app", self.address())
    }

    /// Returns its temporary folder, with its socket (`socket`) and its data (`data`).
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs SQL as the superuser on a new connection, in the database `app` if it exists, and returns the result: one
    /// line per row, with tabs between columns.
    ///
    /// # Panics
    /// If the statement fails.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs SQL as the superuser on a new connection, like [`Mysql::sql`].
    ///
    /// # Errors
    /// The message of the server, if the statement fails.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        let has_app = self.folder.path().join("data/app").exists();
        ask(self.folder.path(), if has_app { "app" } else { "" }, sql)
    }

    /// Pauses the server (SIGSTOP): connections stay open, but the server does not answer.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Resumes the server (SIGCONT) after [`Mysql::pause`].
    pub fn resume(&mut self) {
        self.process.resume();
    }

    /// Kills the server (SIGKILL).
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the server again on the same port, with the data in its folder.
    pub fn restart(&mut self) {
        self.process.restart();
        let folder = self.folder.path().to_owned();
        self.process.wait_until("it answers", || answers(&folder));
    }

    /// Kills the server and starts a new one on the same port, without its data.
    pub fn restart_empty(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("our own folder");
        copy_data(&self.empty, self.folder.path());
        self.restart();
        self.sql("CREATE DATABASE IF NOT EXISTS app");
    }

    /// Sets the wall clock of the server to this many seconds from the true time. Needs
    /// [`MysqlSetup::clock_by_hand`].
    pub fn step_clock(&self, seconds: i32) {
        let (now, next) = (self.folder.path().join("clock"), self.folder.path().join("clock.next"));
        // Renamed into place, because the file is read whenever the server reads its clock.
        std::fs::write(&next, format!("{seconds:+}\n")).expect("a file of this process");
        std::fs::rename(&next, &now).expect("a file of this process");
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        if self.process.ended().is_none() {
            // Its data is removed with its folder.
            self.process.end(Signal::KILL);
        }
        // The shared memory of libfaketime outlives a server that is killed.
        for name in ["sem.faketime_sem_", "faketime_shm_"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}{}", self.process.id()));
        }
    }
}

/// The user that runs the server, if this process is root: every system has it, with a group of the same name.
const USER: &str = "daemon";

/// Returns a folder with the data of an empty server. Creating it takes seconds, so all servers of this program share it.
fn empty() -> Arc<Folder> {
    static EMPTY: Mutex<Weak<Folder>> = Mutex::new(Weak::new());
    let mut empty = EMPTY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    empty.upgrade().unwrap_or_else(|| {
        let folder = Arc::new(Folder::new("mysql-empty"));
        own(folder.path());
        let at = |option: &str, file: &str| format!("--{option}={}", folder.path().join(file).display());
        Launch::new("mariadb-install-db", "mysql")
            .as_user(USER)
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(["--skip-name-resolve", "--basedir=/usr", "--innodb-log-file-size=8M"])
            .arg("--innodb-flush-method=nosync")
            // A server that starts removes temporary tables, also those of other servers in the same folder.
            .args([at("datadir", "data"), at("tmpdir", "")])
            .run();
        *empty = Arc::downgrade(&folder);
        folder
    })
}

fn copy_data(from: &Folder, to: &Path) {
    Launch::new("cp", "mysql").as_user(USER).arg("-a").arg(from.path().join("data")).arg(to.join("data")).run();
}

fn answers(folder: &Path) -> bool {
    ask(folder, "", "SELECT 1").is_ok()
}

fn ask(folder: &Path, database: &str, sql: &str) -> Result<String, String> {
    let output = Command::new("mariadb")
        .args(["--no-defaults", "--batch", "--skip-column-names", "--connect-timeout=10", "-uroot"])
        .arg(format!("--socket={}", folder.join("socket").display()))
        .args(["--default-character-set=utf8mb4", "-e", sql])
        .args(Some(database).filter(|database| !database.is_empty()))
        .output()
        .map_err(|error| format!("cannot run mariadb: {error}; run scripts/servers mysql"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Makes the server's user the owner of a folder.
fn own(folder: &Path) {
    if rustix::process::geteuid().is_root() {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == USER);
        let numbers = user.and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
        let (user, group) = numbers.expect("the user daemon exists");
        std::os::unix::fs::chown(folder, Some(user), Some(group)).expect("our own folder");
    }
}

fn make_certificate(folder: &Path) {
    Launch::new("openssl", "mysql")
        .as_user(USER)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.join("server.key"))
        .arg("-out")
        .arg(folder.join("server.crt"))
        .run();
}
