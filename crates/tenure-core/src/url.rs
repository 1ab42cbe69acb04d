//! What the URLs of stores have in common.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Takes `%41` for `A`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_comes_back_and_what_is_wrong_is_told_without_showing_it() {
        assert_eq!(decoded("p%40ss%2f%C3%A9"), Ok("p@ss/é".to_owned()));
        for wrong in ["hunter2%", "hunter2%4", "hunter2%zz", "hunter2%ff"] {
            let error = decoded(wrong).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_password_that_would_be_cut_in_pieces_is_refused_without_showing_it() {
        for url in ["redis://u:pw@h/0?ca=/x", "redis://u:p%3Fw@h", "redis:", "redis+unix:///s", "redis://u:p@w@h"] {
            assert_eq!(check_login(url), Ok(()), "{url}");
        }
        for url in
            ["redis://u:hunter2?x&y=z@h", "redis://u:hunter2/x@h/0", "redis://u:hunter2#x@h", "redis://u:p@w?x@h"]
        {
            let error = check_login(url).unwrap_err();
            assert!(error.contains("%3F") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn hosts_get_a_port_if_they_have_none() {
        for (host, whole) in [("a", "a:7"), ("a.b-c_d:1", "a.b-c_d:1"), ("[::1]", "[::1]:7"), ("[::1]:1", "[::1]:1")] {
            assert_eq!(with_port(host, 7).as_deref(), Ok(whole));
        }
        for wrong in ["", ":1", "a:", "a:x", "a:70000", "a b", "a/b", "u@a"] {
            assert!(with_port(wrong, 7).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::from("hunter2")), "***");
    }
}
