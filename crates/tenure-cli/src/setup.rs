//! Prepares a command: reads options from files and variables, connects to the store, starts the log.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use tenure::{ElectionOptions, Elections, MemoryStore, Settings};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{Cli, Global, LogFormat};
use crate::failure::Failure;
use crate::mask::mask;
use crate::stderr;

/// The settings and the store of a command.
pub(crate) struct Setup {
    settings: Settings,
    /// The URL of the store. It can contain a password: print [`Setup::shown`] instead.
    url: String,
    /// The database of the store, if it is a file.
    database: Option<Database>,
}

/// A database in a file on this machine.
struct Database {
    /// The absolute path.
    path: PathBuf,
    origin: Origin,
}

/// How the path of a database was given.
#[derive(PartialEq, Eq)]
enum Origin {
    Default,
    RelativePath,
    AbsolutePath,
}

impl Setup {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let settings = settings(global.config.as_deref())?;
        let url = global.store.clone().or_else(|| settings.store.clone()).map_or_else(default_store, Ok)?;
        if url.starts_with("memory:") {
            return Err(Failure::new(
                "the store memory: works only within one process, so every process would lead; \
                 use sqlite: for the processes of this machine",
            ));
        }
        Ok(Self { settings, database: database(&url)?, url })
    }

    /// Returns the URL of the store. It can contain a password: print [`Setup::shown`] instead.
    #[cfg(target_os = "linux")]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Connects to the store.
    pub(crate) fn elections(&self) -> Result<Elections, Failure> {
        let store = tenure::connect(&self.url).map_err(of_store)?;
        #[cfg(target_os = "linux")]
        if crate::profile::is_on() {
            return Ok(Elections::new(crate::profile::Profiled(store)));
        }
        Ok(Elections::new(store))
    }

    /// Connects to the store for commands that only read: they create nothing, and need no right to write.
    pub(crate) fn elections_read_only(&self) -> Result<Elections, Failure> {
        Ok(Elections::new(tenure::connect_read_only(&self.url).map_err(of_store)?))
    }

    /// Connects to the store in order to watch it. A SQLite database that is opened to be read alone is opened again for
    /// each call, so a watch opens it as a candidate does.
    pub(crate) fn elections_to_watch(&self) -> Result<Elections, Failure> {
        if self.database.is_some() { self.elections() } else { self.elections_read_only() }
    }

    /// Connects to the store for commands that read first. A database that does not exist counts as empty and is not
    /// created.
    pub(crate) fn elections_to_read(&self) -> Result<Elections, Failure> {
        if self.missing().is_some() { Ok(Elections::new(MemoryStore::new())) } else { self.elections() }
    }

    /// Returns the path of the database if it does not exist yet: the first candidate creates it.
    pub(crate) fn missing(&self) -> Option<&Path> {
        let database = self.database.as_ref()?;
        // If the user named a folder that does not exist, the store reports an error.
        let creatable = database.origin == Origin::Default || database.path.parent().is_some_and(Path::is_dir);
        let missing = creatable && database.path.try_exists().is_ok_and(|exists| !exists);
        missing.then_some(&*database.path)
    }

    /// Returns whether the store is a file on this machine.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_file(&self) -> bool {
        self.database.is_some()
    }

    /// Returns the location of the seats, unless the user named it in full.
    pub(crate) fn location(&self) -> Option<String> {
        match self.database.as_ref()?.origin {
            Origin::AbsolutePath => None,
            Origin::RelativePath => Some(self.shown()),
            Origin::Default => {
                Some(self.shown() + " (default of this user; other users and machines have their own, see --store)")
            }
        }
    }

    /// Prints the location of the seats if no store was named.
    pub(crate) fn announce_default(&self, global: &Global) {
        if self.database.as_ref().is_some_and(|database| database.origin == Origin::Default)
            && let Some(store) = self.location()
        {
            stderr::store(&self.shown(), &store, global.prints_messages());
        }
    }

    /// Prints the location of the seats, unless [`announce_default`](Self::announce_default) has printed it.
    pub(crate) fn announce_named(&self, global: &Global) {
        if self.database.as_ref().is_none_or(|database| database.origin != Origin::Default) {
            stderr::store(&self.shown(), &self.shown(), global.prints_messages());
        }
    }

    /// Returns the options of an election from files and variables.
    pub(crate) fn options(&self, election: &str) -> ElectionOptions {
        self.settings.election(election)
    }

    /// Returns the URL of the store without secrets.
    pub(crate) fn shown(&self) -> String {
        match &self.database {
            Some(database) => format!("sqlite:{}", database.path.display()),
            None => mask(&self.url),
        }
    }
}

fn settings(config: Option<&Path>) -> Result<Settings, Failure> {
    let default = Path::new("tenure.toml");
    let settings = match config {
        Some(path) => Settings::from_file(path)?,
        None if default.exists() => Settings::from_file(default)?,
        None => Settings::default(),
    };
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    match std::env::vars_os().find_map(|(name, _)| only_an_option(name.to_str()?)) {
        Some(refused) => Err(refused),
        None => Ok(settings.with_vars(variables)?),
    }
}

/// Returns the error for a variable with the name of an option that is only for the command line.
fn only_an_option(variable: &str) -> Option<Failure> {
    let option = variable.strip_prefix("TENURE_")?.to_lowercase().replace('_', "-");
    let cli = Cli::command();
    let own = |command| cli.find_subcommand(command).into_iter().flat_map(clap::Command::get_arguments);
    let is_option = own("run").chain(own("once")).any(|argument| argument.get_long() == Some(&*option));
    let in_table = ElectionOptions::TABLE.iter().any(|setting| setting.name.replace('_', "-") == option);
    let is_setting = in_table || option == "metadata";
    let refused = || Failure::new(format!("{variable} is not a variable of tenure; use the option --{option}"));
    (is_option && !is_setting).then(refused)
}

/// Names the option in an error about the URL of the store.
fn of_store(error: tenure::ConfigError) -> Failure {
    Failure::new(format!("store: {error}"))
}

fn default_store() -> Result<String, Failure> {
    if tenure::schemes().contains(&"sqlite") {
        Ok("sqlite:".to_owned())
    } else {
        Err(Failure::new("no store: pass --store URL; `tenure stores` lists the stores"))
    }
}

#[cfg(feature = "sqlite")]
fn database(url: &str) -> Result<Option<Database>, Failure> {
    use tenure::sqlite::{SqliteOptions, default_path};
    if !url.starts_with("sqlite:") {
        return Ok(None);
    }
    let given = SqliteOptions::from_url(url).map_err(of_store)?.path;
    let (path, origin) = match given {
        Some(path) if path.is_absolute() => (path, Origin::AbsolutePath),
        Some(path) => (std::path::absolute(path)?, Origin::RelativePath),
        None => {
            let path = default_path().ok_or_else(|| {
                Failure::new(
                    "no default store: neither HOME nor XDG_STATE_HOME is an absolute path; \
                     pass --store URL, or set HOME",
                )
            })?;
            (path, Origin::Default)
        }
    };
    Ok(Some(Database { path, origin }))
}

#[cfg(not(feature = "sqlite"))]
fn database(_url: &str) -> Result<Option<Database>, Failure> {
    Ok(None)
}

/// Starts the log on standard error. It is off by default, because commands print their own messages for people.
pub(crate) fn start_log(global: &Global) {
    let level = match (global.log_format, global.verbose) {
        _ if global.quiet => LevelFilter::ERROR,
        (LogFormat::Text, 0) => LevelFilter::OFF,
        (LogFormat::Json, 0) | (LogFormat::Text, 1) => LevelFilter::INFO,
        (LogFormat::Json, 1) | (LogFormat::Text, 2) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    if level == LevelFilter::OFF {
        return;
    }
    let paint = crate::screen::Paint::for_stream(&std::io::stderr());
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(|| stderr::Log).with_target(false);
    // Each line names its election, candidate and term: the spans around them would only repeat that.
    let lines = filter_fn(|metadata| metadata.is_event()).with_max_level_hint(level);
    match global.log_format {
        LogFormat::Json => {
            stderr::use_json();
            log.json().flatten_event(true).finish().with(lines).init();
        }
        LogFormat::Text if paint.is_on() => log.with_ansi(true).without_time().finish().with(lines).init(),
        LogFormat::Text => log.with_ansi(false).finish().with(lines).init(),
    }
}
