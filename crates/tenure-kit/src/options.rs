//! Options of URLs and environment variables, by name.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tenure_core::{ConfigError, did_you_mean, span};

use crate::url::{Secret, decoded};

/// The options of a URL, taken out one by one.
///
/// A store takes every option that it knows, and then calls [`finish`](Self::finish). The remaining options are
/// unknown, and the error lists the options that the store asked for. An option may be given only once, unless
/// it fills a list.
pub struct UrlOptions<'a> {
    /// Name, value, and the pair as it is written.
    left: Vec<(&'a str, String, &'a str)>,
    known: Vec<&'static str>,
}

impl<'a> UrlOptions<'a> {
    /// Parses the options after the `?` of a URL. An option without a `=` has an empty value.
    ///
    /// # Errors
    /// If an escape in a value is invalid.
    pub fn of_query(query: &'a str) -> Result<Self, ConfigError> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((name, decoded(value)?, pair))
        });
        Ok(Self { left: pairs.collect::<Result<_, ConfigError>>()?, known: Vec::new() })
    }

    /// Returns whether an option is given and has not been taken yet.
    pub fn has(&self, name: &str) -> bool {
        self.left.iter().any(|(given, ..)| *given == name)
    }

    /// Takes an option out. Does not change `into` if the option is not given.
    ///
    /// # Errors
    /// If the value is invalid (the message says what it must be), or the option is given twice.
    pub fn take<T: Value>(&mut self, name: &'static str, into: &mut T) -> Result<&mut Self, ConfigError> {
        self.take_with(name, T::MUST_BE, into, T::read)
    }

    /// Takes an option out that has one of a few values.
    ///
    /// # Errors
    /// If the value is none of them, or the option is given twice.
    pub fn choose<T: Clone>(
        &mut self,
        name: &'static str,
        into: &mut T,
        values: &[(&str, T)],
    ) -> Result<&mut Self, ConfigError> {
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        let (last, others) = names.split_last().map_or(("", &[][..]), |(last, others)| (*last, others));
        let must_be = format!("{} or {last}", others.join(", "));
        let find = |text: &str| values.iter().find(|(name, _)| *name == text).map(|(_, value)| value.clone());
        self.take_with(name, &must_be, into, find)
    }

    /// Takes an option out that is parsed by `read`.
    ///
    /// # Errors
    /// `NAME must be MUST_BE` if `read` returns `None`, or that the option is given twice.
    pub fn take_with<T>(
        &mut self,
        name: &'static str,
        must_be: &str,
        into: &mut T,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<&mut Self, ConfigError> {
        let mut found = self.take_all(name);
        if let Some(text) = found.pop() {
            // The value is not shown, because it may be a secret.
            *into = read(&text).ok_or_else(|| format!("{name} must be {must_be}"))?;
        }
        if found.is_empty() { Ok(self) } else { Err(format!("option {name} is given twice; give it once").into()) }
    }

    /// Takes out all values of an option that may be given several times.
    pub fn take_all(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        self.left.extract_if(.., |(given, ..)| *given == name).map(|(_, value, _)| value).collect()
    }

    /// Refuses options that were not taken out.
    ///
    /// # Errors
    /// The name of an unknown option, and the names that it can stand for.
    pub fn finish(self) -> Result<(), ConfigError> {
        self.left.first().map_or(Ok(()), |(name, ..)| Err(unknown(name, &self.known)))
    }

    /// Returns the remaining options as they are written, for a driver that has its own options.
    pub fn rest(self) -> String {
        self.left.iter().map(|(.., pair)| *pair).collect::<Vec<_>>().join("&")
    }
}

/// Returns the error for an unknown option of a URL: the known option that it misspells, or else all known options.
/// For a driver that parses options itself; [`UrlOptions::finish`] calls it.
pub fn unknown(name: &str, known: &[&str]) -> ConfigError {
    match did_you_mean(name, known).as_slice() {
        [] => format!("unknown option {name:?} in the URL; the options are {}", known.join(", ")),
        near => format!("unknown option {name:?} in the URL; did you mean {}?", near.join(" or ")),
    }
    .into()
}

/// Environment variables, or those of a test. An empty variable counts as not set.
pub struct Variables<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// Returns the value of a variable, or `None` if it is unset or empty.
    pub fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// Reads a variable. Does not change `into` if it is not set.
    ///
    /// # Errors
    /// If the value is invalid. The message says what it must be.
    pub fn take<T: Value>(&self, name: &str, into: &mut T) -> Result<&Self, ConfigError> {
        if let Some(text) = self.get(name) {
            *into = T::read(&text).ok_or_else(|| format!("{name} must be {}", T::MUST_BE))?;
        }
        Ok(self)
    }
}

impl fmt::Debug for UrlOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secrets.
        f.debug_struct("UrlOptions").field("known", &self.known).finish_non_exhaustive()
    }
}

impl fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variables").finish_non_exhaustive()
    }
}

/// Refuses options that contradict each other. Each problem comes with a flag that says whether it occurs.
///
/// # Errors
/// The message of the first problem that occurs.
pub fn refuse(problems: &[(bool, &str)]) -> Result<(), ConfigError> {
    problems.iter().find(|(is_there, _)| *is_there).map_or(Ok(()), |(_, problem)| Err((*problem).into()))
}

/// A type that options and variables can have.
pub trait Value: Sized {
    /// What a value must be, for errors of the form `NAME must be …`.
    const MUST_BE: &'static str;

    /// Parses a value. Returns `None` if the text is not valid.
    fn read(text: &str) -> Option<Self>;
}

impl<T: Value> Value for Option<T> {
    const MUST_BE: &'static str = T::MUST_BE;

    fn read(text: &str) -> Option<Self> {
        T::read(text).map(Some)
    }
}

macro_rules! value {
    ($($kind:ty, $must_be:literal, $read:expr;)*) => {$(
        impl Value for $kind {
            const MUST_BE: &'static str = $must_be;

            fn read(text: &str) -> Option<Self> {
                $read(text)
            }
        }
    )*};
}

value! {
    String, "text", |text: &str| Some(text.to_owned());
    PathBuf, "a path", |text: &str| Some(text.into());
    Secret, "text", |text: &str| Some(text.into());
    bool, "true or false", flag;
    u32, "a whole number, 0 or more", |text: &str| text.parse().ok();
    i64, "a whole number of at most 64 bits", |text: &str| text.parse().ok();
    Duration, "a duration, like 2s or 500ms", |text: &str| span::parse(text).ok();
}

/// An option that is given without a value is true.
fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "" | "1" | "t" | "true" => Some(true),
        "0" | "f" | "false" => Some(false),
        _ => None,
    }
}

/// Serializes durations as text such as `10s`, for fields of options: `#[serde(with = "tenure_kit::options::duration")]`.
pub mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a duration as text with a unit.
    ///
    /// # Errors
    /// The errors of the format.
    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&tenure_core::span::show(*duration))
    }

    /// Reads a duration from text with a unit.
    ///
    /// # Errors
    /// If the text is not a duration. The message shows how to write one.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        tenure_core::span::parse(&text).map_err(serde::de::Error::custom)
    }
}
