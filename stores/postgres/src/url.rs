//! URLs: what is ours, and what the driver reads by itself.

use std::error::Error as _;

use crate::options::{self, Mode, PostgresOptions, SslMode};

/// Takes our own parameters out of a URL or a list of `key=value` pairs. What is left is the driver's.
pub(crate) fn split(text: &str) -> Result<PostgresOptions, String> {
    let Some(rest) = text.strip_prefix("postgres:").or_else(|| text.strip_prefix("postgresql:")) else {
        // Pairs are left to the driver, which knows how to unquote them: ours come as fields then.
        return Ok(PostgresOptions { url: text.to_owned(), ..PostgresOptions::default() });
    };
    tenure_core::url::check_login(text)?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // The shortest way to say it: the server of this machine.
    let place = if place.is_empty() { "postgres://".to_owned() } else { format!("postgres:{place}") };
    let mut options = PostgresOptions::default();
    let mut left = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, raw) = pair.split_once('=').unwrap_or((pair, ""));
        let value = || decode(raw).ok_or_else(|| format!("the value of {key} is not text"));
        match key {
            "mode" => {
                options.mode = match value()?.as_str() {
                    "lease" => Mode::Lease,
                    "session" => Mode::Session,
                    _ => return Err("mode is lease or session".to_owned()),
                }
            }
            "schema" => options.schema = Some(value()?),
            "lock_id" => {
                let number = value()?.parse().map_err(|_| "lock_id is a whole number of 64 bits".to_owned())?;
                options.lock_id = Some(number);
            }
            "sslmode" => {
                let mode = SslMode::parse(&value()?);
                options.sslmode = Some(
                    mode.ok_or("sslmode is disable, allow, prefer, require, verify-ca or verify-full".to_owned())?,
                );
            }
            // Standbys are passed over whatever it says, and the driver does not know all of libpq's words.
            "target_session_attrs" => match value()?.as_str() {
                "any" | "read-write" | "primary" | "prefer-standby" => {}
                "read-only" | "standby" => return Err(options::READ_ONLY.to_owned()),
                _ => return Err("target_session_attrs is any, read-write, primary or prefer-standby".to_owned()),
            },
            "sslrootcert" => options.sslrootcert = Some(value()?.into()),
            "sslcert" => options.sslcert = Some(value()?.into()),
            "sslkey" => options.sslkey = Some(value()?.into()),
            _ => left.push(pair),
        }
    }
    options.url = if left.is_empty() { place } else { format!("{place}?{}", left.join("&")) };
    Ok(options)
}

/// What the driver has to say about a URL. It names parameters, never values.
pub(crate) fn complaint(error: &tokio_postgres::Error) -> String {
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    let known = ["unknown option", "invalid value for option", "missing value", "unexpected EOF"];
    if known.iter().any(|known| why.starts_with(known)) {
        format!("the URL cannot be read: {why}")
    } else {
        "the URL cannot be read: write postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned()
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_parameters_are_taken_and_the_others_left_to_the_driver() {
        let options = split(
            "postgres://a:b@h1,h2:5433/db?mode=session&schema=my%20one&lock_id=-7&connect_timeout=3&sslmode=verify-ca",
        )
        .unwrap();
        assert_eq!(options.url, "postgres://a:b@h1,h2:5433/db?connect_timeout=3");
        assert_eq!((options.mode, options.schema.as_deref()), (Mode::Session, Some("my one")));
        assert_eq!((options.lock_id, options.sslmode), (Some(-7), Some(SslMode::VerifyCa)));
    }

    #[test]
    fn without_a_host_it_is_the_socket_of_this_machine() {
        for url in ["postgres:", "postgresql:?mode=session", "postgres://", "postgres:///db", "postgres://u@/db"] {
            let config = PostgresOptions::from_url(url).and_then(|options| options.config()).unwrap();
            assert_eq!(config.get_hosts().len(), 1, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_without_the_password() {
        for url in [
            "postgres://u:hunter2@h/db?mode=fast",
            "postgres://u:hunter2@h/db?lock_id=x",
            "postgres://u:hunter2@h/db?sslmode=maybe",
            "postgres://u:hunter2@h/db?colour=green",
            "postgres://u:hunter2@h:port/db",
            "postgres://u:x?hunter2&hunter2=y@h/db",
            "postgres://u:x?hunter2@h/db",
            "postgres://u:hunter2#x@h/db",
            "postgres://u:hunter2@h/db?target_session_attrs=read-only",
            "postgres://u:hunter2@h/db?target_session_attrs=standby",
            "postgres://u:hunter2@h/db?target_session_attrs=hunter2",
            "postgres://u:hunter2@h/db?schema=%ff",
            "hunter2",
        ] {
            let error = PostgresOptions::from_url(url).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    }
}
