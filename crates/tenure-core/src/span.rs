//! Durations as people write them: `15s`, `500ms`, `1m30s`, `7d`.

use std::time::Duration;

use crate::ConfigError;

const UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Parses a duration: numbers with units (`d`, `h`, `m`, `s`, `ms`, `us`, `ns`), the largest unit first.
///
/// ```
/// # use std::time::Duration;
/// assert_eq!(tenure_core::span::parse("1m30s")?, Duration::from_secs(90));
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
///
/// # Errors
/// If the text is not a duration, is negative, or is longer than the longest possible duration.
pub fn parse(text: &str) -> Result<Duration, ConfigError> {
    let wrong =
        || ConfigError::new(format!("{text:?} is not a duration: write it like \"15s\", \"500ms\" or \"1m30s\""));
    let mut rest = text.trim();
    if rest.starts_with('-') {
        return Err(format!("{text:?} is negative: write a duration like \"15s\", without a sign").into());
    }
    if rest.parse::<f64>().is_ok_and(|number| number.is_finite()) {
        return Err(format!("{text:?} has no unit: write it like \"{rest}s\" or \"{rest}ms\"").into());
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut seconds = 0.0;
    let mut last = f64::INFINITY;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = &rest[..letters];
        if unit.is_empty() {
            return Err(wrong());
        }
        let unknown = || format!("{text:?} has the unknown unit {unit:?}: the units are d, h, m, s, ms, us and ns");
        let scale = UNITS.iter().find(|(known, _)| *known == unit).ok_or_else(unknown)?.1;
        if scale >= last {
            return Err(
                format!("{text:?} has its units in the wrong order: write the largest first, like \"1m30s\"").into()
            );
        }
        last = scale;
        seconds += number * scale;
        rest = rest[letters..].trim_start();
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| format!("{text:?} is longer than the longest possible duration").into())
}

/// Formats a duration so that [`parse`] returns the same duration.
pub fn show(span: Duration) -> String {
    if span.is_zero() { "0s".to_owned() } else { format!("{span:?}").replace('µ', "u") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("15s", 15_000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            (" 2h ", 7_200_000),
            ("1d12h", 129_600_000),
            ("1s 5ms", 1_005),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn texts_that_are_not_durations_are_refused_with_an_example() {
        let is = |text: &str, told: &str| {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        };
        for text in ["", "s", "soon", "1..5s", "1s5"] {
            is(text, "write it like \"15s\"");
        }
        is("15", "\"15\" has no unit: write it like \"15s\" or \"15ms\"");
        for text in ["15 parsecs", "1e5s", "1y", "5 min", "1S"] {
            is(text, "the units are d, h, m, s, ms, us and ns");
        }
        for text in ["1s1s", "1s1m"] {
            is(text, "write the largest first");
        }
        is("-5s", "negative: write a duration like \"15s\"");
        assert!(parse("99999999999999999999999h").unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn a_formatted_duration_is_parsed_to_the_same_duration() {
        for span in [Duration::ZERO, Duration::from_millis(1500), Duration::from_micros(7), Duration::from_secs(15)] {
            assert_eq!(parse(&show(span)), Ok(span));
        }
    }
}
