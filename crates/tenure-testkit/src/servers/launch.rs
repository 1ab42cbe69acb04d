//! How a server is started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command that starts a server in the foreground, and how to get hold of it.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) variables: Vec<(OsString, OsString)>,
    pub(super) user: Option<String>,
    pub(super) install: String,
}

impl Launch {
    /// Starts `program`, which `scripts/servers NAME` installs.
    pub fn new(program: impl Into<PathBuf>, name: &str) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            user: None,
            install: format!("scripts/servers {name}"),
        }
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// With more arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// With this environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// As this user, where the tests run as root: some servers refuse to be.
    #[must_use]
    pub fn as_user(mut self, user: &str) -> Self {
        self.user = rustix::process::geteuid().is_root().then(|| user.to_owned());
        self
    }

    /// The command, under a wrapper that has the kernel kill it when the thread that spawns it is
    /// gone.
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

    /// Runs it to its end, as for `initdb`.
    ///
    /// # Panics
    /// With what it said, if it fails.
    pub fn run(&self) {
        self.must_exist();
        let output = self.command().output().unwrap_or_else(|error| panic!("setpriv: {error}: {}", self.install));
        assert!(
            output.status.success(),
            "{} failed: {}\n{}{}",
            self.program.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// # Panics
    /// With the command that installs it, if it is missing.
    pub(super) fn must_exist(&self) {
        let found = |program: &Path| {
            program.components().count() > 1 && program.exists()
                || std::env::var_os("PATH")
                    .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
        };
        for program in [Path::new("setpriv"), &self.program] {
            assert!(found(program), "{} is not installed here: run {}", program.display(), self.install);
        }
    }
}
