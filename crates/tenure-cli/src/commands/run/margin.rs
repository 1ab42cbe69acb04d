//! How long before the end of its term a command must be gone, and the shortest lease that leaves time for it.

use std::time::Duration;

use tenure::{Durations, ElectionOptions, Error, span};

use crate::failure::Failure;

/// Returns how long before the end of the hold the command must be gone. `stores_least` is the shortest lease that the
/// store can keep.
///
/// # Errors
/// If the lease or the drain is too short, or the durations contradict each other.
pub(crate) fn margin(options: &ElectionOptions, stores_least: Duration) -> Result<Duration, Failure> {
    let lease = options.lease.unwrap_or(ElectionOptions::DEFAULT_LEASE);
    let least = shortest_lease().max(stores_least);
    if lease < least {
        let on = if least > shortest_lease() { " on this store" } else { "" };
        let (least, lease) = (span::show(least), span::show(lease));
        return Err(Failure::new(format!("lease must be at least {least}{on}, got {lease} (15s is a good start)")));
    }
    let timing = options.durations()?.check().map_err(Error::from)?;
    let margin = margin_of(lease);
    if timing.drain() <= margin {
        // The command would be killed before it gets SIGTERM, or before it starts.
        let (drain, least) = (span::show(timing.drain()), span::show(margin + Duration::from_millis(1)));
        return Err(Failure::new(format!(
            "drain of {drain} is too short for a command to wrap up; use at least {least}, or leave it out"
        )));
    }
    Ok(margin)
}

/// The shortest time for the hook for the end.
const LEAST_FOR_HOOK: Duration = Duration::from_millis(100);

/// Checks that the hook for the end, which has half of the time to wrap up, has time for anything.
///
/// # Errors
/// If it has not. The message names a lease that is long enough.
pub(crate) fn check_hook(drain: Duration, margin: Duration) -> Result<(), Failure> {
    let of_hook = |drain: Duration, margin| drain.saturating_sub(margin) / 2;
    let has = of_hook(drain, margin);
    if has >= LEAST_FOR_HOOK {
        return Ok(());
    }
    let least = shortest_lease_with(|lease, drain| of_hook(drain, margin_of(lease)) >= LEAST_FOR_HOOK);
    let (has, least) = (span::show(has), span::show(least));
    Err(Failure::new(format!(
        "--on-stop would have only {has}; use a --lease of at least {least}, or a longer --drain"
    )))
}

/// The time that the guard needs to kill a command, however busy the machine is.
fn margin_of(lease: Duration) -> Duration {
    (lease / 100).max(Duration::from_millis(50))
}

/// Returns the shortest lease for a command, in whole milliseconds. Its drain must be longer than the margin. A program
/// that uses the library has no guard, so its leases can be shorter.
pub(crate) fn shortest_lease() -> Duration {
    shortest_lease_with(|lease, drain| drain > margin_of(lease))
}

/// Returns the shortest lease, in whole milliseconds, whose drain is long enough.
fn shortest_lease_with(is_enough: impl Fn(Duration, Duration) -> bool) -> Duration {
    let drain = |lease| Durations::of(lease).check().map(|timing| timing.drain());
    let fits = |lease: &Duration| drain(*lease).is_ok_and(|drain| is_enough(*lease, drain));
    (1..).map(Duration::from_millis).find(fits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lease: Duration) -> Result<Duration, String> {
        let options = ElectionOptions { lease: Some(lease), ..ElectionOptions::default() };
        margin(&options, Duration::ZERO).map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_shortest_lease_is_accepted_and_one_below_is_refused_with_that_number() {
        let least = shortest_lease();
        assert!(of(least).is_ok());
        let shown = span::show(least);
        for shorter in [Duration::ZERO, Duration::from_millis(1), least - Duration::from_millis(1)] {
            let error = of(shorter).unwrap_err();
            assert!(error.starts_with(&format!("lease must be at least {shown}, got ")), "{error}");
        }
        let options = ElectionOptions { lease: Some(least), ..ElectionOptions::default() };
        let error = margin(&options, Duration::from_secs(2)).unwrap_err().to_string();
        assert!(error.starts_with("lease must be at least 2s on this store, got "), "{error}");
    }

    #[test]
    fn the_lease_that_is_named_leaves_time_for_the_hook() {
        let check = |lease| check_hook(Durations::of(lease).check().unwrap().drain(), margin_of(lease));
        let error = check(Duration::from_millis(600)).unwrap_err().to_string();
        let (_, advice) = error.split_once("at least ").unwrap();
        let advised = span::parse(advice.split(',').next().unwrap()).unwrap();
        assert!(check(advised).is_ok() && check(advised - Duration::from_millis(1)).is_err(), "{error}");
    }

    #[test]
    fn the_documentation_has_the_same_shortest_leases() {
        let library = Durations::of(Duration::ZERO).check().unwrap_err().to_string();
        let library = library.strip_prefix("lease must be at least ").unwrap().split(',').next().unwrap();
        let expected =
            format!("At least {} with `tenure run`, and {library} in a program", span::show(shortest_lease()));
        let lease = ElectionOptions::TABLE.iter().find(|option| option.name == "lease").unwrap();
        assert!(lease.doc.contains(&expected), "{}", lease.doc);
        let page = include_str!("../../../../../docs/options.md");
        assert!(page.contains(&expected));
    }

    #[test]
    fn a_drain_that_is_too_short_is_refused_with_one_that_is_not() {
        for lease in [shortest_lease(), Duration::from_secs(15), Duration::from_secs(3600)] {
            let with = |drain: Duration| {
                let options = ElectionOptions { lease: Some(lease), drain: Some(drain), ..ElectionOptions::default() };
                margin(&options, Duration::ZERO).map_err(|failure| failure.to_string())
            };
            let error = with(Duration::from_millis(50)).unwrap_err();
            let (_, advice) = error.split_once("use at least ").unwrap();
            let advised = span::parse(advice.split(',').next().unwrap()).unwrap();
            assert!(with(advised).is_ok() && with(advised - Duration::from_millis(1)).is_err(), "{error}");
        }
    }
}
