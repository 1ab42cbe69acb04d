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
