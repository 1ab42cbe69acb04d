//! The test servers themselves: they start, stop, restart, and leave nothing behind.

use std::time::Duration;

use tenure_testkit::servers::{
    Azurite, Consul, ConsulCluster, ConsulSetup, Etcd, EtcdSetup, Launch, Memcached, PgBouncer, Postgres, Process,
    Redis, RedisCluster, RedisSentinel, RedisSetup, Reply, S3,
};

#[test]
fn a_server_is_paused_killed_and_restarted_on_its_port() {
    let mut redis = Redis::start();
    assert_eq!(redis.ask(&["SET", "a", "1"]).text(), "OK");
    redis.pause();
    redis.resume();
    assert_eq!(redis.ask(&["GET", "a"]).text(), "1");
    redis.kill();
    assert!(redis.try_ask(&["PING"]).is_err());
    redis.restart();
    assert_eq!(redis.ask(&["GET", "a"]), Reply::Nil, "the server lost its data");
    assert_eq!(redis.calls("get"), 1);
}

#[test]
fn a_durable_server_keeps_its_data() {
    let mut redis = RedisSetup::redis().durable().start();
    assert_eq!(redis.ask(&["SET", "a", "1"]).text(), "OK");
    redis.kill();
    redis.restart();
    assert_eq!(redis.ask(&["GET", "a"]).text(), "1");
}

#[test]
fn valkey_starts() {
    let valkey = RedisSetup::valkey().start();
    assert_eq!(valkey.info("server", "server_name"), "valkey");
}

#[test]
fn sentinels_replace_a_killed_master() {
    let mut trio = RedisSentinel::start();
    assert_eq!(trio.master(), Some(0));
    trio.servers[0].kill();
    let began = std::time::Instant::now();
    while trio.master() != Some(1) {
        assert!(began.elapsed() < Duration::from_secs(60), "no failover");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_cluster_answers_for_every_slot() {
    let cluster = RedisCluster::start();
    let moved = cluster.nodes.iter().filter(|node| node.ask(&["GET", "a"]).text().starts_with("MOVED")).count();
    assert_eq!(moved, 2, "one of the three nodes has the key");
}

#[test]
fn a_cache_is_paused_killed_and_restarted_without_its_data() {
    let mut server = Memcached::start();
    assert_eq!(server.ask("ms a 1\r\n1"), "HD");
    server.pause();
    server.resume();
    assert_eq!((server.ask("mg a v"), server.stat("curr_items")), ("VA 1".to_owned(), 1));
    server.kill();
    server.restart();
    assert_eq!(server.ask("mg a v"), "EN", "the server lost its data");
}

#[test]
fn a_bucket_keeps_its_objects_over_a_restart_unless_it_is_emptied() {
    let mut server = S3::start();
    assert_eq!(server.ask("PUT", "/jobs/a", "1").0, 200);
    server.pause();
    server.resume();
    server.restart();
    assert_eq!(server.ask("GET", "/jobs/a", ""), (200, "1".to_owned()), "the server kept its objects");
    server.restart_empty();
    assert_eq!(server.ask("GET", "/jobs/a", "").0, 404, "the server lost its objects");
}

#[test]
fn a_container_keeps_its_blobs_and_leases_over_a_restart_unless_it_is_emptied() {
    let mut server = Azurite::start();
    assert_eq!(server.ask("PUT", "/jobs?restype=container", &[], "").0, 201);
    assert_eq!(server.ask("PUT", "/jobs/a", &[("x-ms-blob-type", "BlockBlob")], "content").0, 201);
    assert_eq!(server.lease("a", "acquire", &[("x-ms-lease-duration", "60")]), 201);
    server.pause();
    server.resume();
    server.restart();
    assert_eq!(server.lease("a", "acquire", &[("x-ms-lease-duration", "60")]), 409, "the server kept the lease");
    assert!(server.ask("GET", "/jobs/a", &[], "").1.ends_with("content"), "the server kept its blobs");
    server.restart_empty();
    assert_eq!(server.ask("GET", "/jobs/a", &[], "").0, 404, "the server lost its blobs");
}

#[test]
fn a_database_is_paused_killed_restarted_and_emptied_on_its_port() {
    let mut server = Postgres::start();
    let mut pooler = PgBouncer::before(&server);
    server.sql("CREATE TABLE a AS SELECT 1");
    server.pause();
    server.resume();
    server.kill();
    assert!(server.try_sql("SELECT 1").is_err());
    server.restart();
    assert_eq!(server.sql("SELECT * FROM a"), "1", "the server kept its data");
    server.restart_empty();
    assert_eq!(server.sql("SELECT to_regclass('a') IS NULL"), "t", "the server lost its data");
    pooler.restart();
}

#[test]
fn a_consul_server_keeps_its_data_over_a_restart_only_if_it_is_durable() {
    for (mut consul, keeps) in [(Consul::start(), false), (ConsulSetup::new().durable().start(), true)] {
        assert_eq!(consul.ask("PUT", "/v1/kv/a", "1").0, 200);
        assert_eq!(consul.count("PUT", "/v1/kv/_"), 1);
        consul.kill();
        assert!(consul.try_ask("GET", "/v1/kv/a", "").is_err());
        consul.restart();
        assert_eq!(consul.ask("GET", "/v1/kv/a?raw", "").1 == "1", keeps);
    }
}

#[test]
fn a_consul_cluster_elects_another_leader_when_its_leader_is_killed() {
    let mut cluster = ConsulCluster::start();
    let first = cluster.leader();
    cluster.servers[first].kill();
    let began = std::time::Instant::now();
    while cluster.leader() == first {
        assert!(began.elapsed() < Duration::from_secs(60), "no other member leads");
        std::thread::sleep(Duration::from_millis(20));
    }
    cluster.servers[first].restart();
}

#[test]
fn an_etcd_cluster_of_three_works_without_its_leader() {
    let mut etcd = EtcdSetup::new().members(3).start();
    etcd.ctl(&["put", "a", "1"]);
    let leader = etcd.leader().expect("one leads");
    etcd.members[leader].process.kill();
    let began = std::time::Instant::now();
    while etcd.leader().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "no other member leads");
        std::thread::sleep(Duration::from_millis(20));
    }
    let metric = |etcd: &Etcd| etcd.metric("grpc_server_started_total{grpc_method=\"Range\"");
    let without_a_member = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| metric(&etcd)));
    assert!(without_a_member.is_err(), "a metric lacks a member that does not respond");
    etcd.members[leader].restart();
    assert_eq!(etcd.ctl(&["get", "--print-value-only", "a"]), "1");
    assert!(metric(&etcd) >= 1.0);
}

#[test]
fn a_dropped_server_leaves_nothing_behind() {
    let redis = Redis::start();
    let (folder, id) = (redis.folder().to_owned(), redis.process.id());
    drop(redis);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[test]
fn a_server_ends_when_the_process_that_started_it_is_killed() {
    // The processes of the database are paused at that moment, and must be resumed to notice.
    for what in ["redis", "postgres"] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env("TENURE_TEST_CHILD", what)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let line = lines.find_map(|line| line.unwrap().split_once("server ").map(|(_, rest)| rest.to_owned())).unwrap();
        let (ids, folder) = line.split_once(" in ").unwrap();
        let runs = || ids.split(' ').any(|id| std::fs::read_link(format!("/proc/{id}/exe")).is_ok());
        assert!(runs());
        child.kill().unwrap();
        child.wait().unwrap();
        let began = std::time::Instant::now();
        while runs() {
            assert!(began.elapsed() < Duration::from_secs(30), "{what} outlived its test");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The next server removes the files and the shared memory that it has left.
        sweep();
        assert!(!std::path::Path::new(folder).exists(), "{what}");
    }
}

#[test]
fn child() {
    match std::env::var("TENURE_TEST_CHILD").as_deref() {
        Ok("redis") => {
            let redis = Redis::start();
            println!("server {} in {}", redis.process.id(), redis.folder().display());
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("postgres") => {
            let mut server = Postgres::start();
            let id = server.process.id();
            let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
            server.pause();
            println!("server {id} {} in {}", children.trim(), server.folder().display());
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("sweep") => drop(tenure_testkit::servers::Folder::new("sweep")),
        _ => {}
    }
}

/// Removes what killed tests have left, as the start of the first server in a process does.
fn sweep() {
    let swept = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact"])
        .env("TENURE_TEST_CHILD", "sweep")
        .output()
        .unwrap();
    assert!(swept.status.success());
}

#[test]
fn a_missing_server_is_reported_with_the_command_that_installs_it() {
    let log = std::env::temp_dir().join("never-written");
    let spawn = || Process::spawn(Launch::new("no-such-server", "redis"), &log);
    let error = *std::panic::catch_unwind(spawn).unwrap_err().downcast::<String>().unwrap();
    assert_eq!(error, "no-such-server is not installed; run scripts/servers redis");
}
