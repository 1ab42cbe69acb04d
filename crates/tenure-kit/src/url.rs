//! URLs of stores, taken apart.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// A URL of a store: `scheme://user:password@host:port,host:port/path?option=value`, or just `scheme:`.
///
/// A store reads the options last: once everything before them is in order, an unknown option is not the rest of a
/// password, and can be named in an error.
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
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy)]
pub struct Url<'a> {
    /// One of the store's schemes.
    pub scheme: &'a str,
    login: Option<&'a str>,
    /// Hosts and path, as they are written. The path of a socket, for a scheme that takes one.
    pub place: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Takes a URL apart that begins with one of these schemes.
    ///
    /// # Errors
    /// In one line, without any part of the URL.
    pub fn parse(url: &'a str, schemes: &[&str]) -> Result<Self, String> {
        let parsed = Self::parse_without_login(url, schemes)?;
        check_login(url)?;
        let (login, place) = match parsed.place.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, parsed.place),
        };
        Ok(Self { login, place, ..parsed })
    }

    /// The same for a store whose URLs never have a user or a password: an `@` means nothing.
    ///
    /// # Errors
    /// In one line, without any part of the URL.
    pub fn parse_without_login(url: &'a str, schemes: &[&str]) -> Result<Self, String> {
        let known = || match schemes {
            [one] => format!("a URL of this store begins with {one}://"),
            _ => format!("a URL of this store begins with one of {}://", schemes.join("://, ")),
        };
        let (scheme, rest) = url.split_once(':').filter(|(scheme, _)| schemes.contains(scheme)).ok_or_else(known)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = if place.is_empty() { Some("") } else { place.strip_prefix("//") };
        let place = place.ok_or_else(|| format!("a URL of this store begins with {scheme}://"))?;
        Ok(Self { scheme, login: None, place, query })
    }

    /// The user, if one is named.
    ///
    /// # Errors
    /// What is wrong with its escapes.
    pub fn user(&self) -> Result<Option<String>, String> {
        let user = self.login.map(|login| login.split_once(':').map_or(login, |(user, _)| user));
        Ok(user.map(decoded).transpose()?.filter(|user| !user.is_empty()))
    }

    /// The password, if there is one.
    ///
    /// # Errors
    /// What is wrong with its escapes.
    pub fn password(&self) -> Result<Option<Secret>, String> {
        let password = self.login.and_then(|login| login.split_once(':')).map(|(_, password)| password);
        Ok(password.map(decoded).transpose()?.map(Secret))
    }

    /// Reads the hosts, as `host:port`, with this port where they name none. Leaves `into` as it is if no host is named.
    ///
    /// # Errors
    /// How hosts are written.
    pub fn hosts(&self, port: u16, into: &mut Vec<String>) -> Result<(), String> {
        let hosts = self.place.split('/').next().unwrap_or_default();
        if !hosts.is_empty() {
            *into = hosts.split(',').map(|host| with_port(host, port)).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// What follows the first slash after the hosts, as it is written.
    pub fn path(&self) -> &'a str {
        self.place.split_once('/').map_or("", |(_, path)| path)
    }

    /// The options.
    ///
    /// # Errors
    /// What is wrong with their escapes.
    pub fn options(&self) -> Result<Settings<'a>, String> {
        Settings::of_query(self.query)
    }
}

impl fmt::Debug for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Any other part may be a secret.
        f.debug_struct("Url").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// Reads `%41` as `A`.
///
/// # Errors
/// What is wrong with it, without a word of it: there may be a password in it.
pub fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err("a % in a URL is written as %25".to_owned()),
            },
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| "a URL is UTF-8".to_owned())
}

/// Writes everything but ASCII letters, digits and the characters in `kept` as `%41`: the reverse of [`decoded`].
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

/// Refuses a URL with an `@` after its host. It is most likely part of a password or token with a `/`, `?` or `#`
/// in it, of which the rest would be taken for a path or for options. To be called first: what comes later may
/// name the options of a URL in its errors.
///
/// # Errors
/// The advice for such a URL. It repeats no part of the URL, which may be a secret.
pub fn check_login(url: &str) -> Result<(), String> {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    match rest.find(['/', '?', '#']) {
        Some(end) if rest[end..].contains('@') => Err("the URL has an @ after its host: in a user name, password or \
             token, percent-encode / as %2F, ? as %3F, # as %23 and @ as %40; elsewhere, @ as %40"
            .to_owned()),
        _ => Ok(()),
    }
}

/// A host with its port; with this one, if it names none.
///
/// # Errors
/// How it is written. The host is not shown: half a password may have been taken for it.
pub fn with_port(host: &str, port: u16) -> Result<String, String> {
    let split = host.rsplit_once(':').filter(|(name, _)| !name.starts_with('[') || name.ends_with(']'));
    let name = split.map_or(host, |(name, _)| name);
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    let is_address = name.starts_with('[') && name.ends_with(']');
    match split {
        None if is_plain || is_address => Ok(format!("{host}:{port}")),
        Some((_, port)) if (is_plain || is_address) && port.parse::<u16>().is_ok() => Ok(host.to_owned()),
        _ => Err("a host is written as host:port".to_owned()),
    }
}

/// A password or a token. It is never printed.
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
