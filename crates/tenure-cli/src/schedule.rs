//! Schedules of recurring jobs: the fields of a crontab, or a period.

use std::time::{Duration, SystemTime};

use cronexpr::{Crontab, FallbackTimezoneOption, ParseOptions};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use tenure_kit::did_you_mean;

use crate::failure::Failure;

/// A schedule, as given with `--slot`.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// Whole multiples of this time since 1970.
    Period(Duration),
    Crontab(Box<Crontab>),
}

/// How far back the last scheduled time is searched. Each search lists all times of its range, so short ranges come
/// first. The 29th of February can be eight years ago.
const RANGES: [i64; 5] = [1, 24, 32 * 24, 367 * 24, 9 * 366 * 24];

/// The names that crontabs have for common schedules.
const NAMED: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

impl Schedule {
    /// Parses a schedule.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(period) = tenure::span::parse(text) {
            return if period.is_zero() {
                Err("must not be 0; write it like 1h".to_owned())
            } else {
                Ok(Self::Period(period))
            };
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::System;
        let fields = NAMED.iter().find(|(name, _)| *name == text).map_or(text, |(_, fields)| fields);
        let crontab =
            cronexpr::parse_crontab_with(fields, options).map_err(|error| problem(text, &error.to_string()))?;
        // Otherwise this machine would count in UTC, and the others in their own time: each would run the command.
        if fields.split_whitespace().count() < 6 && TimeZone::try_system().is_err() {
            return Err(format!(
                "{text:?} needs the time zone of this machine, which is unknown: set TZ to one like Europe/Berlin or \
                 UTC, or write it behind the schedule: '{fields} UTC'"
            ));
        }
        Ok(Self::Crontab(Box::new(crontab)))
    }

    /// Returns the scheduled time that a process started at `now` counts for: the last one, or the next one if it is at
    /// most `skew`, and at most a quarter of the interval, away.
    ///
    /// # Errors
    /// If no time of the schedule has ever been.
    pub(crate) fn slot(&self, now: SystemTime, skew: Duration) -> Result<SystemTime, Failure> {
        let (last, next) = self.around(now)?;
        let early = next.duration_since(now).unwrap_or_default();
        let interval = next.duration_since(last).unwrap_or_default();
        Ok(if early <= skew.min(interval / 4) { next } else { last })
    }

    /// Returns the last scheduled time up to `now` and the first one after it.
    fn around(&self, now: SystemTime) -> Result<(SystemTime, SystemTime), Failure> {
        match self {
            Self::Period(period) => {
                let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let passed = u64::try_from(since.as_nanos() % period.as_nanos()).unwrap_or_default();
                let last = now - Duration::from_nanos(passed);
                Ok((last, last + *period))
            }
            Self::Crontab(crontab) => {
                let failed = |problem: &dyn std::fmt::Display| Failure::new(format!("--slot: {problem}"));
                let now = Timestamp::try_from(now).map_err(|error| failed(&error))?;
                let never = |_| failed(&"no time of this schedule is in the next four years; check its fields");
                let next = crontab.find_next(now).map_err(never)?;
                for hours in RANGES {
                    let from = now - Span::new().hours(hours);
                    let times = crontab.iter_after(from).map_err(|error| failed(&error))?;
                    let times = times.map_while(Result::ok).map(|time| time.timestamp());
                    if let Some(last) = times.take_while(|time| *time <= now).last() {
                        return Ok((last.into(), next.timestamp().into()));
                    }
                }
                Err(failed(&"no time of this schedule has been in the last nine years; check its fields"))
            }
        }
    }
}

/// Returns what is wrong with the text of a schedule, and what to write instead.
fn problem(text: &str, error: &str) -> String {
    const LIKE: &str = "write it like '0 3 * * *' (minute, hour, day, month, weekday), or a period like 1h";
    let names = NAMED.map(|(name, _)| name);
    if let [near] = did_you_mean(&text.replace('@', ""), &names.map(|name| &name[1..])).as_slice() {
        return format!("{text:?} is not a schedule: did you mean @{near}?");
    }
    let fields = text.split_whitespace().count();
    match fields {
        6 if error.contains("timezone") => {
            format!("{text:?} has an unknown time zone: write it like '0 3 * * * Europe/Berlin'")
        }
        5 | 6 => {
            // The last line of the error has the reason, below the place.
            let reason = error.lines().last().unwrap_or_default().trim().trim_start_matches('^').trim();
            format!("{text:?} is not a schedule ({reason}): {LIKE}")
        }
        1 => format!("{text:?} is not a schedule: {LIKE}"),
        _ => format!("{text:?} is not a schedule, because it has {fields} fields and not 5: {LIKE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the slot as text, for a process started at this time with 30 s of skew.
    fn slot(schedule: &str, now: &str) -> String {
        let now: Timestamp = now.parse().unwrap();
        let slot = Schedule::parse(schedule).unwrap().slot(now.into(), Duration::from_secs(30)).unwrap();
        Timestamp::try_from(slot).unwrap().to_string()
    }

    #[test]
    fn a_process_counts_for_the_last_scheduled_time_however_late_it_starts() {
        assert_eq!(slot("0 3 * * * UTC", "2026-11-17T03:00:00Z"), "2026-11-17T03:00:00Z");
        assert_eq!(slot("0 3 * * * UTC", "2026-11-18T02:59:00Z"), "2026-11-17T03:00:00Z");
        assert_eq!(slot("*/15 * * * * UTC", "2026-11-17T03:14:00Z"), "2026-11-17T03:00:00Z");
        assert_eq!(slot("0 0 29 2 * UTC", "2026-11-17T03:14:00Z"), "2024-02-29T00:00:00Z");
        assert_eq!(slot("1h", "2026-11-17T03:59:00Z"), "2026-11-17T03:00:00Z");
        assert_eq!(slot("0 3 * * * Europe/Berlin", "2026-11-17T03:14:00Z"), "2026-11-17T02:00:00Z");
    }

    #[test]
    fn the_named_schedules_of_a_crontab_are_known() {
        for (name, fields) in NAMED {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_650_000);
            let slot = |text: &str| Schedule::parse(text).unwrap().slot(now, Duration::ZERO).unwrap();
            assert_eq!(slot(name), slot(fields), "{name}");
        }
        assert!(Schedule::parse("@reboot").is_err());
    }

    #[test]
    fn a_process_whose_clock_is_slow_counts_for_the_next_time() {
        assert_eq!(slot("0 3 * * * UTC", "2026-11-17T02:59:31Z"), "2026-11-17T03:00:00Z");
        assert_eq!(slot("1h", "2026-11-17T03:59:31Z"), "2026-11-17T04:00:00Z");
        // At most a quarter of the interval.
        assert_eq!(slot("* * * * * UTC", "2026-11-17T03:00:44Z"), "2026-11-17T03:00:00Z");
        assert_eq!(slot("* * * * * UTC", "2026-11-17T03:00:46Z"), "2026-11-17T03:01:00Z");
    }

    #[test]
    fn a_schedule_without_times_is_refused() {
        let never = Schedule::parse("0 0 30 2 * UTC").unwrap().slot(SystemTime::now(), Duration::ZERO).unwrap_err();
        assert!(never.to_string().ends_with("check its fields"), "{never}");
    }

    #[test]
    fn what_is_not_a_schedule_is_refused_in_one_line() {
        for text in ["", "0s", "soon", "0 3 * *", "61 3 * * *", "0 3 * * * Mars/Phobos"] {
            let error = Schedule::parse(text).unwrap_err();
            assert!(!error.contains('\n') && !error.is_empty(), "{text}: {error}");
        }
    }
}
