//! From a URL to options.

use tenure_core::url::{check_login, decoded, with_port};

use crate::environment::{self, Lookup};
use crate::options::{ConsulOptions, SCHEMES, Secret, TakeoverMode};

const KNOWN: &str = "prefix, token, token_file, datacenter, namespace, partition, ca, ca_path, cert, key, \
                     tls_server_name, verify, takeover, min_lease, check";

pub(crate) fn parse(url: &str, lookup: Lookup<'_>) -> Result<ConsulOptions, String> {
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    if !SCHEMES.contains(&scheme) {
        return Err(format!("a URL of this store begins with one of {}", SCHEMES.join("://, ") + "://"));
    }
    check_login(url)?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let place = if place.is_empty() { Some("") } else { place.strip_prefix("//") };
    let place = place.ok_or("a URL of this store begins with consul://")?;
    let pairs: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    let mut options = environment::options(lookup)?;
    let (login, place) = place.rsplit_once('@').map_or((None, place), |(login, place)| (Some(login), place));
    if let Some(login) = login {
        let token = login.split_once(':').map_or(login, |(_, token)| token);
        options.token = Some(Secret(decoded(token)?));
    }
    if scheme == "consul+unix" {
        options.socket = Some(decoded(place)?.into());
        options.addresses.clear();
        options.tls = false;
    } else {
        let (hosts, prefix) = place.split_once('/').unwrap_or((place, ""));
        if !hosts.is_empty() {
            options.tls = scheme == "consuls";
            options.socket = None;
            let port = if options.tls { 8501 } else { 8500 };
            options.addresses = hosts.split(',').map(|host| with_port(host, port)).collect::<Result<_, _>>()?;
        } else if scheme == "consuls" {
            options.tls = true;
        }
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() {
            options.prefix = decoded(prefix)?;
        }
    }
    for (name, value) in pairs {
        set(&mut options, name, decoded(value)?)?;
    }
    options.check()?;
    Ok(options)
}

fn set(options: &mut ConsulOptions, name: &str, value: String) -> Result<(), String> {
    match name {
        "prefix" => options.prefix = value,
        "token" => options.token = Some(Secret(value)),
        "token_file" => options.token_file = Some(value.into()),
        "datacenter" | "dc" => options.datacenter = Some(value),
        "namespace" | "ns" => options.namespace = Some(value),
        "partition" => options.partition = Some(value),
        "ca" => options.ca = Some(value.into()),
        "ca_path" => options.ca_path = Some(value.into()),
        "cert" => options.cert = Some(value.into()),
        "key" => options.key = Some(value.into()),
        "tls_server_name" => options.tls_server_name = Some(value),
        "verify" => {
            options.verify = match value.as_str() {
                "true" => true,
                "false" => false,
                _ => return Err("verify is true or false".to_owned()),
            }
        }
        "takeover" => {
            options.takeover = match value.as_str() {
                "instant" => TakeoverMode::Instant,
                "safe" => TakeoverMode::Safe,
                _ => return Err("takeover is instant or safe".to_owned()),
            }
        }
        "min_lease" => {
            options.min_lease = tenure_core::span::parse(&value).map_err(|_| "min_lease is a duration, like 2s")?;
        }
        "check" => options.checks.push(value),
        _ => return Err(format!("unknown option {name:?}: known are {KNOWN}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Result<ConsulOptions, String> {
        parse(url, &|_| None)
    }

    #[test]
    fn urls_name_agents_and_sockets() {
        for short in ["consul:", "consul://", "consul:///"] {
            assert_eq!(options(short).unwrap(), ConsulOptions::default(), "{short}");
        }
        let one =
            options("consuls://:t%40ken@db.example:1/a/b?datacenter=east&min_lease=2s&takeover=safe&check=serfHealth");
        let one = one.unwrap();
        assert_eq!((one.addresses[0].as_str(), one.tls, one.prefix.as_str()), ("db.example:1", true, "a/b"));
        assert_eq!((one.token, one.datacenter.as_deref()), (Some("t@ken".into()), Some("east")));
        assert_eq!((one.min_lease.as_secs(), one.takeover), (2, TakeoverMode::Safe));
        assert_eq!(options("consul://a,b:1,[::1]").unwrap().addresses, ["a:8500", "b:1", "[::1]:8500"]);
        assert_eq!(options("consuls://a").unwrap().addresses, ["a:8501"]);
        let socket = options("consul+unix:///run/consul.sock?prefix=x").unwrap();
        assert_eq!((socket.socket, socket.prefix.as_str()), (Some("/run/consul.sock".into()), "x"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told_without_the_token() {
        for (url, told) in [
            ("consul:x", "begins with consul://"),
            ("http://:hunter2@host", "begins with one of"),
            ("consul://:hunter2@host?colour=red", "unknown option \"colour\""),
            ("consul://:hunter2%@host", "%25"),
            ("consul://:hunter2@host:port", "host:port"),
            ("consul://:hunter2@ho st", "host:port"),
            ("consul://:x?hunter2@host/y", "%3F"),
            ("consul://x?hunter2&hunter2@host/y", "%3F"),
            ("consul://:hunter2@host?verify=perhaps", "true or false"),
            ("consul://:hunter2@host?takeover=soon", "instant or safe"),
            ("consul://:hunter2@host?min_lease=hunter2", "like 2s"),
            ("consul://:hunter2@host?min_lease=10ms", "a second or more"),
            ("consuls://:hunter2@host?cert=x", "needs its key"),
            ("consul://:hunter2@host?prefix=/x", "slash"),
        ] {
            for url in
                [url.to_owned(), url.replace("//:hunter2", "//hunter2"), url.replace("//:hunter2", "//u:hunter2")]
            {
                let error = options(&url).unwrap_err();
                assert!(error.contains(told) && !error.contains("hunter2"), "{url}: {error}");
            }
        }
    }

    #[test]
    fn a_token_is_never_shown_however_it_is_written() {
        for url in [
            "consul://hunter2@host",
            "consul://:hunter2@host",
            "consuls://u:hunter2@a,b",
            "consul://host?token=hunter2",
        ] {
            let options = options(url).unwrap();
            assert_eq!(options.token, Some("hunter2".into()), "{url}");
            let written = format!("{:?}", toml::Value::try_from(&options).unwrap());
            let store = crate::ConsulStore::new(options.clone()).unwrap();
            for shown in [format!("{options:?}"), format!("{store:?}"), written] {
                assert!(!shown.contains("hunter2"), "{url}: {shown}");
            }
        }
    }
}
