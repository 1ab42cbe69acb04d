//! Formatting for people: colours, durations and timestamps.

use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

/// The colours of one of the standard streams: on a terminal only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Uses colours if the stream is a terminal and the user has not turned them off (`NO_COLOR`, `TERM=dumb`).
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self(stream.is_terminal() && !no_color && !dumb)
    }

    /// No colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self(false)
    }

    pub(crate) fn is_on(self) -> bool {
        self.0
    }

    pub(crate) fn bold(self, text: impl fmt::Display) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn dim(self, text: impl fmt::Display) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn green(self, text: impl fmt::Display) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn yellow(self, text: impl fmt::Display) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn red(self, text: impl fmt::Display) -> String {
        self.wrap("31", text)
    }

    fn wrap(self, code: &str, text: impl fmt::Display) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// Returns the number of characters in a line of the terminal; `None` if the stream is not a terminal.
#[cfg(target_os = "linux")]
pub(crate) fn width(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<usize> {
    size(stream).map(|(width, _)| width).filter(|width| *width > 0)
}

/// Returns the numbers of characters in a line and of lines of the terminal; `None` if the stream is not a terminal.
/// A terminal that does not know its size returns zeros.
#[cfg(target_os = "linux")]
pub(crate) fn size(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stream).ok().filter(|_| stream.is_terminal())?;
    Some((size.ws_col.into(), size.ws_row.into()))
}

/// Returns `None`: the width of the terminal is not known on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn width(_stream: &impl IsTerminal) -> Option<usize> {
    None
}

/// Formats a duration with at most two units, such as `2 h 1 min`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// Formats a time as RFC 3339 in UTC.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let ms = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Howard Hinnant's algorithm civil_from_days, for days after 1970.
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// Returns the time between `time` and `now`; zero if `time` is in the future.
pub(crate) fn ago(time: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_match_the_calendar() {
        let timestamp = |ms| timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(timestamp(1_798_761_599_999), "2026-12-31T23:59:59.999Z");
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (ms, shown) in [(7, "7 ms"), (1500, "1.5 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min")] {
            assert_eq!(span(Duration::from_millis(ms)), shown);
        }
    }

    #[test]
    fn text_is_coloured_only_if_colours_are_on() {
        assert_eq!(Paint(false).red("x"), "x");
        assert_eq!(Paint(true).red("x"), "\x1b[31mx\x1b[0m");
    }
}
