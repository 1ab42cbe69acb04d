//! The command line of a server.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of a file in the folder in which `scripts/servers` keeps what apt does not install.
pub(super) fn in_cache(path: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("TENURE_CACHE").map(PathBuf::from).or_else(|| {
        let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        caches.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache"))).map(|c| c.join("tenure"))
    });
    cache.map(|cache| cache.join(path))
}

/// A command that starts a server in the foreground, and the command that installs the server.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) user: Option<String>,
    pub(super) install: String,
}

impl Launch {
    /// Creates a command for `program`, which `scripts/servers NAME` installs.
    pub fn new(program: impl Into<PathBuf>, name: &str) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            user: None,
            install: format!("scripts/servers {name}"),
        }
    }

    /// Adds an argument after those of earlier calls.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds several arguments after those of earlier calls.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Runs the server as this user if the tests run as root, because some servers refuse to run as root.
    #[must_use]
    pub fn as_user(mut self, user: &str) -> Self {
        self.user = rustix::process::geteuid().is_root().then(|| user.to_owned());
        self
    }

    /// Returns the command, with a wrapper that makes the kernel kill it when the thread that spawned it ends.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = &self.user {
            command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
        }
        command.arg("--").arg(&self.program).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the command until it exits, for programs such as `initdb`.
    ///
    /// # Panics
    /// If the command fails, with its output.
    pub fn run(&self) {
        self.must_exist();
        let output =
            self.command().output().unwrap_or_else(|error| panic!("cannot run setpriv: {error}; run {}", self.install));
        assert!(
            output.status.success(),
            "{} failed: {}\n{}{}",
            self.program.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Checks that the program is installed.
    ///
    /// # Panics
    /// If it is missing, with the command that installs it.
    pub(super) fn must_exist(&self) {
        let found = |program: &Path| {
            program.components().count() > 1 && program.exists()
                || std::env::var_os("PATH")
                    .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
        };
        for program in [Path::new("setpriv"), &self.program] {
            assert!(found(program), "{} is not installed; run {}", program.display(), self.install);
        }
    }
}
