//! Errors of servers, log-ins and keys: each is one clear line, and nothing is changed.

mod support;

use std::io::{Read, Write};
use std::time::Duration;

use support::{open, record, seat, stand, told, within, works};
use tenure_core::{Board, Clock, DynNotes, EventKind, Fault, SeatName, SeatStore, Swap, Token};
use tenure_redis::RedisStore;
use tenure_testkit::OverlapDetector;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{
    Certificates, Folder, Launch, Process, Redis, RedisCluster, RedisSentinel, RedisSetup, Reply, free_port,
};

#[tokio::test]
async fn a_wrong_password_or_user_is_reported_and_not_shown() {
    let redis = RedisSetup::redis().with(["--requirepass", "right"]).start();
    for login in [":hunter2", "nobody:hunter2"] {
        let error = read_error(&format!("redis://{login}@{}", redis.address()), Fault::Denied).await;
        assert!(error.contains("rejected the user or the password (WRONGPASS)"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let error = read_error(&redis.url(), Fault::Denied).await;
    assert!(error.contains("requires a password"), "{error}");
    works(&format!("redis://:right@{}", redis.address())).await;
}

#[tokio::test]
async fn an_unreachable_server_is_reported() {
    let error = read_error(&format!("redis://127.0.0.1:{}", free_port()), Fault::Refused).await;
    assert!(error.contains("cannot connect to 127.0.0.1:") && error.contains(": connection refused;"), "{error}");
    let error = read_error("redis://no-such-host.invalid", Fault::Refused).await;
    assert!(error.contains("cannot connect to no-such-host.invalid:6379; check the host"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_is_reported_once_and_in_time() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    proxy.black_hole(Way::Up);
    let began = Clock::system().now();
    let mut one =
        stand(&format!("redis://{}", proxy.address()), "one", Duration::from_secs(3), &OverlapDetector::new());
    let (fault, error) = one.fails().await;
    assert_eq!(fault, Fault::Unknown, "{error}");
    assert!(Clock::system().now().since(began) < Duration::from_secs(30));
    within("the candidate tries again", one.counter.wait_for(|counts| counts.reads >= 4)).await;
    proxy.pass();
    one.recovers_without_another_word().await;
    one.leads().await;
}

#[tokio::test]
async fn a_server_of_another_protocol_is_reported() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = read_error(&format!("redis://{address}"), Fault::Denied).await;
    assert!(error.contains("does not speak the Redis protocol"), "{error}");
}

#[tokio::test]
async fn tls_works_and_a_mismatch_between_client_and_server_is_reported() {
    let (redis, port, certificates, _folder) = with_tls();
    let ca = certificates.ca.display();
    works(&format!("rediss://localhost:{port}?ca={ca}")).await;
    let error = read_error(&format!("rediss://localhost:{port}"), Fault::Denied).await;
    assert!(error.contains("cannot establish TLS with localhost") && error.contains("?ca=FILE"), "{error}");
    let error = read_error(&format!("rediss://{}?ca={ca}", redis.address()), Fault::Denied).await;
    assert!(error.contains("it serves the Redis protocol without TLS; use redis://"), "{error}");
    let error = read_error(&format!("redis://localhost:{port}"), Fault::Refused).await;
    assert!(error.contains("requires TLS (rediss://)"), "{error}");
    let missing = RedisStore::from_url(&format!("rediss://localhost:{port}?ca=/no/such/file")).unwrap_err().to_string();
    assert!(missing.contains("/no/such/file"), "{missing}");
    // A file with a key where a certificate is expected.
    let key = certificates.key.display();
    for parameters in [format!("ca={key}"), format!("ca={ca}&cert={key}&key={key}")] {
        let empty = RedisStore::from_url(&format!("rediss://localhost:{port}?{parameters}")).unwrap_err().to_string();
        assert!(empty.contains(&format!("{key} has no certificate in it")), "{parameters}: {empty}");
    }
}

#[tokio::test]
async fn a_key_of_another_library_is_reported_and_not_changed() {
    let redis = Redis::start();
    redis.ask(&["SET", "tenure:{jobs}:seat", "mine", "NX", "PX", "60000"]);
    let error = read_error(&redis.url(), Fault::Denied).await;
    assert!(
        error.contains("a key") && error.contains("another library's lock") && error.contains("?prefix="),
        "{error}"
    );
    let swap = open(&redis.url()).swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(swap.fault(), Fault::Denied, "{}", told(&swap));
    assert_eq!(redis.ask(&["GET", "tenure:{jobs}:seat"]).text(), "mine");
    works(&format!("{}?prefix=other", redis.url())).await;

    redis.ask(&["DEL", "tenure:{jobs}:seat"]);
    redis.ask(&["HSET", "tenure:{jobs}:seat", "owner", "me"]);
    assert!(read_error(&redis.url(), Fault::Denied).await.contains("did not write"));
}

#[tokio::test]
async fn a_record_that_is_foreign_or_newer_is_reported_and_not_changed() {
    let redis = Redis::start();
    works(&redis.url()).await;
    let ours = redis.ask(&["HGET", "tenure:{jobs}:seat", "record"]).text().to_owned();
    let newer = ours.replace("\"v\":1", "\"v\":99");
    for (text, expected) in [("\"mine\"", "did not write"), (newer.as_str(), "newer")] {
        redis.ask(&["HSET", "tenure:{jobs}:seat", "record", text]);
        let error = read_error(&redis.url(), Fault::Denied).await;
        assert!(error.contains(expected), "{error}");
        assert_eq!(redis.ask(&["HGET", "tenure:{jobs}:seat", "record"]).text(), text);
    }
}

#[tokio::test]
async fn a_replica_is_rejected_and_a_server_that_becomes_one_is_reconnected() {
    let master = Redis::start();
    let port = master.port().to_string();
    let replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
    let error = read_error(&replica.url(), Fault::Refused).await;
    assert!(error.contains("is a replica and does not accept writes (READONLY); name the master"), "{error}");

    let other = Redis::start();
    let store = open(&other.url());
    assert!(matches!(store.swap(&seat(), None, &record(1)).await, Ok(Swap::Done { .. })));
    let held = store.read(&seat()).await.unwrap().seat.unwrap().version;
    // Of a master that does not run: a copy of another master's data would lack the seat, and the renewal would be lost.
    other.ask(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    let error = store.renew(&seat(), &held, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Refused, "{}", told(&error));
    other.ask(&["REPLICAOF", "NO", "ONE"]);
    assert!(store.read(&seat()).await.is_ok(), "the store did not reconnect");
}

#[tokio::test]
async fn a_server_without_memory_refuses_and_nothing_is_written() {
    let redis = Redis::start();
    let store = open(&redis.url());
    store.read(&seat()).await.unwrap();
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Refused, "{}", told(&error));
    assert!(error.to_string().contains("no memory left (OOM)"), "{error}");
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(matches!(store.swap(&seat(), None, &record(1)).await, Ok(Swap::Done { .. })));
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_writes() {
    let redis = RedisSetup::redis().with(["--enable-debug-command", "yes"]).start();
    let store = open(&redis.url());
    store.read(&seat()).await.unwrap();
    // A folder takes the place of its dump, so a save fails, and the server refuses writes from then on.
    std::fs::create_dir(redis.folder().join("dump.rdb")).unwrap();
    redis.ask(&["CONFIG", "SET", "save", "3600 1"]);
    redis.ask(&["BGSAVE"]);
    while redis.info("persistence", "rdb_last_bgsave_status") != "err" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = store.swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Refused, "{}", told(&error));
    assert!(error.to_string().contains("MISCONF"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_loading_its_data_is_reported_and_then_used() {
    let mut redis = Redis::start();
    works(&redis.url()).await;
    for n in 0..100 {
        redis.ask(&["SET", &format!("key-{n}"), &"value".repeat(1000)]);
    }
    redis.ask(&["SAVE"]);
    redis.kill();
    // Loads so slowly that the store connects meanwhile.
    let mut slow = Launch::new("redis-server", "redis").args(["--port", &redis.port().to_string()]);
    slow = slow.args(["--bind", "127.0.0.1", "--key-load-delay", "20000", "--rdbcompression", "no"]);
    slow = slow.args(["--loading-process-events-interval-bytes", "1024", "--dir"]);
    let _server = Process::spawn(slow.arg(redis.folder()), &redis.folder().join("slow"));
    let store = open(&redis.url());
    let error = within("the server is loading", async {
        loop {
            match store.read(&seat()).await {
                Err(error) if error.to_string().contains("loading") => return error,
                Err(error) => assert_eq!(error.fault(), Fault::Refused, "{}", told(&error)),
                Ok(_) => panic!("the server finished loading before the store connected"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!(error.fault(), Fault::Refused, "{}", told(&error));
    within("the server has loaded its data", async {
        while store.read(&seat()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_missing_database_is_reported_and_databases_are_separate() {
    let redis = Redis::start();
    let error = read_error(&format!("{}/99", redis.url()), Fault::Denied).await;
    assert!(error.contains("no such database"), "{error}");
    works(&format!("{}/2", redis.url())).await;
    assert_eq!(open(&redis.url()).read(&seat()).await.unwrap().seat, None);
    assert!(open(&format!("{}/2", redis.url())).read(&seat()).await.unwrap().seat.is_some());
}

#[tokio::test]
async fn a_server_of_the_wrong_kind_is_reported() {
    let cluster = RedisCluster::start();
    let errors = [
        read_error(&cluster.nodes[0].url(), Fault::Denied).await,
        read_error(&cluster.nodes[1].url(), Fault::Denied).await,
    ];
    assert!(errors.iter().all(|error| error.contains("redis+cluster://")), "{errors:?}");
    let redis = Redis::start();
    let error = read_error(&format!("redis+cluster://{}", redis.address()), Fault::Denied).await;
    assert!(error.contains("is not part of a cluster; use redis://"), "{error}");
    let error = read_error(&format!("redis+sentinel://{}/main", redis.address()), Fault::Denied).await;
    assert!(error.contains("is not a Sentinel; use redis://"), "{error}");
    let trio = RedisSentinel::start();
    let error = read_error(&format!("redis+sentinel://{}/main", trio.sentinels[0].address()), Fault::Denied).await;
    assert!(error.contains("monitors no master named \"main\""), "{error}");
    let error = read_error(&trio.sentinels[0].url(), Fault::Denied).await;
    assert!(error.contains("is a Sentinel"), "{error}");
}

#[tokio::test]
async fn a_server_that_lost_its_scripts_gets_them_again() {
    let redis = Redis::start();
    let store = open(&redis.url());
    assert!(matches!(store.swap(&seat(), None, &record(1)).await, Ok(Swap::Done { .. })));
    redis.ask(&["SCRIPT", "FLUSH"]);
    let held = store.read(&seat()).await.unwrap().seat.unwrap().version;
    redis.ask(&["SCRIPT", "FLUSH"]);
    assert!(matches!(store.swap(&seat(), Some(&held), &record(2)).await, Ok(Swap::Done { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_in_the_readme_are_sufficient() {
    let rights = include_str!("../README.md").lines().find_map(|line| line.strip_prefix("ACL SETUSER jobs ")).unwrap();
    let redis = Redis::start();
    let command: Vec<_> = ["ACL", "SETUSER", "jobs"].into_iter().chain(rights.split(' ')).collect();
    assert_eq!(redis.ask(&command).text(), "OK");
    let url = format!("redis://jobs:secret@{}", redis.address());
    let detector = OverlapDetector::new();
    let lease = Duration::from_secs(3);
    let mut one = stand(&url, "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&url, "other", lease, &detector);
    other
        .event("the follower knows the leader", |event| {
            matches!(event, EventKind::LeaderChanged { leader: Some(_), .. }).then_some(())
        })
        .await;
    within("the request is written", other.election.request_step_down()).await.unwrap();
    assert!(other.leads().await > first);
    let store = RedisStore::from_url(&url).unwrap();
    let notes: &dyn DynNotes = &store;
    // A seat without candidates, as a leader would remove the requests that it has read.
    let unled = SeatName::new("unled").unwrap();
    for board in [Board::Processes, Board::Candidates(unled.clone()), Board::Requests(unled)] {
        for key in ["gone", "removed", "there"] {
            let lifetime = if key == "gone" { Duration::from_millis(1) } else { lease * 10 };
            notes.put_one(&board, key, "{}", lifetime).await.unwrap();
        }
        notes.remove_one(&board, "removed").await.unwrap();
        let listed = notes.list_one(&board).await.unwrap();
        assert!(listed.iter().any(|listed| listed.key == "there"), "{listed:?}");
    }
    assert_eq!(tenure_core::Store::list_seats(&store).await.unwrap(), [seat()]);
    tenure_core::Store::forget(&store, &seat()).await.unwrap();
    assert_eq!(redis.ask(&["ACL", "LOG"]), Reply::List(Vec::new()), "the server denied a command");
}

#[tokio::test]
async fn the_rights_to_look_in_the_readme_are_sufficient() {
    let line = |line: &'static str| line.strip_prefix("ACL SETUSER looker ");
    let rights = include_str!("../README.md").lines().find_map(line).unwrap();
    let redis = Redis::start();
    let command: Vec<_> = ["ACL", "SETUSER", "looker"].into_iter().chain(rights.split(' ')).collect();
    assert_eq!(redis.ask(&command).text(), "OK");
    let looker = open(&format!("redis://looker:secret@{}", redis.address()));
    assert_eq!(looker.list_seats().await.unwrap(), []);
    assert!(matches!(open(&redis.url()).swap(&seat(), None, &record(1)).await, Ok(Swap::Done { .. })));
    assert_eq!(looker.list_seats().await.unwrap(), [seat()]);
    let held = looker.read(&seat()).await.unwrap().seat.unwrap();
    let notes = looker.notes().unwrap();
    assert_eq!(notes.list_one(&Board::Candidates(seat())).await.unwrap(), []);
    for error in [
        looker.swap(&seat(), Some(&held.version), &record(2)).await.unwrap_err(),
        looker.forget(&seat()).await.unwrap_err(),
        notes.put_one(&Board::Candidates(seat()), "k", "{}", Duration::from_secs(1)).await.unwrap_err(),
    ] {
        assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
    }
    assert_eq!(looker.read(&seat()).await.unwrap().seat.unwrap().record.token, Token::new(1));
}

#[tokio::test]
async fn a_list_goes_through_all_keys_and_has_those_of_seats_alone() {
    let redis = Redis::start();
    let store = open(&redis.url());
    assert!(matches!(store.swap(&seat(), None, &record(1)).await, Ok(Swap::Done { .. })));
    for number in 0..3000 {
        redis.ask(&["SET", &format!("theirs:{number}"), "x"]);
    }
    // Keys that a pattern could take for those of this prefix.
    for key in ["tenure:{x}:seat:more", "xtenure:{x}:seat", "tenure2:{x}:seat", "tenure:{x}:seats"] {
        redis.ask(&["HSET", key, "nonce", "1"]);
    }
    redis.ask(&["SET", "tenure:{other}:seat", "not a hash"]);
    let mut listed = store.list_seats().await.unwrap();
    listed.sort();
    // The key of another program is listed, so that a look at it reports the problem.
    assert_eq!(listed, [seat(), SeatName::new("other").unwrap()]);
}

#[tokio::test]
async fn a_user_that_cannot_publish_writes_nothing() {
    let redis = Redis::start();
    redis.ask(&["ACL", "SETUSER", "jobs", "on", ">secret", "~tenure:*", "resetchannels", "+@all"]);
    let store = open(&format!("redis://jobs:secret@{}", redis.address()));
    let error = store.swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
    assert_eq!(redis.ask(&["EXISTS", "tenure:{jobs}:seat"]), Reply::Number(0));
}

#[tokio::test]
async fn a_write_with_a_version_of_another_server_process_is_lost() {
    let mut redis = RedisSetup::redis().durable().start();
    let store = open(&redis.url());
    assert_eq!(store.read(&seat()).await.unwrap().seat, None);
    redis.restart();
    let _ = store.read(&SeatName::new("another").unwrap()).await;
    assert_eq!(
        store.swap(&seat(), None, &record(1)).await.unwrap(),
        Swap::Lost,
        "the seat was absent in another process"
    );
    assert_eq!(store.read(&seat()).await.unwrap().seat, None);
    let Swap::Done { version, .. } = store.swap(&seat(), None, &record(1)).await.unwrap() else { panic!("lost") };
    redis.restart();
    let _ = store.read(&SeatName::new("another").unwrap()).await;
    assert_eq!(store.swap(&seat(), Some(&version), &record(2)).await.unwrap(), Swap::Lost);
}

#[tokio::test]
async fn a_forgotten_seat_keeps_its_floor() {
    let redis = Redis::start();
    let store = open(&redis.url());
    let high = Token::MAX.get() - 5;
    assert!(matches!(store.swap(&seat(), None, &record(high)).await, Ok(Swap::Done { .. })));
    store.forget(&seat()).await.unwrap();
    let reading = store.read(&seat()).await.unwrap();
    assert_eq!((reading.seat, reading.floor), (None, Token::new(high)));
    store.forget(&seat()).await.unwrap();
    assert_eq!(store.read(&seat()).await.unwrap().floor, Token::new(high), "the second forget removed the floor");
}

// -------------------------------------------------------------------------------------------------

/// Reads a seat, which must fail, and returns the message of the error.
async fn read_error(url: &str, fault: Fault) -> String {
    let error = within("the read is answered", open(url).read(&seat())).await.expect_err("the read must fail");
    assert_eq!(error.fault(), fault, "{}", told(&error));
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error.to_string()
}

/// Starts a server with a port for TLS besides the one without.
fn with_tls() -> (Redis, u16, Certificates, Folder) {
    let folder = Folder::new("certificates");
    let certificates = Certificates::make(folder.path());
    let [cert, key, ca] =
        [&certificates.cert, &certificates.key, &certificates.ca].map(|path| path.display().to_string());
    let port = free_port();
    let tls = ["--tls-auth-clients", "no", "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let redis = RedisSetup::redis().with(["--tls-port", &port.to_string()]).with(tls).start();
    (redis, port, certificates, folder)
}
