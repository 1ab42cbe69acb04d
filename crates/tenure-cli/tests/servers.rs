//! The command over real servers: Redis, and PostgreSQL in both of its modes.

#![cfg(all(target_os = "linux", feature = "redis", feature = "postgres"))]

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use common::everything::{LEASE, everything_can_be_done_over};
use common::{World, stand, text};
use rustix::process::Signal;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{PgBouncer, Postgres, PostgresSetup, Redis, RedisSetup, free_port};

#[test]
fn everything_can_be_done_over_redis() {
    let redis = Redis::start();
    everything_can_be_done_over(&redis.url());
}

#[test]
fn everything_can_be_done_over_a_database_in_both_modes() {
    let server = Postgres::start();
    everything_can_be_done_over(&format!("{}?schema=leases", server.url()));
    everything_can_be_done_over(&format!("{}?schema=sessions&mode=session", server.url()));
}

/// Has many processes to kill, each in a session of its own, and all of them hold the lock of the probe.
const CROWD: &str = "exec 9>> probe; flock -n 9 || echo overlap >> log
    i=0; while [ $i -lt 100 ]; do setsid sleep 1000 & i=$((i + 1)); done
    echo start $TENURE_TERM $$ $TENURE_CANDIDATE >> log; exec sleep 1000";

#[test]
fn when_tenure_is_killed_its_session_ends_only_after_all_of_its_command() {
    // More rounds on request: `TENURE_TEST_KILLS=200`.
    let rounds = std::env::var("TENURE_TEST_KILLS").map_or(3, |rounds| rounds.parse().unwrap());
    let server = Postgres::start();
    let world = World::on(&format!("{}?mode=session", server.url())).without_cgroup();
    let run = || world.run(&LEASE, CROWD);
    let mut leader = run();
    world.start_number(1);
    for round in 1..=rounds {
        let lines = || world.lines("errors").iter().filter(|line| line.contains("waits for")).count();
        let before = lines();
        let follower = run();
        world.eventually("the follower to wait", || lines() > before);
        leader.signal(Signal::KILL);
        world.start_number(round + 1);
        leader = follower;
    }
}

#[test]
fn what_is_wrong_with_a_redis_server_is_one_line_that_says_what_to_do() {
    let redis = Redis::start();
    let locked = RedisSetup::redis().with(["--requirepass", "right"]).start();
    let replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &redis.port().to_string()]).start();
    let another = other_protocol();
    let url = |address: &str| format!("redis://jobs:hunter2@{address}");
    redis.ask(&["SET", "theirs:{jobs}:seat", "mine", "NX"]);
    redis.ask(&["HSET", "newer:{jobs}:seat", "nonce", "1", "record", r#"{"v":99}"#]);
    for (url, says) in [
        (url(&locked.address()), "knows no such user and password"),
        (format!("redis://{}", locked.address()), "wants a password"),
        (format!("{}/99", redis.url()), "no such database"),
        (format!("redis://:hunter2@127.0.0.1:{}", free_port()), "nothing listens at"),
        (format!("redis://:hunter2@{another}"), "does not speak Redis' protocol"),
        (format!("rediss://:hunter2@{}", redis.address()), "it serves Redis' protocol without: redis://"),
        (replica.url(), "name the master"),
        (format!("{}?prefix=theirs", redis.url()), "another library's lock"),
        (format!("{}?prefix=newer", redis.url()), "upgrade this program"),
    ] {
        is_told_by_every_command(&url, says);
    }
}

#[test]
fn what_is_wrong_with_a_database_is_one_line_that_says_what_to_do() {
    let access = "host all keyed 127.0.0.1/32 scram-sha-256\nhost all,replication all 127.0.0.1/32 trust";
    let server = PostgresSetup::new().access(access).start();
    server.sql("CREATE ROLE keyed LOGIN PASSWORD 'right'; CREATE ROLE humble LOGIN");
    let standby = PostgresSetup::new().standby_of(&server).start();
    let pooler = PgBouncer::before(&server);
    let another = other_protocol();
    let newer = format!("{}?schema=newer", server.url());
    assert!(World::on(&newer).output(&["run", "-q", "jobs", "--", "true"]).status.success());
    server.sql(r#"UPDATE newer.seats SET record = '{"v":99}'"#);
    server.sql("CREATE SCHEMA theirs; CREATE TABLE theirs.seats (number int)");
    let at = |login: &str, rest: &str| format!("postgres://{login}@{}/{rest}", server.address());
    for (url, says) in [
        (at("keyed:hunter2", "postgres"), "password authentication failed for user \"keyed\""),
        (at("keyed", "postgres"), "wants a password, and none was given"),
        (at("postgres:hunter2", "nowhere"), "database \"nowhere\" does not exist"),
        (format!("postgres://postgres:hunter2@127.0.0.1:{}/postgres", free_port()), "no server listens at"),
        (format!("postgres://postgres:hunter2@{another}/postgres"), "does not speak PostgreSQL's protocol"),
        (at("postgres:hunter2", "postgres?sslmode=require"), "turn on ssl there, or use sslmode=prefer"),
        (at("humble", "postgres"), "CREATE SCHEMA IF NOT EXISTS \"tenure\""),
        (at("postgres", "postgres?schema=theirs"), "not of Tenure's making"),
        (standby.url(), "name the primary"),
        (format!("{}?mode=session", pooler.url()), "use mode=lease"),
        (newer, "upgrade this program"),
    ] {
        is_told_by_every_command(&url, says);
    }
}

/// The commands that look end with it; one that stands does, too, if it never will work, or else tells it
/// once, however often it tries.
fn is_told_by_every_command(url: &str, says: &str) {
    let world = World::on(url);
    for command in [&["status", "jobs"][..], &["candidates", "jobs"], &["watch", "jobs"], &["step-down", "jobs"]] {
        is_refused(&world.output(command), says);
    }
    let mut standing = world.run(&LEASE, "echo led >> log");
    world.eventually(says, || world.lines("errors").iter().any(|line| line.contains(says)));
    // Several attempts later, if it goes on trying.
    std::thread::sleep(Duration::from_secs(1));
    let _ = rustix::process::kill_process(standing.pid(), Signal::TERM);
    standing.wait(&world);
    let errors = world.lines("errors");
    assert_eq!(errors.iter().filter(|line| line.contains(says)).count(), 1, "{errors:#?}");
    assert!(!errors.iter().any(|line| line.contains("hunter2") || line.contains("panicked")), "{errors:#?}");
    assert!(world.log().is_empty(), "it led");
}

#[test]
fn a_server_that_does_not_answer_is_given_up_in_time_and_told_once_and_so_is_that_it_answers_again() {
    let redis = Redis::start();
    let server = Postgres::start();
    for (address, url) in [
        (redis.address(), "redis://:hunter2@{}"),
        (server.address(), "postgres://postgres:hunter2@{}/postgres"),
        (server.address(), "postgres://postgres:hunter2@{}/postgres?mode=session&schema=sessions"),
    ] {
        let proxy = Proxy::start(address);
        proxy.black_hole(Way::Down);
        let world = World::on(&url.replace("{}", &proxy.address().to_string()));
        is_refused(&world.output(&["status", "jobs"]), "answer");
        let standing = stand(&world, "alice", &LEASE);
        let told = |says: &str| world.lines("errors").iter().filter(|line| line.contains(says)).count();
        world.eventually("that it is told", || told("the store fails") > 0);
        std::thread::sleep(Duration::from_secs(2));
        proxy.pass();
        world.start_number(1);
        let errors = world.lines("errors");
        assert_eq!((told("the store fails"), told("the store works again")), (1, 1), "{errors:#?}");
        assert!(!errors.iter().any(|line| line.contains("hunter2")), "{errors:#?}");
        drop(standing);
    }
}

// -------------------------------------------------------------------------------------------------

fn is_refused(output: &Output, says: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("tenure: ") && said.lines().count() == 1, "{said}");
    assert!(said.contains(says) && !said.contains("hunter2"), "{says:?} is not in {said}");
}

/// Where somebody listens who speaks neither.
fn other_protocol() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            // Until the other end hangs up.
            let _ = stream.read(&mut [0; 100]);
        }
    });
    address
}
