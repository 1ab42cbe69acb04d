//! The ways to reach a server: sockets, clients, options, Sentinels and clusters, with passwords and over TLS.

mod support;

use std::path::Path;
use std::time::Duration;

use support::{open, record, seat, told, within, works};
use tenure_core::{Fault, SeatStore, SingleSeat};
use tenure_redis::{RedisOptions, RedisStore};
use tenure_testkit::servers::{Certificates, Folder, Launch, Process, RedisSetup, free_port};

#[tokio::test]
async fn a_store_opens_from_a_socket_a_client_or_options() {
    let folder = Folder::new("socket");
    let path = folder.path().join("redis.sock").display().to_string();
    let redis = RedisSetup::redis().with(["--unixsocket", &path]).start();
    works(&format!("redis+unix://{path}")).await;
    let client = redis::Client::open(redis.url()).unwrap();
    assert!(SingleSeat::new(RedisStore::from_client(&client)).read(&seat()).await.unwrap().seat.is_some());
    let options = RedisOptions { hosts: vec![redis.address()], ..RedisOptions::default() };
    assert!(SingleSeat::new(RedisStore::new(options).unwrap()).read(&seat()).await.unwrap().seat.is_some());

    let elsewhere = RedisOptions { prefix: "elsewhere".into(), min_replicas: 1, ..RedisOptions::default() };
    let elsewhere = SingleSeat::new(RedisStore::with_client(&client, elsewhere).unwrap());
    assert_eq!(elsewhere.read(&seat()).await.unwrap().seat, None);
    let alone = elsewhere.swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(alone.fault(), Fault::Unknown, "{}", told(&alone));
    let braces = RedisOptions { prefix: "{}".into(), ..RedisOptions::default() };
    assert!(RedisStore::with_client(&client, braces).unwrap_err().to_string().contains("braces"));
}

#[tokio::test]
async fn sentinels_can_have_a_separate_password() {
    let redis = RedisSetup::redis().with(["--requirepass", "right"]).start();
    let folder = Folder::new("sentinel");
    let port = free_port();
    let settings = format!("port {port}\nrequirepass watch\n");
    let _sentinel = sentinel(folder.path(), &settings, redis.port(), "sentinel auth-pass main right");
    let url = |login: &str, query: &str| format!("redis+sentinel://{login}127.0.0.1:{port}/main{query}");
    works(&url(":right@", "?sentinel_password=watch")).await;
    for (url, expected) in [
        (url(":right@", ""), "requires a password"),
        (url(":right@", "?sentinel_password=hunter2"), "rejected the user or the password"),
        (url("", "?sentinel_password=watch"), "requires a password"),
        (url(":hunter2@", "?sentinel_password=watch"), "rejected the user or the password"),
    ] {
        let error = open(&url).read(&seat()).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
        assert!(error.to_string().contains(expected) && !told(&error).contains("hunter2"), "{}", told(&error));
    }
}

#[tokio::test]
async fn sentinels_and_clusters_work_over_tls_with_a_client_certificate() {
    let folder = Folder::new("tls");
    let certificates = Certificates::make(folder.path());
    let [cert, key, ca] =
        [&certificates.cert, &certificates.key, &certificates.ca].map(|path| path.display().to_string());
    let tls = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let query = format!("?ca={ca}&cert={cert}&key={key}");

    let (tls_port, sentinel_port) = (free_port(), free_port());
    let _redis = RedisSetup::redis().with(["--tls-port", &tls_port.to_string()]).with(tls).start();
    let settings = format!(
        "port 0\ntls-port {sentinel_port}\ntls-replication yes\n\
         tls-cert-file {cert}\ntls-key-file {key}\ntls-ca-cert-file {ca}\n"
    );
    let _sentinel = sentinel(folder.path(), &settings, tls_port, "");
    works(&format!("rediss+sentinel://127.0.0.1:{sentinel_port}/main{query}")).await;

    let tls_port = free_port().to_string();
    let cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-port", &tls_port];
    let node = RedisSetup::redis().with(cluster).with(tls).start();
    assert_eq!(node.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).text(), "OK");
    while node.ask(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    works(&format!("rediss+cluster://127.0.0.1:{tls_port}{query}")).await;
    // Without a client certificate, the server rejects the connection.
    let error = open(&format!("rediss+cluster://127.0.0.1:{tls_port}?ca={ca}"));
    let error = within("the read is answered", error.read(&seat())).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
    assert!(error.to_string().contains("?cert=FILE&key=FILE"), "{}", told(&error));
}

// -------------------------------------------------------------------------------------------------

/// Starts a Sentinel that monitors one server under the name `main`.
fn sentinel(folder: &Path, settings: &str, server: u16, more: &str) -> Process {
    let config = folder.join("sentinel.conf");
    let watch = format!("sentinel monitor main 127.0.0.1 {server} 1\n{more}\n");
    std::fs::write(&config, format!("{settings}bind 127.0.0.1\ndir {}\n{watch}", folder.display())).unwrap();
    let launch = Launch::new("redis-server", "redis").arg(&config).arg("--sentinel");
    let mut process = Process::spawn(launch, &folder.join("log"));
    let log = folder.join("log");
    process.wait_until("the Sentinel monitors the server", || {
        std::fs::read_to_string(&log).is_ok_and(|said| said.contains("+monitor master main"))
    });
    process
}
