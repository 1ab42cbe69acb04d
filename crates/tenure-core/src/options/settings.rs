//! The sources of options: a file, and the environment variables of the process.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::names::{OTHER_VARIABLES, did_you_mean, near_miss, unknown};
use super::{ElectionOptions, FIELDS};
use crate::{Error, SeatName};

impl ElectionOptions {
    /// Reads options from variables such as `TENURE_LEASE=15s` or `TENURE_METADATA=zone=a,rack=7`.
    ///
    /// Pass `std::env::vars()`. Variables that are not options are ignored, because other programs set variables that
    /// begin with `TENURE_`, too. [`Settings::load`] reads the file as well.
    ///
    /// ```
    /// # use tenure_core::ElectionOptions;
    /// let options = ElectionOptions::from_vars([("TENURE_PRIORITY", "10"), ("PATH", "/bin")])?;
    /// assert_eq!(options.priority, Some(10));
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] if a value is not valid, or if a variable looks like a misspelt option, such as
    /// `TENURE_LEESE`.
    pub fn from_vars<K: AsRef<str>, V: AsRef<str>>(vars: impl IntoIterator<Item = (K, V)>) -> Result<Self, Error> {
        let mut all = Self::default();
        for (name, value) in vars {
            let (name, value) = (name.as_ref(), value.as_ref());
            let Some(key) = name.strip_prefix("TENURE_").map(str::to_ascii_lowercase) else { continue };
            if OTHER_VARIABLES.iter().any(|other| key == *other || (other.ends_with('_') && key.starts_with(other))) {
                continue;
            }
            if !FIELDS.contains(&key.as_str()) {
                let Some(near) = near_miss(&key) else { continue };
                let near = near.to_uppercase();
                return Err(Error::Option(format!("unknown variable {name}: did you mean TENURE_{near}?")));
            }
            all.set(&key, value).map_err(|error| Error::Option(error.to_string().replacen(&key, name, 1)))?;
        }
        Ok(all)
    }
}

/// The options of all elections of a program, from `tenure.toml` and environment variables.
///
/// `tenure::from_settings` connects to the store that they name and applies them;
/// [`Elections::with_settings`](crate::Elections::with_settings) only applies them.
///
/// ```
/// # use std::time::Duration;
/// use tenure_core::Settings;
///
/// let settings = Settings::from_toml(
///     r#"
///     store = "sqlite:"
///     lease = "15s"
///     [elections.nightly-jobs]
///     lease = "60s"
///     "#,
/// )?;
/// assert_eq!(settings.election("nightly-jobs").lease, Some(Duration::from_secs(60)));
/// assert_eq!(settings.election("reports").lease, Some(Duration::from_secs(15)));
/// # Ok::<(), tenure_core::Error>(())
/// ```
///
/// A file with all parts:
///
/// ```toml
/// store = "sqlite:"
/// lease = "15s"              # for every election
///
/// [elections.nightly-jobs]   # and for this one
/// lease = "60s"
/// metadata = { team = "billing" }
/// ```
///
/// `Debug` does not show the URL of the store, because it can contain a password.
#[derive(Clone, Default, PartialEq)]
pub struct Settings {
    /// The URL of the store, from the file or `TENURE_STORE`. It can contain a password.
    pub store: Option<String>,
    /// The program that frees the seats of this process when it dies, from the file or `TENURE_LAST_WILL`: the command
    /// `tenure`, by name or by path. See `tenure::connect_with_last_will`.
    pub last_will: Option<String>,
    /// The options of the file that apply to all elections.
    pub all: ElectionOptions,
    /// The options of the file for single elections, by name. They override `all`.
    pub elections: BTreeMap<String, ElectionOptions>,
    vars: ElectionOptions,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("store", &self.store.as_ref().map(|_| "***"))
            .field("last_will", &self.last_will)
            .field("all", &self.all)
            .field("elections", &self.elections)
            .field("vars", &self.vars)
            .finish()
    }
}

impl Settings {
    /// Reads `tenure.toml` in the current folder, or the file that `TENURE_CONFIG` names, and the environment
    /// variables of this process.
    ///
    /// Without a file the settings come from the variables alone; only a file that `TENURE_CONFIG` names must exist.
    ///
    /// ```
    /// # use tenure_core::Settings;
    /// let settings = Settings::load()?;
    /// # Ok::<(), tenure_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`], with the file, the line and the option, if the file cannot be read or an option is not valid.
    pub fn load() -> Result<Self, Error> {
        let named = std::env::var_os("TENURE_CONFIG");
        let path = named.as_ref().map_or(Path::new("tenure.toml"), Path::new);
        let settings = if named.is_some() || path.exists() { Self::from_file(path)? } else { Self::default() };
        let vars =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        settings.with_vars(vars)
    }

    /// Reads a file of the form of `tenure.toml`, and no environment variables.
    ///
    /// # Errors
    /// [`Error::Option`], with the file, the line and the option, if the file cannot be read or an option is not valid.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Option(format!("cannot read {}: {error}; check its path", path.display())))?;
        Self::from_toml(&text).map_err(|error| Error::Option(format!("in {}: {error}", path.display())))
    }

    /// Parses the text of a `tenure.toml`. For tests, and for configuration from another source.
    ///
    /// # Errors
    /// [`Error::Option`], with the line and the option, if the text is not TOML or an option is not valid.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let bad = |error: toml::de::Error| {
            let line = error.span().map(|span| format!("line {}: ", 1 + text[..span.start].matches('\n').count()));
            let example = "write each option like lease = \"15s\"";
            Error::Option(format!("{}{}; {example}", line.unwrap_or_default(), error.message()))
        };
        let mut table: toml::Table = toml::from_str(text).map_err(bad)?;
        let store = match table.remove("store") {
            None => None,
            Some(toml::Value::String(url)) => Some(url),
            Some(_) => {
                return Err(Error::Option("store must be a text with a URL, such as store = \"sqlite:\"".to_owned()));
            }
        };
        let last_will = match table.remove("last_will") {
            None => None,
            Some(toml::Value::String(program)) => Some(program),
            Some(_) => {
                let example = "last_will must be a text with a program, such as last_will = \"tenure\"";
                return Err(Error::Option(example.to_owned()));
            }
        };
        let mut elections = BTreeMap::new();
        match table.remove("elections") {
            None => {}
            Some(toml::Value::Table(named)) => {
                for (name, options) in named {
                    SeatName::new(&name)?;
                    let path = format!("elections.{name}.");
                    let toml::Value::Table(options) = options else {
                        return Err(Error::Option(format!(
                            "elections.{name} must be a table: write [elections.{name}], and its options below"
                        )));
                    };
                    elections.insert(name, from_table(options, &path, &[])?);
                }
            }
            Some(_) => {
                return Err(Error::Option(
                    "elections must be a table: write [elections.NAME], and its options below".to_owned(),
                ));
            }
        }
        let all = from_table(table, "", &["store", "last_will", "elections"])?;
        Ok(Self { store, last_will, all, elections, vars: ElectionOptions::default() })
    }

    /// Overrides these settings by variables such as `TENURE_LEASE` and `TENURE_STORE`.
    ///
    /// # Errors
    /// As [`ElectionOptions::from_vars`].
    pub fn with_vars<K: AsRef<str>, V: AsRef<str>>(
        mut self,
        vars: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, Error> {
        let mut rest = Vec::new();
        for (name, value) in vars {
            match name.as_ref() {
                "TENURE_STORE" => self.store = Some(value.as_ref().to_owned()),
                "TENURE_LAST_WILL" => self.last_will = Some(value.as_ref().to_owned()),
                _ => rest.push((name, value)),
            }
        }
        self.vars = self.vars.overlaid(ElectionOptions::from_vars(rest)?);
        Ok(self)
    }

    /// Returns the options of one election: those for all elections, overridden by those for this name, overridden by
    /// the variables.
    pub fn election(&self, name: &str) -> ElectionOptions {
        let own = self.elections.get(name).cloned().unwrap_or_default();
        self.all.clone().overlaid(own).overlaid(self.vars.clone())
    }
}

/// Reads options one by one, so that an error names the wrong one. `others` are names that are valid beside the
/// options.
fn from_table(table: toml::Table, path: &str, others: &[&str]) -> Result<ElectionOptions, Error> {
    let mut all = ElectionOptions::default();
    for (name, value) in table {
        if !FIELDS.contains(&name.as_str()) {
            let known = [others, FIELDS].concat();
            let is_table = value.is_table() && did_you_mean(&name, &known).is_empty();
            return Err(Error::Option(match &*name {
                "last_will" => format!("{path}last_will: a process has one; write it above the first [section]"),
                "store" => format!("{path}store: all elections have one store; write it above the first [section]"),
                _ if is_table => format!("unknown section [{path}{name}]: for an election, write [elections.{name}]"),
                _ => unknown(path, &name, &known),
            }));
        }
        if let Some(example) = example(&name).filter(|_| !is_alike(&value, &name)) {
            let given = match &value {
                toml::Value::String(text) => format!("{text:?}"),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(value) => value.to_string(),
                other => format!("another {}", other.type_str()),
            };
            return Err(Error::Option(format!("{path}{name}: write it like {name} = {example}, got {given}")));
        }
        let one = toml::Table::from_iter([(name.clone(), value)]);
        let options: ElectionOptions = one
            .try_into()
            .map_err(|error: toml::de::Error| Error::Option(format!("{path}{name}: {}", error.message())))?;
        options.check_ranges().map_err(|error| Error::Option(format!("{path}{error}")))?;
        all = all.overlaid(options);
    }
    Ok(all)
}

/// Returns a value of the type of an option, as it is written. `None` for durations and words, whose own errors are
/// more exact.
fn example(name: &str) -> Option<&'static str> {
    if name == "metadata" {
        return Some("{ zone = \"a\" }");
    }
    match ElectionOptions::TABLE.iter().find(|option| option.name == name)?.kind {
        "N" => Some("10"),
        "NUMBER" => Some("0.8"),
        "BOOL" => Some("true"),
        "TEXT" => Some("\"text\""),
        _ => None,
    }
}

/// Returns whether a value has the type of the option's example.
fn is_alike(value: &toml::Value, name: &str) -> bool {
    let kind = ElectionOptions::TABLE.iter().find(|option| option.name == name).map(|option| option.kind);
    match (kind, value) {
        (None, toml::Value::Table(pairs)) => pairs.values().all(toml::Value::is_str),
        (None, _) => false,
        (Some("N"), value) => value.is_integer(),
        (Some("NUMBER"), value) => value.is_float() || value.is_integer(),
        (Some("BOOL"), value) => value.is_bool(),
        (Some(_), value) => value.is_str(),
    }
}
