//! Parsing of store URLs, with errors that never show a password.

use std::fmt;

use serde::{Deserialize, Serialize};
use tenure_core::ConfigError;

use crate::options::UrlOptions;

/// A store URL: `scheme://user:password@host:port,host:port/path?option=value`, or just `scheme:`.
///
/// A store reads the options last. Once everything before them has been parsed, an unknown option cannot be the
/// rest of a password, so an error can name it.
///
/// ```
/// use tenure_kit::url::Url;
///
/// let url = Url::parse("shelf://app:secret@one,two:7000/leaders?copies=3", &["shelf", "shelfs"])?;
/// let (mut hosts, mut copies, mut verify) = (vec!["localhost:7777".to_owned()], 1_u32, true);
/// url.hosts(7777, &mut hosts)?;
/// assert_eq!(hosts, ["one:7777", "two:7000"]);
/// assert_eq!((url.user()?.as_deref(), url.path()), (Some("app"), "leaders"));
/// let mut options = url.options()?;
/// options.take("copies", &mut copies)?.take("verify", &mut verify)?;
/// options.finish()?;
/// assert_eq!(copies, 3);
/// # Ok::<(), tenure_core::ConfigError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Url<'a> {
    /// The scheme of the URL, one of those that the store accepts.
    pub scheme: &'a str,
    login: Option<&'a str>,
    /// Hosts and path as they are written, or the path of a socket, for a scheme that uses one.
    pub place: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Parses a URL that begins with one of these schemes.
    ///
    /// # Errors
    /// If the URL has another scheme or an unescaped `@`. The message is one line and shows no part of the URL.
    pub fn parse(url: &'a str, schemes: &[&str]) -> Result<Self, ConfigError> {
        let parsed = Self::parse_without_login(url, schemes)?;
        check_login(url)?;
        let (login, place) = match parsed.place.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, parsed.place),
        };
        Ok(Self { login, place, ..parsed })
    }

    /// Parses a URL of a store that never uses a user or a password. An `@` has no special meaning.
    ///
    /// # Errors
    /// If the URL has another scheme. The message is one line and shows no part of the URL.
    pub fn parse_without_login(url: &'a str, schemes: &[&str]) -> Result<Self, ConfigError> {
        let known = || match schemes {
            [one] => format!("a URL of this store begins with {one}://"),
            _ => format!("a URL of this store begins with one of {}://", schemes.join("://, ")),
        };
        let (scheme, rest) = url.split_once(':').filter(|(scheme, _)| schemes.contains(scheme)).ok_or_else(known)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = if place.is_empty() { Some("") } else { place.strip_prefix("//") };
        let place = place.ok_or_else(|| format!("a URL of this store begins with {scheme}://; write both slashes"))?;
        Ok(Self { scheme, login: None, place, query })
    }

    /// Returns the user, if the URL names one. Escapes are decoded.
    ///
    /// # Errors
    /// If an escape is invalid.
    pub fn user(&self) -> Result<Option<String>, ConfigError> {
        let user = self.login.map(|login| login.split_once(':').map_or(login, |(user, _)| user));
        Ok(user.map(decoded).transpose()?.filter(|user| !user.is_empty()))
    }

    /// Returns the password, if the URL has one. Escapes are decoded.
    ///
    /// # Errors
    /// If an escape is invalid.
    pub fn password(&self) -> Result<Option<Secret>, ConfigError> {
        let password = self.login.and_then(|login| login.split_once(':')).map(|(_, password)| password);
        Ok(password.map(decoded).transpose()?.map(Secret))
    }

    /// Reads the hosts as `host:port`, with this port for hosts without one. Does not change `into` if the URL
    /// names no host.
    ///
    /// # Errors
    /// If a host is not written as `host:port`. The message does not show it.
    pub fn hosts(&self, port: u16, into: &mut Vec<String>) -> Result<(), ConfigError> {
        let hosts = self.place.split('/').next().unwrap_or_default();
        if !hosts.is_empty() {
            *into = hosts.split(',').map(|host| with_port(host, port)).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Returns the part after the first slash that follows the hosts, as it is written.
    pub fn path(&self) -> &'a str {
        self.place.split_once('/').map_or("", |(_, path)| path)
    }

    /// Returns the options after the `?`. Take them out one by one, and then call [`UrlOptions::finish`].
    ///
    /// # Errors
    /// If an escape is invalid.
    pub fn options(&self) -> Result<UrlOptions<'a>, ConfigError> {
        UrlOptions::of_query(self.query)
    }
}

impl fmt::Debug for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Any other part may contain a secret.
        f.debug_struct("Url").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// Decodes percent escapes, such as `%41` for `A`.
///
/// # Errors
/// If an escape is invalid or the result is not UTF-8. The message shows no part of the text, which may be a
/// password.
pub fn decoded(text: &str) -> Result<String, ConfigError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err("invalid escape in the URL: write % as %25".into()),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| "the URL is not valid UTF-8".into())
}

/// Encodes everything but ASCII letters, digits and the characters in `kept` as percent escapes. The reverse of
/// [`decoded`].
pub fn encoded(text: &str, kept: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Refuses a URL with an `@` after its host. Most likely it is part of a password or token that contains `/`,
/// `?` or `#`, whose rest would be mistaken for a path or for options. Call it first, because later errors may
/// name the options of the URL.
///
/// # Errors
/// Advice for such a URL. The message shows no part of the URL, which may be a secret.
pub fn check_login(url: &str) -> Result<(), ConfigError> {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    match rest.find(['/', '?', '#']) {
        Some(end) if rest[end..].contains('@') => Err("the URL has an @ after its host: in a user name, password or \
             token, percent-encode / as %2F, ? as %3F, # as %23 and @ as %40; elsewhere, @ as %40"
            .into()),
        _ => Ok(()),
    }
}

/// Returns a host with its port, or with `port` if it has none.
///
/// # Errors
/// If the host is invalid. The message does not show it, because it may be part of a password.
pub fn with_port(host: &str, port: u16) -> Result<String, ConfigError> {
    let split = host.rsplit_once(':').filter(|(name, _)| !name.starts_with('[') || name.ends_with(']'));
    let name = split.map_or(host, |(name, _)| name);
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    let is_address = name.starts_with('[') && name.ends_with(']');
    match split {
        None if is_plain || is_address => Ok(format!("{host}:{port}")),
        Some((_, port)) if (is_plain || is_address) && port.parse::<u16>().is_ok() => Ok(host.to_owned()),
        _ => Err("a host must be written as host or host:port, with a port of at most 65535".into()),
    }
}

/// A password or a token. Its `Debug` output never shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self(secret.to_owned())
    }
}
