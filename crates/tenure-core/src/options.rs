//! The options of an election, and where they come from.
//!
//! Layers, each over the one before: defaults < `tenure.toml` < `TENURE_*` < code and flags.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use tenure_protocol::{Durations, Judge, Rules, Score, Takeover};

use crate::{Error, SeatName, span};

/// The options of an election. What is `None` is left to the layer below, and in the end to the
/// default.
///
/// ```
/// # use tenure_core::ElectionOptions;
/// let options: ElectionOptions = toml::from_str(r#"lease = "15s""#)?;
/// assert_eq!(options.lease, Some(std::time::Duration::from_secs(15)));
///
/// let typo = toml::from_str::<ElectionOptions>(r#"leese = "15s""#).unwrap_err();
/// assert!(typo.to_string().contains("did you mean `lease`?"));
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ElectionOptions {
    /// How long the seat stays taken without a renewal (15 s). The rest scales with it.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// How long after a renewal the next one is due (lease / 3).
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub renew_every: Option<Duration>,
    /// How long one call to the store may take (lease / 15).
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Duration>,
    /// The pause after a failed call, at most (lease / 15). Pauses double while the store fails.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub retry_every: Option<Duration>,
    /// What a follower's pauses may grow to (lease / 3).
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub retry_max: Option<Duration>,
    /// How long work is given to wrap up before the term ends (lease * 2 / 15).
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub drain: Option<Duration>,
    /// How long work may take to wrap up when the end is voluntary (`drain`). May be longer than
    /// the lease: the seat is renewed meanwhile.
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub stop_grace: Option<Duration>,
    /// How far any two clocks may run apart, as a fraction (0.01).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<f64>,
    /// How much the store's clock is believed: `vouched`, `observe` or `store` (the store's own).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeOption>,
    /// How soon a seat is taken whose session is over: `instant` or `safe` (the store's own).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takeover: Option<TakeoverOption>,
    /// This candidate's id, for people to read (host-pid).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// What this candidate says about itself while it leads.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Whether the seat is given up at `stop()` (true), or left to lapse. On a store with sessions it
    /// lapses with the session: not before the last election of this process on it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_on_stop: Option<bool>,
    /// After how many store errors in a row to give up (never). Lost races do not count. Should the
    /// seat name this candidate all the same, it is left to lapse, as above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub give_up_after: Option<u32>,
    /// The higher, the sooner this candidate's turn when the seat is free (0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether this candidate, once it has been well for two leases, asks a leader of lower priority to
    /// hand over (false).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt: Option<bool>,
    /// A candidate below this does not stand (0.8); 0 turns that off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_health: Option<f64>,
    /// Whether a leader that falls below `min_health` hands over (true).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_down_when_unhealthy: Option<bool>,
    /// How often the health check is called, if there is one (lease / 3).
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub health_every: Option<Duration>,
    /// How long the health check may take; later counts as a score of 0 (lease * 2 / 15).
    #[serde(with = "span::option", skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<Duration>,
    /// What to do when work is still running after its term has ended: `tell` or `abort` (tell).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_overrun: Option<OnOverrun>,
}

/// How much the store's clock is believed. See [`Judge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JudgeOption {
    /// Where our own clock vouches for it.
    Vouched,
    /// Never.
    Observe,
    /// Always.
    Store,
}

/// How soon a seat is taken whose session is over. See [`Takeover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TakeoverOption {
    /// At once.
    Instant,
    /// A lease later.
    Safe,
}

/// What to do when work is still running after its term has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOverrun {
    /// Tell: an `Overran` event, and no candidacy until the work has returned.
    #[default]
    Tell,
    /// End the process on the spot.
    Abort,
}

impl ElectionOptions {
    /// The lease, unless another is asked for.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(15);

    /// These options, with those of `over` where it has any.
    #[must_use]
    pub fn overlaid(self, over: Self) -> Self {
        let mut metadata = self.metadata;
        metadata.extend(over.metadata);
        Self {
            lease: over.lease.or(self.lease),
            renew_every: over.renew_every.or(self.renew_every),
            attempt: over.attempt.or(self.attempt),
            retry_every: over.retry_every.or(self.retry_every),
            retry_max: over.retry_max.or(self.retry_max),
            drain: over.drain.or(self.drain),
            stop_grace: over.stop_grace.or(self.stop_grace),
            drift: over.drift.or(self.drift),
            judge: over.judge.or(self.judge),
            takeover: over.takeover.or(self.takeover),
            candidate: over.candidate.or(self.candidate),
            metadata,
            release_on_stop: over.release_on_stop.or(self.release_on_stop),
            give_up_after: over.give_up_after.or(self.give_up_after),
            priority: over.priority.or(self.priority),
            preempt: over.preempt.or(self.preempt),
            min_health: over.min_health.or(self.min_health),
            step_down_when_unhealthy: over.step_down_when_unhealthy.or(self.step_down_when_unhealthy),
            health_every: over.health_every.or(self.health_every),
            health_timeout: over.health_timeout.or(self.health_timeout),
            on_overrun: over.on_overrun.or(self.on_overrun),
        }
    }

    /// The least health asked for.
    pub fn least_health(&self) -> Result<Score, Error> {
        let Some(least) = self.min_health else { return Ok(Rules::MIN_HEALTH) };
        Score::new(least)
            .ok_or_else(|| Error::Option(format!("min_health = {least} makes no sense: it is from 0 (off) to 1")))
    }

    /// The durations asked for.
    pub fn durations(&self) -> Result<Durations, Error> {
        let drift = self.drift.unwrap_or(f64::from(Durations::DEFAULT_DRIFT_PPM) / 1e6);
        if !(0.0..1.0).contains(&drift) {
            return Err(Error::Option(format!(
                "drift = {drift} makes no sense: it is a fraction, 0.01 for one percent"
            )));
        }
        Ok(Durations {
            lease: self.lease.unwrap_or(Self::DEFAULT_LEASE),
            renew_every: self.renew_every,
            attempt: self.attempt,
            retry_every: self.retry_every,
            retry_max: self.retry_max,
            drain: self.drain,
            stop_grace: self.stop_grace,
            drift_ppm: (drift * 1e6).ceil() as u32,
        })
    }

    /// Options from variables such as `TENURE_LEASE=15s` or `TENURE_METADATA=zone=a,rack=7`.
    /// Pass `std::env::vars()`. Variables that do not begin with `TENURE_` are passed over, and so
    /// are those that mean something else to Tenure; any other unknown one is an error.
    pub fn from_vars<K: AsRef<str>, V: AsRef<str>>(vars: impl IntoIterator<Item = (K, V)>) -> Result<Self, Error> {
        let mut all = Self::default();
        for (name, value) in vars {
            let (name, value) = (name.as_ref(), value.as_ref());
            let Some(key) = name.strip_prefix("TENURE_").map(str::to_ascii_lowercase) else { continue };
            if OTHER_VARIABLES.iter().any(|other| key == *other || (other.ends_with('_') && key.starts_with(other))) {
                continue;
            }
            if !FIELDS.contains(&key.as_str()) {
                let near = nearest(&key, FILE_FIELDS).filter(|near| *near != "elections");
                let nearest = near.map(|near| format!(": did you mean TENURE_{}?", near.to_uppercase()));
                return Err(Error::Option(format!(
                    "unknown variable {name}{}",
                    nearest.unwrap_or_else(|| ": remove it".to_owned())
                )));
            }
            let wrong = |problem: String| Error::Option(format!("{name}: {problem}"));
            let one = toml::Table::from_iter([(key.clone(), variable(&key, value).map_err(wrong)?)]);
            let options: Self = one.try_into().map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
            all = all.overlaid(options);
        }
        Ok(all)
    }
}

/// The options of all elections of a program, as `tenure.toml` and the environment have them.
///
/// ```toml
/// store = "sqlite"
/// lease = "15s"              # for every election
///
/// [elections.nightly-jobs]   # and for this one
/// lease = "60s"
/// metadata = { team = "billing" }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The URL of the store.
    pub store: Option<String>,
    /// For every election.
    pub all: ElectionOptions,
    /// For single elections, by name.
    pub elections: BTreeMap<String, ElectionOptions>,
    vars: ElectionOptions,
}

impl Settings {
    /// Reads `tenure.toml` in the current folder, if there is one, or the file named by
    /// `TENURE_CONFIG`, and the variables of this process.
    pub fn load() -> Result<Self, Error> {
        let named = std::env::var_os("TENURE_CONFIG");
        let path = named.as_ref().map_or(Path::new("tenure.toml"), Path::new);
        let settings = if named.is_some() || path.exists() { Self::from_file(path)? } else { Self::default() };
        let vars =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        settings.with_vars(vars)
    }

    /// Reads a file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::Option(format!("cannot read {}: {error}", path.display())))?;
        Self::from_toml(&text).map_err(|error| Error::Option(format!("in {}: {error}", path.display())))
    }

    /// Reads the text of a `tenure.toml`.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let bad = |error: toml::de::Error| {
            let line = error.span().map(|span| format!("line {}: ", 1 + text[..span.start].matches('\n').count()));
            Error::Option(line.unwrap_or_default() + error.message())
        };
        let mut table: toml::Table = toml::from_str(text).map_err(bad)?;
        let store = match table.remove("store") {
            None => None,
            Some(toml::Value::String(url)) => Some(url),
            Some(_) => return Err(Error::Option("store: write a URL, such as store = \"sqlite:\"".to_owned())),
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
                            "elections.{name}: write [elections.{name}], and its options below"
                        )));
                    };
                    elections.insert(name, from_table(options, &path, FIELDS)?);
                }
            }
            Some(_) => {
                return Err(Error::Option("elections: write [elections.NAME], and its options below".to_owned()));
            }
        }
        let all = from_table(table, "", FILE_FIELDS)?;
        Ok(Self { store, all, elections, vars: ElectionOptions::default() })
    }

    /// These settings, with variables such as `TENURE_LEASE` over them.
    pub fn with_vars<K: AsRef<str>, V: AsRef<str>>(
        mut self,
        vars: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, Error> {
        let mut rest = Vec::new();
        for (name, value) in vars {
            match name.as_ref() {
                "TENURE_STORE" => self.store = Some(value.as_ref().to_owned()),
                _ => rest.push((name, value)),
            }
        }
        self.vars = self.vars.overlaid(ElectionOptions::from_vars(rest)?);
        Ok(self)
    }

    /// The options of one election: its own over everybody's, the variables over both.
    pub fn election(&self, name: &str) -> ElectionOptions {
        let own = self.elections.get(name).cloned().unwrap_or_default();
        self.all.clone().overlaid(own).overlaid(self.vars.clone())
    }
}

/// Variables that begin with `TENURE_` but are no options of an election.
const OTHER_VARIABLES: &[&str] =
    &["store", "config", "election", "term", "health_cmd", "log", "log_", "test_", "bench_"];

/// What a file may have at its top.
const FILE_FIELDS: &[&str] = &[
    "store",
    "elections",
    "lease",
    "renew_every",
    "attempt",
    "retry_every",
    "retry_max",
    "drain",
    "stop_grace",
    "drift",
    "judge",
    "takeover",
    "candidate",
    "metadata",
    "release_on_stop",
    "give_up_after",
    "priority",
    "preempt",
    "min_health",
    "step_down_when_unhealthy",
    "health_every",
    "health_timeout",
    "on_overrun",
];

/// The options of an election: all of these but the first two.
const FIELDS: &[&str] = FILE_FIELDS.split_at(2).1;

/// Reads options one by one, so that an error can name the one that is wrong.
fn from_table(table: toml::Table, path: &str, known: &[&str]) -> Result<ElectionOptions, Error> {
    let mut all = ElectionOptions::default();
    for (name, value) in table {
        if !FIELDS.contains(&name.as_str()) {
            return Err(Error::Option(unknown(path, &name, known)));
        }
        let one = toml::Table::from_iter([(name.clone(), value)]);
        let options: ElectionOptions = one
            .try_into()
            .map_err(|error: toml::de::Error| Error::Option(format!("{path}{name}: {}", error.message())))?;
        all = all.overlaid(options);
    }
    Ok(all)
}

fn unknown(path: &str, name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("unknown option `{path}{name}`: did you mean `{near}`?"),
        None => format!("unknown option `{path}{name}`: the options are {}", known.join(", ")),
    }
}

/// The same fields, and whatever else there is.
#[derive(Deserialize)]
struct Raw {
    #[serde(default, with = "span::option")]
    lease: Option<Duration>,
    #[serde(default, with = "span::option")]
    renew_every: Option<Duration>,
    #[serde(default, with = "span::option")]
    attempt: Option<Duration>,
    #[serde(default, with = "span::option")]
    retry_every: Option<Duration>,
    #[serde(default, with = "span::option")]
    retry_max: Option<Duration>,
    #[serde(default, with = "span::option")]
    drain: Option<Duration>,
    #[serde(default, with = "span::option")]
    stop_grace: Option<Duration>,
    drift: Option<f64>,
    judge: Option<JudgeOption>,
    takeover: Option<TakeoverOption>,
    candidate: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    release_on_stop: Option<bool>,
    give_up_after: Option<u32>,
    priority: Option<i32>,
    preempt: Option<bool>,
    min_health: Option<f64>,
    step_down_when_unhealthy: Option<bool>,
    #[serde(default, with = "span::option")]
    health_every: Option<Duration>,
    #[serde(default, with = "span::option")]
    health_timeout: Option<Duration>,
    on_overrun: Option<OnOverrun>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

impl<'de> Deserialize<'de> for ElectionOptions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(from)?;
        if let Some(name) = raw.unknown.keys().next() {
            return Err(serde::de::Error::custom(unknown("", name, FIELDS)));
        }
        Ok(Self {
            lease: raw.lease,
            renew_every: raw.renew_every,
            attempt: raw.attempt,
            retry_every: raw.retry_every,
            retry_max: raw.retry_max,
            drain: raw.drain,
            stop_grace: raw.stop_grace,
            drift: raw.drift,
            judge: raw.judge,
            takeover: raw.takeover,
            candidate: raw.candidate,
            metadata: raw.metadata,
            release_on_stop: raw.release_on_stop,
            give_up_after: raw.give_up_after,
            priority: raw.priority,
            preempt: raw.preempt,
            min_health: raw.min_health,
            step_down_when_unhealthy: raw.step_down_when_unhealthy,
            health_every: raw.health_every,
            health_timeout: raw.health_timeout,
            on_overrun: raw.on_overrun,
        })
    }
}

impl From<JudgeOption> for Judge {
    fn from(option: JudgeOption) -> Self {
        match option {
            JudgeOption::Vouched => Self::Vouched,
            JudgeOption::Observe => Self::Observe,
            JudgeOption::Store => Self::Store,
        }
    }
}

impl From<TakeoverOption> for Takeover {
    fn from(option: TakeoverOption) -> Self {
        match option {
            TakeoverOption::Instant => Self::Instant,
            TakeoverOption::Safe => Self::Safe,
        }
    }
}

/// The text of a variable as the value that a file would have.
fn variable(key: &str, text: &str) -> Result<toml::Value, String> {
    Ok(match key {
        "drift" | "min_health" => toml::Value::Float(text.parse().map_err(|_| format!("{text:?} is not a number"))?),
        "give_up_after" | "priority" => {
            toml::Value::Integer(text.parse().map_err(|_| format!("{text:?} is not a whole number"))?)
        }
        "release_on_stop" | "preempt" | "step_down_when_unhealthy" => toml::Value::Boolean(match text {
            "1" | "true" | "yes" | "on" => true,
            "0" | "false" | "no" | "off" => false,
            _ => return Err(format!("{text:?} is neither true nor false")),
        }),
        "metadata" => {
            let mut table = toml::Table::new();
            for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
                let (name, value) =
                    pair.split_once('=').ok_or_else(|| format!("{pair:?} is not of the form key=value"))?;
                table.insert(name.trim().to_owned(), toml::Value::String(value.trim().to_owned()));
            }
            toml::Value::Table(table)
        }
        _ => toml::Value::String(text.to_owned()),
    })
}

/// The name most like this one, if any is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let (distance, best) = known.iter().map(|known| (edits(&name, known), *known)).min()?;
    (distance <= 2 + name.len() / 4).then_some(best)
}

/// How many letters must be added, dropped or exchanged to turn one word into the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
