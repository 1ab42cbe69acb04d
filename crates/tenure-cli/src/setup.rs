//! From the command line to a store: options in layers, the log.

use std::path::Path;

use tenure::{ElectionOptions, Elections, Settings};
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
}

impl Setup {
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let settings = settings(global.config.as_deref())?;
        let url = global.store.clone().or_else(|| settings.store.clone()).map_or_else(default_store, Ok)?;
        Ok(Self { settings, url })
    }

    /// The elections of the store.
    pub(crate) fn elections(&self) -> Result<Elections, Failure> {
        Ok(Elections::new(tenure::connect(&self.url)?))
    }

    /// The options of an election from files and variables.
    pub(crate) fn options(&self, election: &str) -> ElectionOptions {
        self.settings.election(election)
    }

    /// The store's URL as it may be shown.
    pub(crate) fn shown(&self) -> String {
        mask(&self.url)
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
