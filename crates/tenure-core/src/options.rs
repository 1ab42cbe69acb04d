//! The options of an election, and their sources.
//!
//! Each layer overrides the one before: defaults < `tenure.toml` < `TENURE_*` < code and flags.
//!
//! To add an option, add a row to the table below and use it where elections start (`builder.rs`). The field, the
//! builder's method, the key of a file, the variable, the flag of `tenure run` and the page `docs/options.md` come from
//! the table.

mod names;
mod settings;
mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure_protocol::{ClockTrust, Durations, Rules, Score, Takeover};

pub use self::names::did_you_mean;
pub use self::settings::Settings;
pub use self::table::{OptionInfo, Word, word};
use self::table::{Read, Value, Written, election_options};
use crate::{Builder, Error};

election_options! {
    /// The options of an election, as a value that files, variables and code can fill.
    ///
    /// An option that is `None` has the value of the layer below, and in the end its default. [`Builder`] has a method
    /// for each option; [`Builder::options`] applies all of them. Later versions can have more options, so write
    /// `ElectionOptions { lease: …, ..Default::default() }`; the options of all stores are structs of the same kind.
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
    options {
        "The candidate" {
            /// The candidate's id, for people to read. Two candidates with the same id are still two candidates.
            candidate: String = "host-pid";
            /// The priority among candidates: when the seat is free, the highest goes first.
            priority: i32 = "0";
            /// Ask a leader of lower priority to hand over, once this candidate has been healthy for two leases.
            preempt: bool = "false";
        }
        "Timing" {
            /// How long the seat stays taken without a renewal. The other durations scale with it. At least 376ms with
            /// `tenure run`, and 15ms in a program; some stores need more, see `tenure stores`. At most 7d.
            lease: Duration = "15s";
            /// How long after a renewal the next one is due.
            renew_every: Duration = "lease / 3";
            /// How long work is given to wrap up before its term ends.
            drain: Duration = "lease * 2 / 15";
            /// How long work is given to wrap up when the leader stops or hands over. It may be longer than the lease,
            /// as the seat is renewed meanwhile.
            stop_grace: Duration = "drain";
            /// Stop standing, for good, after the store has failed for this long. At least one lease.
            give_up_after: Duration = "never";
        }
        "Health" {
            /// A command for sh that tells `tenure run` how healthy its candidate is, by its exit code or by a number
            /// that it prints. Empty: none. A program uses `Builder::health` instead.
            health_cmd: String = "none";
            /// How often the health check runs.
            health_every: Duration = "lease / 3";
            /// How long the health check may take. If it takes longer, the candidate's score is 0.
            health_timeout: Duration = "lease * 2 / 15";
            /// The score, from 0 to 1, below which a candidate does not stand. 0 turns this off.
            min_health: f64 = "0.8";
            /// Hand over when this candidate leads and its score falls below `min_health`.
            step_down_when_unhealthy: bool = "true";
        }
        "Fine tuning" {
            /// How often a follower reads the seat while the store notifies it of nothing.
            poll_every: Duration = "lease / 3, or the lease where the store detects lost notifications";
            /// How long one call to the store may take.
            call_timeout: Duration = "lease / 15";
            /// The longest pause before a failed call is retried. A pause that does not fit into the lease is
            /// shortened.
            retry_every: Duration = "lease / 15";
            /// The longest pause of a follower while the store fails. Pauses double up to this length.
            retry_max: Duration = "lease / 3";
            /// The largest difference in speed between any two clocks, as a fraction.
            drift: f64 = "0.01";
            /// When to believe the store's clock: vouched (where this candidate's own clock confirms it), never or
            /// always.
            clock_trust: ClockTrust = "the store's own";
            /// When to take over a seat whose session has ended: instant, or safe (a lease later).
            takeover: Takeover = "the store's own";
            /// Release the seat when the election stops. If false, the seat is left to expire.
            release_on_stop: bool = "true";
            /// What to do when work is still running after its term has ended: report (an event and a line in the log)
            /// or abort (end the process).
            on_overrun: OnOverrun = "report";
        }
    }
}

/// What to do when work is still running after its term has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOverrun {
    /// Publish [`EventKind::Overran`](crate::EventKind::Overran), and do not stand again until the work has returned.
    #[default]
    Report,
    /// Abort the process immediately, after one line on standard error. No destructors run.
    Abort,
}

impl Word for ClockTrust {
    const WORDS: &'static [(&'static str, Self)] =
        &[("vouched", Self::Vouched), ("never", Self::Never), ("always", Self::Always)];
}

impl Word for Takeover {
    const WORDS: &'static [(&'static str, Self)] = &[("instant", Self::Instant), ("safe", Self::Safe)];
}

impl Word for OnOverrun {
    const WORDS: &'static [(&'static str, Self)] = &[("report", Self::Report), ("abort", Self::Abort)];
}

impl ElectionOptions {
    /// The lease of elections that set no other: 15 seconds.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(15);

    /// Returns the health command; `None` if it is not set or empty.
    pub fn health_command(&self) -> Option<&str> {
        self.health_cmd.as_deref().filter(|command| !command.trim().is_empty())
    }

    /// Returns `min_health` or its default: the score below which a candidate does not stand.
    ///
    /// # Errors
    /// [`Error::Option`] if `min_health` is not a number from 0 to 1.
    pub fn least_health(&self) -> Result<Score, Error> {
        let Some(least) = self.min_health else { return Ok(Rules::MIN_HEALTH) };
        Score::new(least).ok_or_else(|| {
            Error::Option(format!("min_health: must be a number from 0 (off) to 1, such as 0.8, got {least}"))
        })
    }

    /// Refuses values out of the range of their option. How durations fit together is checked later.
    fn check_ranges(&self) -> Result<(), Error> {
        self.least_health()?;
        self.durations()?;
        Ok(())
    }

    /// Returns the durations of these options, not yet checked against each other (`Durations::check` does that).
    ///
    /// # Errors
    /// [`Error::Option`] if `drift` is not at least 0 and less than 1.
    pub fn durations(&self) -> Result<Durations, Error> {
        let drift = self.drift.unwrap_or(f64::from(Durations::DEFAULT_DRIFT_PPM) / 1e6);
        if !(0.0..1.0).contains(&drift) {
            return Err(Error::Option(format!("drift: must be a fraction, such as 0.01 for one percent, got {drift}")));
        }
        Ok(Durations {
            lease: self.lease.unwrap_or(Self::DEFAULT_LEASE),
            renew_every: self.renew_every,
            call_timeout: self.call_timeout,
            retry_every: self.retry_every,
            retry_max: self.retry_max,
            poll_every: self.poll_every,
            drain: self.drain,
            stop_grace: self.stop_grace,
            give_up_after: self.give_up_after,
            drift_ppm: (drift * 1e6).ceil() as u32,
        })
    }
}

/// Parses `key=value,key=value`.
fn pairs(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("{pair:?} is not of the form key=value: write it like zone=a"))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.split(',').filter(|pair| !pair.trim().is_empty()).map(pair).collect()
}
