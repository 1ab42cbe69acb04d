//! URLs: separates the store's own parameters from those that the driver parses.

use std::error::Error as _;

use tenure_core::ConfigError;
use tenure_kit::options::{UrlOptions, unknown};
use tenure_kit::url::check_login;

use crate::options::{self, Mode, PostgresOptions, SslMode};

/// Takes the store's own parameters out of a URL. The rest stays in `url`, for the driver. A list of `key=value`
/// pairs goes to the driver unchanged.
pub(crate) fn split(text: &str) -> Result<PostgresOptions, ConfigError> {
    let Some(rest) = text.strip_prefix("postgres:").or_else(|| text.strip_prefix("postgresql:")) else {
        // The driver knows how to unquote pairs. The store's own options are fields of `PostgresOptions` then.
        return Ok(PostgresOptions { url: text.to_owned(), ..PostgresOptions::default() });
    };
    check_login(text)?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // `postgres:` is short for the server of this machine.
    let place = if place.is_empty() { "postgres://".to_owned() } else { format!("postgres:{place}") };
    let (mut options, mut attributes) = (PostgresOptions::default(), String::new());
    let mut given = UrlOptions::of_query(query)?;
    given.choose("mode", &mut options.mode, &[("lease", Some(Mode::Lease)), ("session", Some(Mode::Session))])?;
    given.take("schema", &mut options.schema)?.take("lock_id", &mut options.lock_id)?;
    given.choose("sslmode", &mut options.sslmode, &SslMode::ALL.map(|(name, mode)| (name, Some(mode))))?;
    given.take("sslrootcert", &mut options.sslrootcert)?;
    given.take("sslcert", &mut options.sslcert)?.take("sslkey", &mut options.sslkey)?;
    // The store skips standbys in any case, and the driver does not know all of libpq's values.
    match given.take("target_session_attrs", &mut attributes).map(|_| attributes.as_str())? {
        "" | "any" | "read-write" | "primary" | "prefer-standby" => {}
        "read-only" | "standby" => return Err(options::READ_ONLY.into()),
        _ => return Err("target_session_attrs must be any, read-write, primary or prefer-standby".into()),
    }
    let left = given.rest();
    options.url = if left.is_empty() { place } else { format!("{place}?{left}") };
    Ok(options)
}

/// The parameters of the store and of the driver.
const PARAMETERS: [&str; 25] = [
    "mode",
    "schema",
    "lock_id",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "target_session_attrs",
    "user",
    "password",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "options",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "channel_binding",
    "sslnegotiation",
    "load_balance_hosts",
];

/// Formats the driver's error about a URL. The message names parameters, never values.
pub(crate) fn parse_error(error: &tokio_postgres::Error) -> String {
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    if let Some(name) = why.strip_prefix("unknown option `") {
        return unknown(name.trim_end_matches('`'), &PARAMETERS).to_string();
    }
    let known = ["invalid value for option", "missing value", "unexpected EOF"];
    if known.iter().any(|known| why.starts_with(known)) {
        format!("cannot parse the URL: {why}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE")
    } else {
        "cannot parse the URL; write postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_set_in_code_wins_over_the_url() {
        let url = "postgres://db/app?mode=session&schema=one".to_owned();
        let set = PostgresOptions { url, mode: Some(Mode::Lease), ..PostgresOptions::default() }.with_url().unwrap();
        assert_eq!((set.mode(), set.schema()), (Mode::Lease, "one"));
    }

    #[test]
    fn parameters_of_the_store_are_taken_out_and_the_others_go_to_the_driver() {
        let options = split(
            "postgres://a:b@h1,h2:5433/db?mode=session&schema=my%20one&lock_id=-7&connect_timeout=3&sslmode=verify-ca",
        )
        .unwrap();
        assert_eq!(options.url, "postgres://a:b@h1,h2:5433/db?connect_timeout=3");
        assert_eq!((options.mode, options.schema.as_deref()), (Some(Mode::Session), Some("my one")));
        assert_eq!((options.lock_id, options.sslmode), (Some(-7), Some(SslMode::VerifyCa)));
    }

    #[test]
    fn a_url_without_a_host_means_the_socket_of_this_machine() {
        for url in ["postgres:", "postgresql:?mode=session", "postgres://", "postgres:///db", "postgres://u@/db"] {
            let config = PostgresOptions::from_url(url).and_then(|options| options.config()).unwrap();
            assert_eq!(config.get_hosts().len(), 1, "{url}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_reported_with_one_that_is_known() {
        let error =
            |query: &str| PostgresOptions::from_url(&format!("postgres://h/db?{query}")).unwrap_err().to_string();
        assert_eq!(
            error("connect_timout=3"),
            "unknown option \"connect_timout\" in the URL; did you mean connect_timeout?"
        );
        assert!(error("colour=green").contains("the options are mode, schema, lock_id, sslmode"));
        for name in PARAMETERS {
            let known = PostgresOptions::from_url(&format!("postgres://h/db?{name}=x"));
            assert!(known.map_or_else(|error| !error.to_string().contains("unknown option"), |_| true), "{name}");
        }
    }

    #[test]
    fn errors_about_urls_never_show_the_password() {
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
            let error = PostgresOptions::from_url(url).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(!error.is_empty() && !error.contains('\n'), "{error}");
        }
    }
}
