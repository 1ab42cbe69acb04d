//! The options of an election, and where they come from.
//!
//! Layers, each over the one before: defaults < `tenure.toml` < `TENURE_*` < code and flags.

mod form;
mod names;
mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_protocol::{ClockTrust, Durations, Rules, Score, Takeover};

pub use self::settings::Settings;
use crate::{Error, span};

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
    pub judge: Option<ClockTrustOption>,
    /// How soon a seat is taken whose session is over: `instant` or `safe` (the store's own).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takeover: Option<TakeoverOption>,
    /// This candidate's id, for people to read (host-pid).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<String>,
    /// What this candidate says about itself while it leads.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Whether the seat is given up at `stop()` (true), or left to lapse. Where the session of this process would
    /// keep it from lapsing, it is given up a lease after the stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_on_stop: Option<bool>,
    /// After how many store errors in a row to give up (never). Lost races do not count. Should the
    /// seat name this candidate all the same, it lapses, or is given up as soon as the store answers.
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
    /// A command for `sh` that tells `tenure run` how well its candidate is (none). Empty: none, over
    /// one of a layer below. A program says [`Builder::health`](crate::Builder::health) instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_cmd: Option<String>,
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

/// How much the store's clock is believed. See [`ClockTrust`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockTrustOption {
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
            health_cmd: over.health_cmd.or(self.health_cmd),
            health_every: over.health_every.or(self.health_every),
            health_timeout: over.health_timeout.or(self.health_timeout),
            on_overrun: over.on_overrun.or(self.on_overrun),
        }
    }

    /// The health command asked for.
    pub fn health_command(&self) -> Option<&str> {
        self.health_cmd.as_deref().filter(|command| !command.trim().is_empty())
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
}

impl From<ClockTrustOption> for ClockTrust {
    fn from(option: ClockTrustOption) -> Self {
        match option {
            ClockTrustOption::Vouched => Self::Vouched,
            ClockTrustOption::Observe => Self::Observe,
            ClockTrustOption::Store => Self::Store,
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
