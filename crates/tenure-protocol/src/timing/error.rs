//! The errors for durations that are refused. Each names values that would be accepted.

use std::fmt;
use std::time::Duration;

use super::{Durations, Timing};

/// Why [`Durations::check`] rejected the durations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimingError {
    /// The lease is below [`Timing::SHORTEST_LEASE`].
    LeaseTooShort {
        /// The lease that was asked for, shown in the message.
        lease: Duration,
    },
    /// The lease is above [`Timing::LONGEST_LEASE`].
    LeaseTooLong {
        /// The lease that was asked for, shown in the message.
        lease: Duration,
    },
    /// A duration is zero that must be positive.
    Zero {
        /// The name of the option that is zero, such as `call_timeout`.
        name: &'static str,
    },
    /// `give_up_after` is shorter than the lease, so the candidate would stop for good at any restart of the
    /// store.
    GivesUpTooSoon {
        /// The duration that was asked for, shown in the message.
        give_up_after: Duration,
        /// The lease that it must not be shorter than.
        lease: Duration,
    },
    /// Two failed renewals, their read-backs and a third attempt do not fit before the drain.
    DoesNotFit(Box<DoesNotFit>),
}

/// The durations that do not fit. Its message names those that are too long, and values that would fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoesNotFit {
    asked: Durations,
    /// The durations with their defaults.
    timing: Timing,
}

impl TimingError {
    pub(super) fn does_not_fit(asked: Durations, timing: Timing) -> Self {
        Self::DoesNotFit(Box::new(DoesNotFit { asked, timing }))
    }

    /// Returns the sum behind the message, in one line, for people who want to know why. `None` if the message says
    /// it all.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::DoesNotFit(problem) => Some(problem.sum()),
            _ => None,
        }
    }
}

impl fmt::Display for TimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseTooShort { lease } => write!(
                f,
                "lease must be at least {}, got {} (15s is a good start)",
                shown(Timing::SHORTEST_LEASE),
                shown(*lease)
            ),
            Self::LeaseTooLong { lease } => write!(
                f,
                "lease must be at most {}, got {}: after its machine fails, a seat stays taken for a lease (15s is a good start)",
                shown(Timing::LONGEST_LEASE),
                shown(*lease)
            ),
            Self::Zero { name } => {
                write!(f, "{name} must not be zero; leave it out to scale it from the lease")
            }
            Self::GivesUpTooSoon { give_up_after, lease } => write!(
                f,
                "give_up_after must be at least the lease ({}), got {}: \
                 a shorter one would end the candidate for good at any restart of the store",
                shown(*lease),
                shown(*give_up_after)
            ),
            Self::DoesNotFit(problem) => problem.fmt(f),
        }
    }
}

impl fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, lease) = (self.parts(), shown(self.timing.lease));
        // At least one, because the defaults fit.
        let too_long: Vec<&Part> = parts.iter().filter(|part| part.excess > 1.0).collect();
        let named: Vec<String> = too_long.iter().map(|part| format!("{} of {}", part.name, part.value)).collect();
        let (verb, it) = if named.len() == 1 { ("is", "it") } else { ("are", "them") };
        let long = if too_long.iter().all(|part| part.name == "drift") { "large" } else { "long" };
        write!(f, "{} {verb} too {long} for a lease of {lease}; ", named.join(" and "))?;
        let mut advice = Vec::new();
        if let Some((part, most)) = too_long.iter().find_map(|part| Some((part, part.most.as_ref()?))) {
            let of = if named.len() == 1 { String::new() } else { format!("a {} of ", part.name) };
            advice.push(format!("{of}at most {most}"));
        }
        let renew = parts.iter().find(|part| part.name == "renew_every" && part.excess <= 1.0);
        match (self.shortest_lease(), renew.and_then(|renew| renew.most.as_ref())) {
            (Some(lease), _) => advice.push(format!("a lease of at least {}", shown(lease))),
            (None, Some(most)) => advice.push(format!("a renew_every of at most {most}")),
            (None, None) => {}
        }
        if advice.len() < 2 {
            advice.push(format!("leave {it} out"));
        }
        let verb = if advice.len() > 1 { "use " } else { "" };
        write!(f, "{verb}{}", advice.join(", or "))
    }
}

/// A part of the sum that does not fit.
struct Part {
    name: &'static str,
    value: String,
    /// How many times its default it is.
    excess: f64,
    /// The longest value that would fit, with all others as they are.
    most: Option<String>,
}

impl DoesNotFit {
    /// Returns the parts of the sum; those that exceed their defaults the most come first.
    fn parts(&self) -> Vec<Part> {
        let (t, asked) = (&self.timing, &self.asked);
        let (lease, retries, calls) = (t.lease, t.shortest_retry() * 2, t.call_timeout.saturating_mul(5));
        let others = |parts: [Duration; 3]| parts.iter().fold(Duration::ZERO, |sum, part| sum.saturating_add(*part));
        let part = |name,
                    value: Duration,
                    default: Duration,
                    most: Option<Duration>,
                    advised: &dyn Fn(Duration) -> Durations| {
            let fits = |most: &Duration| !most.is_zero() && advised(*most).check().is_ok();
            let most = most.map(rounded).filter(fits).map(shown);
            Part { name, value: shown(value), excess: value.as_secs_f64() / default.as_secs_f64(), most }
        };
        let mut parts = vec![
            part(
                "renew_every",
                t.renew_every,
                lease / 3,
                t.hold().checked_sub(others([calls, retries, t.drain])),
                &|most| Durations { renew_every: Some(most), ..asked.clone() },
            ),
            part(
                "drain",
                t.drain,
                lease * 2 / 15,
                t.hold().checked_sub(others([t.renew_every, calls, retries])),
                &|most| Durations { drain: Some(most), ..asked.clone() },
            ),
            part(
                "call_timeout",
                t.call_timeout,
                lease / 15,
                t.hold().checked_sub(others([t.renew_every, retries, t.drain])).map(|calls| calls / 5),
                &|most| Durations { call_timeout: Some(most), ..asked.clone() },
            ),
        ];
        // The largest drift, in steps of a thousandth.
        let fits = |thousandths: u32| Durations { drift_ppm: thousandths * 1000, ..asked.clone() }.check().is_ok();
        let most = (1..t.drift_ppm.min(999_000).div_ceil(1000)).rev().find(|most| fits(*most));
        parts.push(Part {
            name: "drift",
            value: (f64::from(t.drift_ppm) / 1e6).to_string(),
            excess: f64::from(t.drift_ppm) / f64::from(Durations::DEFAULT_DRIFT_PPM),
            most: most.map(|most| (f64::from(most) / 1e3).to_string()),
        });
        parts.sort_by(|a, b| b.excess.total_cmp(&a.excess));
        parts
    }

    /// Returns the shortest lease that the other durations fit into, as a person would write it.
    fn shortest_lease(&self) -> Option<Duration> {
        let with = |lease: Duration| Durations { lease, ..self.asked.clone() }.check();
        let fits = |millis: u64| !matches!(with(Duration::from_millis(millis)), Err(TimingError::DoesNotFit(_)));
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let (mut short, mut long) = (millis(self.timing.lease), millis(Timing::LONGEST_LEASE));
        while long - short > 1 {
            let middle = short + (long - short) / 2;
            if fits(middle) { long = middle } else { short = middle }
        }
        let step = if long > 2000 { 1000 } else { 1 };
        let lease = Duration::from_millis(long.next_multiple_of(step));
        with(lease).is_ok().then_some(lease)
    }

    /// Returns the sum that does not fit, in one line.
    fn sum(&self) -> String {
        let t = &self.timing;
        let retries_and_calls = t.call_timeout.saturating_mul(5).saturating_add(t.shortest_retry() * 2);
        format!(
            "two failed renewals and a third attempt take renew_every {} + 2 x retry_every {} + 5 x call_timeout {} = {}, \
             and the lease leaves {}: {} less {} % drift and drain {}",
            shown(t.renew_every),
            shown(t.shortest_retry()),
            shown(t.call_timeout),
            shown(t.renew_every.saturating_add(retries_and_calls)),
            shown(rounded(t.room())),
            shown(t.lease),
            f64::from(t.drift_ppm) / 10_000.0,
            shown(t.drain),
        )
    }
}

/// Rounds a duration down to a value that a person would write.
fn rounded(span: Duration) -> Duration {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(if millis > 1000 { millis - millis % 100 } else { millis })
}

/// Formats a duration as a person would write it: `500ms`, `1.5s`, `7d`.
fn shown(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [("d", 86_400), ("h", 3600), ("m", 60)];
    let whole = units.iter().find(|(_, unit)| seconds > 0 && span.subsec_nanos() == 0 && seconds.is_multiple_of(*unit));
    match whole {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None if span.is_zero() => "0s".to_owned(),
        None => format!("{span:?}").replace('µ', "u"),
    }
}

impl std::error::Error for TimingError {}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    const DRIFT: &str =
        "drift of 0.12 is too large for a lease of 15s; use at most 0.102, or a renew_every of at most 4.5s";

    #[test]
    fn a_renewal_interval_that_does_not_fit_is_refused_with_one_that_does() {
        let asked = Durations { renew_every: Some(S(10)), ..Durations::of(S(15)) };
        let error = asked.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "renew_every of 10s is too long for a lease of 15s; use at most 7.5s, or a lease of at least 20s"
        );
        assert_eq!(
            error.detail().unwrap(),
            "two failed renewals and a third attempt take renew_every 10s + 2 x retry_every 100ms + 5 x call_timeout 1s \
             = 15.2s, and the lease leaves 12.7s: 15s less 1 % drift and drain 2s"
        );
        let advised = Durations { renew_every: Some(Duration::from_millis(7500)), ..Durations::of(S(15)) };
        advised.check().unwrap();
        Durations { lease: S(20), ..asked.clone() }.check().unwrap();
        Durations { lease: S(19), ..asked }.check().unwrap_err();
    }

    /// Reads a duration or a number from a message.
    fn read(text: &str) -> f64 {
        let text = text.trim();
        let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0), ("", 1.0)];
        let (number, scale) = units
            .iter()
            .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?.parse::<f64>().ok()?, scale)))
            .unwrap();
        number * scale
    }

    #[test]
    fn every_value_that_a_refusal_advises_is_accepted() {
        let mut refused = 0;
        for lease in [0.05, 0.4, 1.0, 3.0, 15.0, 60.0, 86_400.0] {
            for parts in 0..4_u32.pow(4) {
                // Four choices for each option: not given, and three lengths in parts of the lease.
                let choice =
                    |option: u32| [None, Some(0.1), Some(0.45), Some(1.2)][(parts / 4_u32.pow(option) % 4) as usize];
                let of_lease = |option| choice(option).map(|part: f64| Duration::from_secs_f64(lease * part));
                let asked = Durations {
                    renew_every: of_lease(0),
                    drain: of_lease(1),
                    call_timeout: of_lease(2).map(|span| span / 3),
                    drift_ppm: choice(3).map_or(10_000, |part| (part * 400_000.0) as u32),
                    ..Durations::of(Duration::from_secs_f64(lease))
                };
                let Err(error) = asked.check() else { continue };
                refused += 1;
                let text = error.to_string();
                let (what, advice) = text.split_once("; ").unwrap();
                assert!(!error.detail().unwrap().is_empty());
                for advice in advice.trim_start_matches("use ").split(", or ") {
                    let words: Vec<&str> = advice.split(' ').collect();
                    let (name, value) = match words[..] {
                        ["at", "most", value] => (what.split(' ').next().unwrap(), value),
                        ["a", name, "of", "at", "most" | "least", value] => (name, value),
                        ["leave", _, "out"] => ("", "0"),
                        _ => panic!("{text}"),
                    };
                    let mut advised = asked.clone();
                    let span = Duration::from_secs_f64(read(value));
                    match name {
                        "lease" => advised.lease = span,
                        "renew_every" => advised.renew_every = Some(span),
                        "drain" => advised.drain = Some(span),
                        "call_timeout" => advised.call_timeout = Some(span),
                        "drift" => advised.drift_ppm = (read(value) * 1e6) as u32,
                        _ => advised = Durations::of(asked.lease),
                    }
                    assert!(advised.check().is_ok(), "{advice}: {text}");
                }
            }
        }
        assert!(refused > 500, "only {refused}");
    }

    #[test]
    fn give_up_after_must_not_be_shorter_than_the_lease() {
        let soon = Durations { give_up_after: Some(S(14)), ..Durations::of(S(15)) };
        let text = soon.check().unwrap_err().to_string();
        assert_eq!(
            text,
            "give_up_after must be at least the lease (15s), got 14s: \
             a shorter one would end the candidate for good at any restart of the store"
        );
        Durations { give_up_after: Some(S(15)), ..Durations::of(S(15)) }.check().unwrap();
    }

    #[test]
    fn more_than_ten_percent_of_drift_needs_more_frequent_renewals_and_the_error_says_so() {
        Durations { drift_ppm: 100_000, ..Durations::of(S(15)) }.check().unwrap();
        let asked = Durations { drift_ppm: 120_000, ..Durations::of(S(15)) };
        let text = asked.check().unwrap_err().to_string();
        assert_eq!(text, DRIFT);
        Durations { renew_every: Some(Duration::from_millis(4500)), ..asked }.check().unwrap();
        let whole = Durations { drift_ppm: 2_000_000, ..Durations::of(S(15)) };
        assert!(matches!(whole.check(), Err(TimingError::DoesNotFit(_))));
    }
}
