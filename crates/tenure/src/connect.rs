//! From a URL to a store.

use std::fmt;

use crate::memory::Memory;
use crate::{DynStore, LifeKind};

/// Makes a store from its URL. Nothing is connected yet: what may be wrong with a server shows when
/// the first election asks for it.
///
/// | URL | store |
/// |---|---|
/// | `sqlite:` | the default file under the user's state folder (feature `sqlite`) |
/// | `sqlite:/path/to/file.db` | this file |
/// | `etcd://host:port,host:port/prefix` | an etcd cluster (feature `etcd`); `etcds://` over TLS |
/// | `redis://host:port/db` | Redis or Valkey (feature `redis`); `rediss://` over TLS, `redis+unix:///path/to/socket` |
/// | `redis+sentinel://host:port,host:port/master` | the master that these Sentinels name |
/// | `redis+cluster://host:port,host:port` | a Redis Cluster |
/// | `kubernetes://NAMESPACE` | Leases of this namespace; the cluster as the kubeconfig says, or the one that this runs in (feature `kubernetes`) |
/// | `postgres://USER:PASSWORD@HOST/DATABASE` | rows of this database; `?mode=session`: locks of a session (feature `postgres`) |
/// | `consul://host:port/prefix` | Consul (feature `consul`); `consuls://` over TLS, `consul+unix:///path/to/socket`, `consul:` as `CONSUL_HTTP_ADDR` says |
/// | `memory:` | the memory of this process; `memory:?kind=observe`, `clock`, `session` or `lock` |
///
/// ```
/// let elections = tenure::Elections::new(tenure::connect("memory:")?);
/// # Ok::<(), tenure::ConnectError>(())
/// ```
///
/// # Errors
/// If the URL cannot be read, or names a store that this program was built without. The error never
/// shows more of the URL than its scheme, as there may be a password in it.
pub fn connect(url: &str) -> Result<Box<dyn DynStore>, ConnectError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => memory(url),
        #[cfg(feature = "consul")]
        scheme if tenure_consul::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_consul::ConsulStore::from_url(url).map_err(ConnectError)?))
        }
        #[cfg(feature = "etcd")]
        scheme if tenure_etcd::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_etcd::EtcdStore::from_url(url).map_err(ConnectError)?))
        }
        #[cfg(feature = "kubernetes")]
        scheme if tenure_kubernetes::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_kubernetes::KubernetesStore::from_url(url).map_err(ConnectError)?))
        }
        #[cfg(feature = "redis")]
        scheme if tenure_redis::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_redis::RedisStore::from_url(url).map_err(ConnectError)?))
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let options = tenure_sqlite::SqliteOptions::from_url(url).map_err(ConnectError)?;
            Ok(Box::new(tenure_sqlite::SqliteStore::new(options)))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Box::new(tenure_postgres::PostgresStore::at(url).map_err(ConnectError)?)),
        // A word before a colon that does not look like a scheme may be part of a password.
        _ if url.strip_prefix(scheme).is_some_and(|rest| rest == ":" || rest.starts_with("://")) => {
            Err(ConnectError::unknown(scheme))
        }
        _ => Err(ConnectError::unknown("")),
    }
}

/// The stores that [`connect`] knows in this build, by the scheme of their simplest URL.
pub fn schemes() -> &'static [&'static str] {
    &[
        #[cfg(feature = "sqlite")]
        "sqlite",
        #[cfg(feature = "etcd")]
        "etcd",
        #[cfg(feature = "redis")]
        "redis",
        #[cfg(feature = "postgres")]
        "postgres",
        #[cfg(feature = "consul")]
        "consul",
        #[cfg(feature = "kubernetes")]
        "kubernetes",
        "memory",
    ]
}

/// A URL for each store, and each mode of one, that [`connect`] knows in this build.
pub fn examples() -> &'static [&'static str] {
    &[
        #[cfg(feature = "sqlite")]
        "sqlite:",
        #[cfg(feature = "etcd")]
        "etcd://localhost",
        #[cfg(feature = "redis")]
        "redis://localhost",
        #[cfg(feature = "postgres")]
        "postgres://localhost/postgres",
        #[cfg(feature = "postgres")]
        "postgres://localhost/postgres?mode=session",
        #[cfg(feature = "consul")]
        "consul://localhost:8500",
        #[cfg(feature = "kubernetes")]
        "kubernetes://default",
        "memory:",
    ]
}

fn memory(url: &str) -> Result<Box<dyn DynStore>, ConnectError> {
    let kind = match url.split_once('?').map(|(_, query)| query) {
        None | Some("kind=clock") => LifeKind::Clock,
        Some("kind=observe") => LifeKind::Observe,
        Some("kind=session") => LifeKind::Session,
        Some("kind=lock") => LifeKind::Lock,
        Some(_) => return Err(ConnectError("memory: takes ?kind=clock, observe, session or lock".to_owned())),
    };
    Ok(Box::new(Memory::of_kind(kind, crate::Clock::system()).store()))
}

/// How the schemes of each store begin, built in or not, and the feature that it is.
const STORES: &[(&str, &str)] = &[
    ("consul", "consul"),
    ("etcd", "etcd"),
    ("kubernetes", "kubernetes"),
    ("postgres", "postgres"),
    ("redis", "redis"),
    ("sqlite", "sqlite"),
    ("valkey", "redis"),
];

/// Why a URL was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError(String);

impl ConnectError {
    fn unknown(scheme: &str) -> Self {
        let known = schemes().join(", ");
        if scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
            let like = examples()[0];
            Self(format!("that is not the URL of a store: write it like {like} (known here: {known})"))
        } else {
            match STORES.iter().find(|(begins, _)| scheme.starts_with(begins)) {
                Some((_, store)) => Self(format!(
                    "this program was built without {store}: build it with the feature {store:?} (known here: {known})"
                )),
                None => Self(format!("unknown store {scheme:?}: known here are {known}")),
            }
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_can_be_connected_to() {
        for url in examples() {
            assert!(connect(url).is_ok(), "{url}");
        }
        for scheme in schemes() {
            assert!(examples().iter().any(|url| url.starts_with(scheme)), "{scheme}");
        }
    }

    #[test]
    fn a_store_that_was_left_out_is_told_apart_from_one_that_is_unknown() {
        for (scheme, store) in
            [("etcds", "etcd"), ("redis+unix", "redis"), ("valkeys", "redis"), ("postgresql", "postgres")]
        {
            let told = ConnectError::unknown(scheme).to_string();
            assert!(told.contains(&format!("build it with the feature {store:?}")), "{told}");
        }
        assert!(ConnectError::unknown("zookeeper").to_string().contains("unknown store \"zookeeper\""));
        for scheme in schemes().iter().filter(|scheme| **scheme != "memory") {
            assert!(STORES.iter().any(|(begins, store)| begins == scheme && store == scheme), "{scheme}");
        }
    }

    #[test]
    fn a_memory_of_every_kind_can_be_had_by_url() {
        for (url, kind) in [
            ("memory:", LifeKind::Clock),
            ("memory:?kind=observe", LifeKind::Observe),
            ("memory:?kind=session", LifeKind::Session),
            ("memory:?kind=lock", LifeKind::Lock),
        ] {
            assert_eq!(connect(url).unwrap().promises().life, kind, "{url}");
        }
    }

    #[test]
    #[cfg(feature = "consul")]
    fn consul_can_be_had_by_url_and_its_token_is_never_shown() {
        for url in ["consul://:hunter2@h:1/p", "consuls://h", "consul+unix:///s", "consul://a,b:1?takeover=safe"] {
            assert_eq!(connect(url).unwrap().promises().life, LifeKind::Session, "{url}");
        }
        for url in ["consul://:hunter2@h?colour=hunter2", "consul://:x?hunter2@h", "consul://:hunter2@h:hunter2"] {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn etcd_can_be_had_by_url_and_its_password_is_never_shown() {
        for url in ["etcd://u:pw@h1:2379,h2/prefix", "etcds://h?ca=/etc/ca.pem", "etcd:"] {
            assert_eq!(connect(url).unwrap().promises().store, "etcd", "{url}");
        }
        for url in ["etcd://u:hunter2@h?colour=hunter2", "etcd://u:hunter2@h:hunter2", "etcd://u:x?hunter2@h/y"] {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[cfg(feature = "kubernetes")]
    #[test]
    fn a_cluster_can_be_had_by_url() {
        for url in ["kubernetes:", "kubernetes://jobs", "k8s://jobs?context=production"] {
            assert_eq!(connect(url).unwrap().promises().store, "kubernetes", "{url}");
        }
        let error = connect("kubernetes://u:hunter2@host").err().expect("no cluster is in the URL").to_string();
        assert!(error.contains("kubeconfig") && !error.contains("hunter2"), "{error}");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_database_in_both_modes_can_be_had_by_url() {
        let life = |url| connect(url).unwrap().promises().life;
        assert_eq!(life("postgres://app:hunter2@db/app"), LifeKind::Clock);
        assert_eq!(life("postgresql://app@db/app?mode=session&lock_id=1337"), LifeKind::Session);
        for url in [
            "postgres://app:hunter2@db/app?mode=hunter2",
            "postgres://app:hunter2@db:hunter2/app",
            "postgres://app:x@hunter2@db/app",
        ] {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    #[cfg(feature = "redis")]
    fn redis_can_be_had_by_url_and_its_password_is_never_shown() {
        for url in ["redis://u:pw@h:1/2", "rediss://h", "redis+unix:///s", "redis+sentinel://h/m", "redis+cluster://h"]
        {
            assert_eq!(connect(url).unwrap().promises().store, "redis", "{url}");
        }
        let error = connect("redis://u:x?hunter2@h/0").err().expect("half a password").to_string();
        assert!(error.contains("%3F") && !error.contains("hunter2"), "{error}");
        let error = connect("redis://u:hunter2@h?colour=hunter2").err().expect("an unknown option").to_string();
        assert!(error.contains("colour") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn what_is_no_store_is_refused_without_showing_a_password() {
        for url in ["", "hunter2", "hunter2:x@host", "nosuch://user:hunter2@host", "://hunter2", "memory:?kind=hunter2"]
        {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("known here") || error.contains("kind="), "{error}");
        }
    }
}
