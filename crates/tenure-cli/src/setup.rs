//! From the command line to a store: options in layers, the log.

use std::path::{Path, PathBuf};

use tenure::{ElectionOptions, Elections, MemoryStore, Settings};
use tracing_subscriber::filter::LevelFilter;

use crate::args::{Global, LogFormat};
use crate::failure::Failure;
use crate::mask::mask;
use crate::say;

/// What there is before a command begins.
pub(crate) struct Setup {
    settings: Settings,
    /// The store's URL. May hold a password: see [`Setup::shown`].
    url: String,
    /// Its database, if it is a file.
    database: Option<Database>,
}

/// A database in a file of this machine.
struct Database {
    /// Absolute.
    path: PathBuf,
    named: Named,
}

#[derive(PartialEq, Eq)]
enum Named {
    ByDefault,
    Relatively,
    Absolutely,
}

impl Setup {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let settings = settings(global.config.as_deref())?;
        let url = global.store.clone().or_else(|| settings.store.clone()).map_or_else(default_store, Ok)?;
        if url.starts_with("memory:") {
            return Err(Failure::new(
                "memory: is for tests within one program: every process has a memory of its own, so each would lead; \
                 use sqlite: for the processes of this machine",
            ));
        }
        Ok(Self { settings, database: database(&url)?, url })
    }

    /// The elections of the store.
    pub(crate) fn elections(&self) -> Result<Elections, Failure> {
        Ok(Elections::new(tenure::connect(&self.url)?))
    }

    /// The same for commands that only look: a database that does not exist is not created, but is empty.
    pub(crate) fn elections_to_read(&self) -> Result<Elections, Failure> {
        if self.missing().is_some() { Ok(Elections::new(MemoryStore::new())) } else { self.elections() }
    }

    /// The database that the first candidate will create, as long as it does not exist.
    pub(crate) fn missing(&self) -> Option<&Path> {
        let database = self.database.as_ref()?;
        // A folder that was named and does not exist is a mistake, and the store says so.
        let creatable = database.named == Named::ByDefault || database.path.parent().is_some_and(Path::is_dir);
        let missing = creatable && database.path.try_exists().is_ok_and(|exists| !exists);
        missing.then_some(&*database.path)
    }

    /// Where the seats are, if the command line does not say so by itself.
    pub(crate) fn whereabouts(&self) -> Option<String> {
        match self.database.as_ref()?.named {
            Named::Absolutely => None,
            Named::Relatively => Some(self.shown()),
            Named::ByDefault => {
                Some(self.shown() + " (this user's default: other users and machines have their own; see --store)")
            }
        }
    }

    /// Tells where the seats are that a command reads, if no store was named.
    pub(crate) fn tell_default(&self, global: &Global) {
        if self.database.as_ref().is_some_and(|database| database.named == Named::ByDefault)
            && let Some(store) = self.whereabouts()
        {
            say::store(&store, global.talks());
        }
    }

    /// The options of an election from files and variables.
    pub(crate) fn options(&self, election: &str) -> ElectionOptions {
        self.settings.election(election)
    }

    /// The store's URL as it may be shown.
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
    Ok(settings.with_vars(variables)?)
}

fn default_store() -> Result<String, Failure> {
    if tenure::schemes().contains(&"sqlite") {
        Ok("sqlite:".to_owned())
    } else {
        Err(Failure::new("no store: say which with --store URL; `tenure stores` lists them"))
    }
}

#[cfg(feature = "sqlite")]
fn database(url: &str) -> Result<Option<Database>, Failure> {
    use tenure::sqlite::{SqliteOptions, default_path};
    if !url.starts_with("sqlite:") {
        return Ok(None);
    }
    let named = SqliteOptions::from_url(url).map_err(Failure::new)?.path;
    let (path, named) = match named {
        Some(path) if path.is_absolute() => (path, Named::Absolutely),
        Some(path) => (std::path::absolute(path)?, Named::Relatively),
        None => {
            let path = default_path().ok_or_else(|| {
                Failure::new(
                    "there is no default store, as neither HOME nor XDG_STATE_HOME is an absolute path: \
                     name one with --store URL, or set HOME",
                )
            })?;
            (path, Named::ByDefault)
        }
    };
    Ok(Some(Database { path, named }))
}

#[cfg(not(feature = "sqlite"))]
fn database(_url: &str) -> Result<Option<Database>, Failure> {
    Ok(None)
}

/// The log goes to standard error. People are told what they need in plain words by the commands
/// themselves, so it is silent unless asked for.
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
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(|| say::Log).with_target(false);
    match global.log_format {
        LogFormat::Json => {
            say::use_json();
            log.json().flatten_event(true).init();
        }
        LogFormat::Text if paint.is_on() => log.with_ansi(true).without_time().init(),
        LogFormat::Text => log.with_ansi(false).init(),
    }
}
