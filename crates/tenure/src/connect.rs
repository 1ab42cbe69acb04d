//! Stores from URLs and settings.

use tenure_core::did_you_mean;
#[cfg(unix)]
use tenure_core::layers::LastWills;
use tenure_core::memory::Memory;

use crate::store::{DynStore, LifeKind};
use crate::{ConfigError, Elections, Error, Settings};

/// Creates a store from its URL.
///
/// Nothing is connected yet: the first election connects, and reports an error of the server then. Each store
/// documents its options, which are query parameters of the URL.
///
/// | URL | store |
/// |---|---|
/// | `sqlite:` | the default file under the user's state folder (feature `sqlite`) |
/// | `sqlite:/path/to/file.db` | this file |
/// | `etcd://host:port,host:port/prefix` | an etcd cluster (feature `etcd`); `etcds://` over TLS |
/// | `redis://host:port/db` | Redis or Valkey (feature `redis`); `rediss://` over TLS, `redis+unix:///path/to/socket` |
/// | `redis+sentinel://host:port,host:port/master` | the master that these Sentinels name |
/// | `redis+cluster://host:port,host:port` | a Redis Cluster |
/// | `kubernetes://NAMESPACE` | Leases of this namespace (feature `kubernetes`); the cluster of the kubeconfig, or the cluster that this process runs in |
/// | `postgres://USER:PASSWORD@HOST/DATABASE` | rows of this database (feature `postgres`); with `?mode=session`, locks of a session |
/// | `mysql://USER:PASSWORD@HOST/DATABASE` | rows of this database (feature `mysql`), MySQL or MariaDB; with `?mode=session`, locks of a session |
/// | `sqlserver://USER:PASSWORD@HOST/DATABASE` | rows of this database (feature `sqlserver`); with `?mode=session`, a session; also as a connection string, `Server=…;Database=…` |
/// | `consul://host:port/prefix` | Consul (feature `consul`); `consuls://` over TLS, `consul+unix:///path/to/socket`, `consul:` as `CONSUL_HTTP_ADDR` says |
/// | `s3://BUCKET/PREFIX?region=…&endpoint=…` | objects of this bucket (feature `object-store`): S3, R2, MinIO and others; `gs://BUCKET/PREFIX` for Google Cloud Storage |
/// | `azblob://ACCOUNT/CONTAINER/PREFIX` | blobs of this container, under leases (feature `azure-blob`); `azblob:///CONTAINER` as `AZURE_STORAGE_CONNECTION_STRING` says |
/// | `memcached://host:port` | memcached, best effort (feature `memcached`); `memcached+unix:///path/to/socket` |
/// | `memory:` or `memory:NAME` | a memory of this process; equal URLs are the same memory; `?kind=observe`, `clock`, `session` or `lock` |
///
/// ```
/// let elections = tenure::Elections::new(tenure::connect("memory:")?);
/// # Ok::<(), tenure::ConfigError>(())
/// ```
///
/// # Errors
/// If the URL is not valid, or if this program was built without the feature of that store. The error shows no more of
/// the URL than its scheme, because the rest can contain a password.
pub fn connect(url: &str) -> Result<Box<dyn DynStore>, ConfigError> {
    open(url, false)
}

/// Creates a store from its URL that only reads: it creates no file, table or key, and needs no right to write.
///
/// For status pages and tools: [`Elections::look`], [`Elections::list`], [`Elections::candidates`] and
/// [`Elections::observe`]. Candidates cannot stand over it. A database or a table that does not exist has no elections.
///
/// ```
/// let elections = tenure::Elections::new(tenure::connect_read_only("memory:")?);
/// # Ok::<(), tenure::ConfigError>(())
/// ```
///
/// # Errors
/// As [`connect`].
pub fn connect_read_only(url: &str) -> Result<Box<dyn DynStore>, ConfigError> {
    open(url, true)
}

/// Creates a store from its URL, whose seats are freed at once when this process dies. `program` is the command
/// `tenure`, by name or by path, which is started as a companion of this process.
///
/// Without it, the seats of a process that crashed or was killed expire with their leases. `docs/last-will.md` says
/// what it promises. In `tenure.toml`, write `last_will = "tenure"`, and use [`from_settings`].
///
/// ```no_run
/// let store = tenure::connect_with_last_will("redis://localhost", "tenure")?;
/// let elections = tenure::Elections::new(store);
/// # Ok::<(), tenure::ConfigError>(())
/// ```
///
/// # Errors
/// As [`connect`], or if the companion cannot be started.
#[cfg(unix)]
pub fn connect_with_last_will(url: &str, program: &str) -> Result<Box<dyn DynStore>, ConfigError> {
    Ok(Box::new(LastWills::start(connect(url)?, url, program)?))
}

/// Creates a store. Only the stores whose first read would create something know whether they are read only.
#[cfg_attr(
    not(any(feature = "consul", feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver")),
    expect(unused_variables, reason = "only these stores use it")
)]
fn open(url: &str, read_only: bool) -> Result<Box<dyn DynStore>, ConfigError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => memory(url),
        #[cfg(feature = "consul")]
        scheme if tenure_consul::SCHEMES.contains(&scheme) => {
            let store = tenure_consul::ConsulStore::from_url(url)?;
            Ok(Box::new(if read_only { store.read_only() } else { store }))
        }
        #[cfg(feature = "etcd")]
        scheme if tenure_etcd::SCHEMES.contains(&scheme) => Ok(Box::new(tenure_etcd::EtcdStore::from_url(url)?)),
        #[cfg(feature = "kubernetes")]
        scheme if tenure_kubernetes::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_kubernetes::KubernetesStore::from_url(url)?))
        }
        #[cfg(feature = "azure-blob")]
        scheme if tenure_azure_blob::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_azure_blob::AzureBlobStore::from_url(url)?))
        }
        #[cfg(feature = "memcached")]
        scheme if tenure_memcached::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_memcached::MemcachedStore::from_url(url)?))
        }
        #[cfg(feature = "object-store")]
        scheme if tenure_object_store::SCHEMES.contains(&scheme) => {
            Ok(Box::new(tenure_object_store::BucketStore::from_url(url)?))
        }
        #[cfg(feature = "mysql")]
        scheme if tenure_mysql::SCHEMES.contains(&scheme) => {
            let store = tenure_mysql::MysqlStore::from_url(url)?;
            Ok(Box::new(if read_only { store.read_only() } else { store }))
        }
        #[cfg(feature = "redis")]
        scheme if tenure_redis::SCHEMES.contains(&scheme) => Ok(Box::new(tenure_redis::RedisStore::from_url(url)?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let store = tenure_sqlite::SqliteStore::new(tenure_sqlite::SqliteOptions::from_url(url)?);
            Ok(Box::new(if read_only { store.read_only() } else { store }))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let store = tenure_postgres::PostgresStore::from_url(url)?;
            Ok(Box::new(if read_only { store.read_only() } else { store }))
        }
        #[cfg(feature = "sqlserver")]
        scheme if tenure_sqlserver::SCHEMES.contains(&scheme) || tenure_sqlserver::is_connection_string(url) => {
            let store = tenure_sqlserver::SqlServerStore::from_url(url)?;
            Ok(Box::new(if read_only { store.read_only() } else { store }))
        }
        // A word before a colon that does not look like a scheme may be part of a password.
        _ if url.strip_prefix(scheme).is_some_and(|rest| rest == ":" || rest.starts_with("://")) => {
            Err(unknown(scheme, schemes()))
        }
        _ => Err(unknown("", schemes())),
    }
}

/// Returns the stores that this program was built with, by the scheme of their simplest URL.
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
        #[cfg(feature = "mysql")]
        "mysql",
        #[cfg(feature = "sqlserver")]
        "sqlserver",
        #[cfg(feature = "consul")]
        "consul",
        #[cfg(feature = "kubernetes")]
        "kubernetes",
        #[cfg(feature = "object-store")]
        "s3",
        #[cfg(feature = "object-store")]
        "gs",
        #[cfg(feature = "azure-blob")]
        "azblob",
        #[cfg(feature = "memcached")]
        "memcached",
        "memory",
    ]
}

/// Returns an example URL for each store, and for each mode of it, that this program was built with.
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
        #[cfg(feature = "mysql")]
        "mysql://localhost/app",
        #[cfg(feature = "mysql")]
        "mysql://localhost/app?mode=session",
        #[cfg(feature = "sqlserver")]
        "sqlserver://localhost/app",
        #[cfg(feature = "sqlserver")]
        "sqlserver://localhost/app?mode=session",
        #[cfg(feature = "consul")]
        "consul://localhost:8500",
        #[cfg(feature = "kubernetes")]
        "kubernetes://default",
        #[cfg(feature = "object-store")]
        "s3://bucket",
        #[cfg(feature = "object-store")]
        "gs://bucket",
        #[cfg(feature = "azure-blob")]
        "azblob://account/container",
        #[cfg(feature = "memcached")]
        "memcached://localhost",
        "memory:",
    ]
}

/// Creates elections over the store that the settings name, with the settings as the options of all elections.
///
/// With [`Settings::load`], operators choose the store and the timing by `tenure.toml` and `TENURE_*` variables.
///
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// # let path = std::env::temp_dir().join(format!("tenure-doc-{}.toml", std::process::id()));
/// # std::fs::write(&path, "store = \"memory:\"\nlease = \"30s\"\n").unwrap();
/// use tenure::Settings;
///
/// let elections = tenure::from_settings(Settings::from_file(&path)?)?; // or Settings::load()
/// let election = elections.election("nightly-jobs").start()?;
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Config`] if the settings name no store, or a URL that [`connect`] refuses.
pub fn from_settings(settings: Settings) -> Result<Elections, Error> {
    let Some(url) = &settings.store else {
        return Err(ConfigError::new(
            "no store is configured; write store = \"…\" in tenure.toml, or set TENURE_STORE",
        )
        .into());
    };
    let store = match &settings.last_will {
        #[cfg(unix)]
        Some(program) => connect_with_last_will(url, program)?,
        #[cfg(not(unix))]
        Some(_) => return Err(ConfigError::new("last_will works only on Linux; leave it out").into()),
        None => connect(url)?,
    };
    Ok(Elections::new(store).with_settings(settings))
}

fn memory(url: &str) -> Result<Box<dyn DynStore>, ConfigError> {
    let rest = url.strip_prefix("memory:").unwrap_or_default();
    let (name, query) = rest.split_once('?').map_or((rest, None), |(name, query)| (name, Some(query)));
    let name = name.strip_prefix("//").unwrap_or(name);
    let kind = match query {
        None | Some("kind=clock") => LifeKind::Clock,
        Some("kind=observe") => LifeKind::Observe,
        Some("kind=session") => LifeKind::Session,
        Some("kind=lock") => LifeKind::Lock,
        Some(_) => return Err(ConfigError::new("memory: takes ?kind=clock, observe, session or lock")),
    };
    Ok(Box::new(Memory::named(name, kind).store()))
}

/// The beginnings of the schemes of all stores, whether built in or not, and the simplest scheme of each. It is also the
/// feature, except for buckets and Azure Blob Storage.
const STORES: &[(&str, &str)] = &[
    ("azblob", "azblob"),
    ("consul", "consul"),
    ("etcd", "etcd"),
    ("gs", "gs"),
    ("k8s", "kubernetes"),
    ("kubernetes", "kubernetes"),
    ("mariadb", "mysql"),
    ("memcached", "memcached"),
    ("mssql", "sqlserver"),
    ("mysql", "mysql"),
    ("postgres", "postgres"),
    ("redis", "redis"),
    ("s3", "s3"),
    ("sqlite", "sqlite"),
    ("sqlserver", "sqlserver"),
    ("valkey", "redis"),
];

/// Returns the error for a scheme that is not one of a store in this program, which has the stores `built_in`.
fn unknown(scheme: &str, built_in: &[&str]) -> ConfigError {
    let known = built_in.join(", ");
    if scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
        let file = built_in.contains(&"sqlite").then_some("sqlite:/path/to/file.db");
        let server = |begins: &str| examples().iter().copied().find(|url| url.starts_with(begins));
        let server = server("redis").or_else(|| server("postgres")).or_else(|| server("etcd"));
        let like: Vec<&str> = file.into_iter().chain(server).collect();
        let like = if like.is_empty() { "memory:".to_owned() } else { like.join(" or ") };
        return format!("this is not the URL of a store; write it like {like} (this program has: {known})").into();
    }
    let store = STORES.iter().find(|(begins, _)| scheme.starts_with(begins)).map(|(_, store)| *store);
    if let Some(store) = store.filter(|store| !built_in.contains(store)) {
        let feature = match store {
            "gs" | "s3" => "object-store",
            "azblob" => "azure-blob",
            other => other,
        };
        return format!(
            "this program was built without {store}; build it with the feature {feature:?} (this program has: {known})"
        )
        .into();
    }
    match store.map_or_else(|| did_you_mean(scheme, built_in), |store| vec![store]).as_slice() {
        [] => format!("unknown store {scheme:?}; use one that this program has: {known}"),
        near => format!("unknown store {scheme:?}; did you mean {}? (this program has: {known})", near.join(" or ")),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_can_be_connected_to() {
        for url in examples() {
            assert!(connect(url).is_ok() && connect_read_only(url).is_ok(), "{url}");
        }
        for scheme in schemes() {
            assert!(examples().iter().any(|url| url.starts_with(scheme)), "{scheme}");
        }
    }

    #[test]
    fn the_error_for_a_store_that_was_not_built_in_names_its_feature() {
        for (scheme, store) in
            [("etcds", "etcd"), ("redis+unix", "redis"), ("valkeys", "redis"), ("postgresql", "postgres")]
        {
            let error = unknown(scheme, &["memory"]).to_string();
            assert!(error.contains(&format!("build it with the feature {store:?}")), "{error}");
        }
        assert!(unknown("zookeeper", schemes()).to_string().contains("unknown store \"zookeeper\""));
        for (scheme, store) in [("sqlite3", "sqlite"), ("rdis", "redis"), ("etdc", "etcd"), ("redis2", "redis")] {
            let error = unknown(scheme, &["sqlite", "etcd", "redis"]).to_string();
            assert!(error.contains(&format!("did you mean {store}?")), "{error}");
        }
        for scheme in schemes().iter().filter(|scheme| **scheme != "memory") {
            assert!(STORES.iter().any(|(begins, store)| begins == scheme && store == scheme), "{scheme}");
        }
    }

    #[test]
    fn the_url_of_a_memory_chooses_its_kind() {
        for (url, kind) in [
            ("memory:", LifeKind::Clock),
            ("memory:?kind=observe", LifeKind::Observe),
            ("memory:?kind=session", LifeKind::Session),
            ("memory:?kind=lock", LifeKind::Lock),
        ] {
            assert_eq!(connect(url).unwrap().promises().life, kind, "{url}");
        }
    }

    #[tokio::test]
    async fn memories_of_one_name_are_one_memory() {
        let elections = |url| Elections::new(connect(url).unwrap());
        let leader = elections("memory:shared").election("jobs").start().unwrap();
        leader.elected().await.unwrap();
        for url in ["memory:shared", "memory://shared", "memory:shared?kind=clock"] {
            assert!(elections(url).look("jobs").await.unwrap().leader.is_some(), "{url}");
        }
        assert!(elections("memory:other").look("jobs").await.unwrap().leader.is_none());
    }

    #[test]
    #[cfg(feature = "consul")]
    fn consul_has_urls_and_errors_never_show_its_token() {
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
    fn etcd_has_urls_and_errors_never_show_its_password() {
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
    fn kubernetes_has_urls_and_errors_never_show_a_password() {
        for url in ["kubernetes:", "kubernetes://jobs", "k8s://jobs?context=production"] {
            assert_eq!(connect(url).unwrap().promises().store, "kubernetes", "{url}");
        }
        let error = connect("kubernetes://u:hunter2@host").err().expect("no cluster is in the URL").to_string();
        assert!(error.contains("kubeconfig") && !error.contains("hunter2"), "{error}");
    }

    #[cfg(feature = "memcached")]
    #[test]
    fn memcached_has_urls_and_errors_never_show_its_password() {
        for url in ["memcached://u:pw@h:1?prefix=p", "memcached+unix:///s", "memcached:"] {
            assert_eq!(connect(url).unwrap().promises().store, "memcached", "{url}");
        }
        for url in ["memcached://u:hunter2@a,b", "memcached://u:hunter2@h?colour=hunter2"] {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[cfg(feature = "azure-blob")]
    #[test]
    fn azure_has_urls_and_errors_never_show_a_secret() {
        for url in [
            "azblob://acc/jobs/p?account_key=aGV5",
            "azblob:///jobs?connection_string=UseDevelopmentStorage%3Dtrue",
            "azblob://acc/jobs?sas_token=sv%3D1%26sig%3Dx",
        ] {
            assert_eq!(connect(url).unwrap().promises().store, "azblob", "{url}");
        }
        for url in [
            "azblob://acc:hunter2@host/jobs",
            "azblob://acc/jobs?account_key=hunter2!",
            "azblob:///jobs?connection_string=AccountName%3Da;hunter2",
            "azblob://acc/jobs?colour=hunter2",
        ] {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = unknown("azblob", &["memory"]).to_string();
        assert!(error.contains("build it with the feature \"azure-blob\""), "{error}");
    }

    #[cfg(feature = "object-store")]
    #[test]
    fn buckets_have_urls_and_errors_never_show_a_secret() {
        for (url, store) in
            [("s3://b/p?region=r&endpoint=http://h:1&access_key_id=a&secret_access_key=s", "s3"), ("gs://b", "gs")]
        {
            assert_eq!(connect(url).unwrap().promises().store, store, "{url}");
        }
        for url in ["s3://k:hunter2@b", "s3://b?secret_access_key=hunter2", "s3://b?colour=hunter2"] {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = unknown("s3", &["memory"]).to_string();
        assert!(error.contains("build it with the feature \"object-store\""), "{error}");
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn mysql_has_urls_of_both_servers_and_errors_never_show_its_password() {
        let life = |url: &str| connect(url).unwrap().promises().life;
        assert_eq!(life("mysql://app:hunter2@db/app"), LifeKind::Clock);
        assert_eq!(life("mariadb://app@one,two:3307/app?mode=session"), LifeKind::Session);
        for url in
            ["mysql://app:hunter2@db/app?mode=hunter2", "mysql://app:hunter2@db:hunter2/app", "mysql://app:hunter2@db"]
        {
            let error = connect(url).err().unwrap().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_has_urls_for_both_modes_and_errors_never_show_its_password() {
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
    fn redis_has_urls_and_errors_never_show_its_password() {
        for url in ["redis://u:pw@h:1/2", "rediss://h", "redis+unix:///s", "redis+sentinel://h/m", "redis+cluster://h"]
        {
            assert_eq!(connect(url).unwrap().promises().store, "redis", "{url}");
        }
        let error = connect("redis://u:x?hunter2@h/0").err().expect("half a password").to_string();
        assert!(error.contains("%3F") && !error.contains("hunter2"), "{error}");
        let error = connect("redis://u:hunter2@h?colour=hunter2").err().expect("an unknown option").to_string();
        assert!(error.contains("colour") && !error.contains("hunter2"), "{error}");
    }

    #[cfg(feature = "sqlserver")]
    #[test]
    fn sql_server_has_urls_and_connection_strings_and_errors_never_show_its_password() {
        let life = |url: &str| connect(url).unwrap().promises().life;
        assert_eq!(life("sqlserver://app:hunter2@db/app"), LifeKind::Clock);
        assert_eq!(life("mssql://app@one,two:1444/app?mode=session"), LifeKind::Session);
        assert_eq!(
            life("Server=tcp:db,1433;Database=app;User Id=app;Password='hun;ter2';Mode=session"),
            LifeKind::Session
        );
        for url in [
            "sqlserver://app:hunter2@db/app?mode=hunter2",
            "sqlserver://app:hunter2@db",
            "Server=db;Database=app;Password=hunter2;Mode=hunter2",
            "Server=db;Database=app;Password='hunter2",
        ] {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    /// The options of a store are those that its own error lists.
    #[test]
    #[cfg(all(feature = "consul", feature = "etcd", feature = "kubernetes", feature = "postgres", feature = "redis"))]
    fn every_option_of_a_url_with_a_letter_left_out_or_swapped_is_recognised() {
        let mut options = 0;
        for url in ["consuls://h", "etcds://h", "kubernetes:", "postgres://h/db", "rediss://h", "redis+sentinel://h/m"]
        {
            let error = |option: &str| connect(&format!("{url}?{option}=1")).err().expect(option).to_string();
            let all = error("qqqqqqqqqqqq");
            let known: Vec<&str> = all.split_once("the options are ").expect("no list").1.split(", ").collect();
            for name in &known {
                for at in 0..name.len() {
                    let mut dropped = (*name).to_owned();
                    dropped.remove(at);
                    let next = name.get(at + 1..).unwrap_or_default();
                    let swapped =
                        next.chars().next().map(|c| format!("{}{c}{}{}", &name[..at], &name[at..=at], &next[1..]));
                    for wrong in [Some(dropped), swapped].into_iter().flatten() {
                        if !wrong.is_empty() && !known.contains(&wrong.as_str()) {
                            let error = error(&wrong);
                            let near = error.split_once("did you mean ").map(|(_, near)| near.trim_end_matches('?'));
                            let named = near.is_some_and(|near| near.split(" or ").any(|near| near == *name));
                            assert!(named, "{url} {wrong}: {error}");
                            options += 1;
                        }
                    }
                }
            }
        }
        assert!(options > 100, "only {options} names were tried");
    }

    #[test]
    fn urls_of_no_store_are_refused_without_showing_a_password() {
        for url in ["", "hunter2", "hunter2:x@host", "nosuch://user:hunter2@host", "://hunter2", "memory:?kind=hunter2"]
        {
            let error = connect(url).err().expect(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("this program has") || error.contains("kind="), "{error}");
        }
    }
}
