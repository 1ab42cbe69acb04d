//! Reading options from whatever serde reads.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::names::{FIELDS, unknown};
use super::{ClockTrustOption, ElectionOptions, OnOverrun, TakeoverOption};
use crate::span;

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
    judge: Option<ClockTrustOption>,
    takeover: Option<TakeoverOption>,
    candidate: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    release_on_stop: Option<bool>,
    give_up_after: Option<u32>,
    #[serde(default, deserialize_with = "priority")]
    priority: Option<i32>,
    preempt: Option<bool>,
    min_health: Option<f64>,
    step_down_when_unhealthy: Option<bool>,
    health_cmd: Option<String>,
    #[serde(default, with = "span::option")]
    health_every: Option<Duration>,
    #[serde(default, with = "span::option")]
    health_timeout: Option<Duration>,
    on_overrun: Option<OnOverrun>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

/// In plain words which numbers there are, where it is none of them.
fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
    let Some(number) = Option::<i64>::deserialize(from)? else { return Ok(None) };
    let problem = || format!("{number} is out of range: use a whole number from {} to {}", i32::MIN, i32::MAX);
    i32::try_from(number).map(Some).map_err(|_| serde::de::Error::custom(problem()))
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
            health_cmd: raw.health_cmd,
            health_every: raw.health_every,
            health_timeout: raw.health_timeout,
            on_overrun: raw.on_overrun,
        })
    }
}
