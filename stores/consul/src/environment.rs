//! The variables that Consul's own command and libraries go by.

use crate::options::{ConsulOptions, Secret};

/// Looks a variable up.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The options that the environment gives.
pub(crate) fn options(lookup: Lookup<'_>) -> Result<ConsulOptions, String> {
    let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
    let flag = |name: &str| match get(name).map(|value| value.to_ascii_lowercase()).as_deref() {
        None => Ok(None),
        Some("1" | "t" | "true") => Ok(Some(true)),
        Some("0" | "f" | "false") => Ok(Some(false)),
        Some(_) => Err(format!("{name} is true or false")),
    };
    let mut options = ConsulOptions {
        token: get("CONSUL_HTTP_TOKEN").map(Secret),
        token_file: get("CONSUL_HTTP_TOKEN_FILE").map(Into::into),
        auth: get("CONSUL_HTTP_AUTH").map(Secret),
        namespace: get("CONSUL_NAMESPACE"),
        partition: get("CONSUL_PARTITION"),
        ca: get("CONSUL_CACERT").map(Into::into),
        ca_path: get("CONSUL_CAPATH").map(Into::into),
        cert: get("CONSUL_CLIENT_CERT").map(Into::into),
        key: get("CONSUL_CLIENT_KEY").map(Into::into),
        tls_server_name: get("CONSUL_TLS_SERVER_NAME"),
        tls: flag("CONSUL_HTTP_SSL")?.unwrap_or(false),
        verify: flag("CONSUL_HTTP_SSL_VERIFY")?.unwrap_or(true),
        ..ConsulOptions::default()
    };
    let Some(address) = get("CONSUL_HTTP_ADDR") else { return Ok(options) };
    let wrong = |_| "CONSUL_HTTP_ADDR is host:port, http://host:port, https://host:port or unix:///path".to_owned();
    let (scheme, rest) = address.split_once("://").unwrap_or(("", &address));
    match scheme {
        "unix" => {
            options.socket = Some(rest.into());
            options.addresses.clear();
            options.tls = false;
        }
        "" | "http" | "https" | "tcp" => {
            options.tls |= scheme == "https";
            let port = if options.tls { 8501 } else { 8500 };
            options.addresses = vec![tenure_core::url::with_port(rest.trim_end_matches('/'), port).map_err(wrong)?];
        }
        _ => return Err(wrong(String::new())),
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(variables: &[(&str, &str)]) -> Result<ConsulOptions, String> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        options(&find)
    }

    #[test]
    fn the_usual_variables_are_heard() {
        assert_eq!(given(&[]).unwrap(), ConsulOptions::default());
        let options = given(&[
            ("CONSUL_HTTP_ADDR", "https://consul.example"),
            ("CONSUL_HTTP_TOKEN", "hunter2"),
            ("CONSUL_HTTP_SSL_VERIFY", "false"),
            ("CONSUL_CACERT", "/ca.pem"),
            ("CONSUL_CLIENT_CERT", "/c.pem"),
            ("CONSUL_CLIENT_KEY", "/k.pem"),
            ("CONSUL_TLS_SERVER_NAME", "server.dc1.consul"),
            ("CONSUL_NAMESPACE", "team"),
        ])
        .unwrap();
        assert_eq!((options.addresses[0].as_str(), options.tls, options.verify), ("consul.example:8501", true, false));
        assert_eq!((options.token, options.namespace.as_deref()), (Some("hunter2".into()), Some("team")));
        assert_eq!(options.tls_server_name.as_deref(), Some("server.dc1.consul"));
        let socket = given(&[("CONSUL_HTTP_ADDR", "unix:///run/consul.sock")]).unwrap();
        assert_eq!((socket.socket, socket.addresses.len()), (Some("/run/consul.sock".into()), 0));
        assert_eq!(given(&[("CONSUL_HTTP_ADDR", "10.0.0.1:80")]).unwrap().addresses, ["10.0.0.1:80"]);
        assert!(given(&[("CONSUL_HTTP_SSL", "yes please")]).unwrap_err().contains("CONSUL_HTTP_SSL is true or false"));
        assert!(given(&[("CONSUL_HTTP_ADDR", "gopher://x")]).unwrap_err().contains("CONSUL_HTTP_ADDR is"));
    }

    #[test]
    fn a_url_says_more_than_the_environment() {
        let find = |name: &str| match name {
            "CONSUL_HTTP_ADDR" => Some("https://elsewhere:1".to_owned()),
            "CONSUL_HTTP_TOKEN" => Some("from-outside".to_owned()),
            "CONSUL_NAMESPACE" => Some("team".to_owned()),
            _ => None,
        };
        let alone = crate::url::parse("consul:", &find).unwrap();
        assert_eq!((alone.addresses[0].as_str(), alone.tls), ("elsewhere:1", true));
        let named = crate::url::parse("consul://:mine@here/p?namespace=other", &find).unwrap();
        assert_eq!((named.addresses[0].as_str(), named.tls, named.prefix.as_str()), ("here:8500", false, "p"));
        assert_eq!((named.token, named.namespace.as_deref()), (Some("mine".into()), Some("other")));
    }
}
