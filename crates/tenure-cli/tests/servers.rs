//! All commands over real servers: Redis, and PostgreSQL and MySQL in both of their modes.

#![cfg(all(target_os = "linux", feature = "redis", feature = "postgres"))]

mod common;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Output;
use std::time::Duration;

use common::all_commands::{LEASE, all_commands_work_over};
use common::{World, children, is_alive, pid, send, stand, text};
use rustix::process::Signal;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{PgBouncer, Postgres, PostgresSetup, Redis, RedisSetup, free_port};

#[test]
fn all_commands_work_over_redis() {
    let redis = Redis::start();
    all_commands_work_over(&redis.url());
}

#[test]
fn all_commands_work_over_postgres_in_both_modes() {
    let server = Postgres::start();
    all_commands_work_over(&format!("{}?schema=leases", server.url()));
    all_commands_work_over(&format!("{}?schema=sessions&mode=session", server.url()));
}

#[cfg(feature = "mysql")]
#[test]
fn all_commands_work_over_mysql_in_both_modes() {
    let server = tenure_testkit::servers::Mysql::start();
    // At the same time, as the test mostly waits.
    std::thread::scope(|scope| {
        for mode in ["lease", "session"] {
            let url = format!("{}?table_prefix={mode}_&mode={mode}", server.url());
            scope.spawn(move || all_commands_work_over(&url));
        }
    });
}

/// A command of many processes, each in a session of its own, that all hold the lock of the probe.
const CROWD: &str = "exec 9>> probe; flock -n 9 || echo overlap >> log
    i=0; while [ $i -lt 100 ]; do setsid sleep 1000 & i=$((i + 1)); done
    echo start $TENURE_TERM $$ $TENURE_CANDIDATE >> log; exec sleep 1000";

#[test]
fn when_tenure_is_killed_its_session_ends_only_after_all_processes_of_its_command() {
    let server = Postgres::start();
    sessions_outlive_commands(&server.url());
}

#[cfg(feature = "mysql")]
#[test]
fn when_tenure_is_killed_its_mysql_session_ends_only_after_all_processes_of_its_command() {
    let server = tenure_testkit::servers::Mysql::start();
    sessions_outlive_commands(&server.url());
}

fn sessions_outlive_commands(url: &str) {
    // Set `TENURE_TEST_KILLS=200` for more rounds.
    let rounds = std::env::var("TENURE_TEST_KILLS").map_or(3, |rounds| rounds.parse().unwrap());
    let world = World::on(&format!("{url}?mode=session")).without_cgroup();
    let run = || world.run(&LEASE, CROWD);
    let mut leader = run();
    world.start_number(1);
    for round in 1..=rounds {
        let lines = || world.lines("errors").iter().filter(|line| line.contains("waiting for")).count();
        let before = lines();
        let follower = run();
        world.eventually("the follower to wait", || lines() > before);
        leader.signal(Signal::KILL);
        world.start_number(round + 1);
        leader = follower;
    }
}

#[test]
fn a_problem_with_a_redis_server_is_one_line_that_says_what_to_do() {
    let redis = Redis::start();
    let locked = RedisSetup::redis().with(["--requirepass", "right"]).start();
    let replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &redis.port().to_string()]).start();
    let another = other_protocol();
    let url = |address: &str| format!("redis://jobs:hunter2@{address}");
    redis.ask(&["SET", "theirs:{jobs}:seat", "mine", "NX"]);
    redis.ask(&["HSET", "newer:{jobs}:seat", "nonce", "1", "record", r#"{"v":99}"#]);
    for (url, expected) in [
        (url(&locked.address()), "rejected the user or the password"),
        (format!("redis://{}", locked.address()), "requires a password"),
        (format!("{}/99", redis.url()), "no such database"),
        (format!("redis://:hunter2@127.0.0.1:{}", free_port()), "connection refused"),
        (format!("redis://:hunter2@{another}"), "does not speak the Redis protocol"),
        (format!("rediss://:hunter2@{}", redis.address()), "it serves the Redis protocol without TLS; use redis://"),
        (replica.url(), "name the master"),
        (format!("{}?prefix=theirs", redis.url()), "another library's lock"),
        (format!("{}?prefix=newer", redis.url()), "upgrade this program"),
    ] {
        every_command_reports(&url, expected);
    }
}

#[test]
fn a_problem_with_a_database_is_one_line_that_says_what_to_do() {
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
    for (url, expected) in [
        (at("keyed:hunter2", "postgres"), "password authentication failed for user \"keyed\""),
        (at("keyed", "postgres"), "a password is required"),
        (at("postgres:hunter2", "nowhere"), "database \"nowhere\" does not exist"),
        (format!("postgres://postgres:hunter2@127.0.0.1:{}/postgres", free_port()), "connection refused"),
        (format!("postgres://postgres:hunter2@{another}/postgres"), "does not speak the PostgreSQL protocol"),
        (at("postgres:hunter2", "postgres?sslmode=require"), "turn on ssl on the server, or use sslmode=prefer"),
        (at("postgres", "postgres?schema=theirs"), "was not created by Tenure"),
        (standby.url(), "name the primary"),
        (format!("{}?mode=session", pooler.url()), "use mode=lease"),
        (newer, "upgrade this program"),
    ] {
        every_command_reports(&url, expected);
    }
}

#[test]
fn a_role_that_cannot_create_tables_can_look_and_is_told_how_to_create_them() {
    let server = Postgres::start();
    server.sql("CREATE ROLE humble LOGIN");
    let world = World::on(&format!("postgres://humble:hunter2@{}/postgres", server.address()));
    let listed = world.output(&["status"]);
    assert_eq!((listed.status.code(), text(&listed.stdout).as_str()), (Some(0), "no elections\n"));
    assert_eq!(text(&listed.stderr), format!("tenure: store: postgres://humble:***@{}/postgres\n", server.address()));
    let vacant = world.output(&["status", "jobs"]);
    assert_eq!((vacant.status.code(), text(&vacant.stdout).as_str()), (Some(1), "vacant: no candidate has led yet\n"));
    assert_eq!(world.output(&["candidates", "jobs"]).status.code(), Some(1));
    let expected = "CREATE SCHEMA IF NOT EXISTS \"tenure\"";
    for command in [&["step-down", "jobs"][..], &["run", "jobs", "--", "true"]] {
        assert_refused(&world.output(command), expected);
    }
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'tenure'"), "0");
}

/// Checks that every command reports this error. Commands that only read exit with it. `tenure run` exits with it if
/// the error is permanent. Otherwise it prints the error once, however often it retries.
fn every_command_reports(url: &str, expected: &str) {
    let world = World::on(url);
    for command in [&["status", "jobs"][..], &["candidates", "jobs"], &["watch", "jobs"], &["step-down", "jobs"]] {
        assert_refused(&world.output(command), expected);
    }
    let mut standing = world.run(&LEASE, "echo led >> log");
    world.eventually(expected, || world.lines("errors").iter().any(|line| line.contains(expected)));
    // Long enough for several retries.
    std::thread::sleep(Duration::from_secs(1));
    let _ = rustix::process::kill_process(standing.pid(), Signal::TERM);
    standing.wait(&world);
    let errors = world.lines("errors");
    assert_eq!(errors.iter().filter(|line| line.contains(expected)).count(), 1, "{errors:#?}");
    assert!(!errors.iter().any(|line| line.contains("hunter2") || line.contains("panicked")), "{errors:#?}");
    assert!(world.log().is_empty(), "the command ran");
}

#[test]
fn a_server_that_does_not_respond_is_reported_once_and_so_is_its_recovery() {
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
        assert_refused(&world.output(&["status", "jobs"]), "answer");
        // Long enough for a busy machine to answer each call in time, once the server does.
        let standing = stand(&world, "alice", &["--lease", "9s"]);
        let count = |words: &str| world.lines("errors").iter().filter(|line| line.contains(words)).count();
        world.eventually("the error to be printed", || count("store error") > 0);
        std::thread::sleep(Duration::from_secs(2));
        proxy.pass();
        world.start_number(1);
        // The command starts first: it does not wait for messages. The one about the term comes after all others.
        world.eventually("the messages to be printed", || count("leading jobs") > 0);
        let errors = world.lines("errors");
        assert_eq!((count("store error"), count("the store is available again")), (1, 1), "{errors:#?}");
        assert!(!errors.iter().any(|line| line.contains("hunter2")), "{errors:#?}");
        drop(standing);
    }
}

// -------------------------------------------------------------------------------------------------

#[test]
fn a_signal_ends_the_last_look_at_a_server_that_does_not_respond() {
    let mut redis = Redis::start();
    let world = World::on(&redis.url());
    redis.pause();
    let mut tenure = world.run(&["--wait", "1ms"], "true");
    // The guard needs more than that time to prepare the command.
    let guard = tenure.guard(&world);
    world.eventually("the shim", || !children(guard).is_empty());
    tenure.signal(Signal::TERM);
    assert_eq!(tenure.code(&world), 143);
}

#[test]
fn when_a_leader_is_cut_off_a_command_works_until_its_deadline_unless_it_handles_sigterm() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let beat = "while sleep 0.01; do echo beat >> log; done";
    let is_asked = |script: &str| {
        let world = World::on(&format!("redis://{}", proxy.address()));
        let _tenure = world.run(&["--lease", "6s"], script);
        world.log_of(1);
        proxy.black_hole(Way::Up);
        let losing = || world.lines("errors").iter().any(|line| line.contains("losing jobs"));
        world.eventually("the term to end", losing);
        let beats = world.log().len();
        let asked = || world.log().iter().any(|line| line == "asked");
        world.eventually("the command to go on", || asked() || world.log().len() > beats + 3);
        proxy.pass();
        asked()
    };
    assert!(!is_asked(beat));
    // Also if one of its descendants handles it, and not the command itself.
    assert!(is_asked(&format!("trap 'echo asked >> log' TERM; {beat}")));
    assert!(is_asked(&format!("sh -c \"trap 'echo asked >> log' TERM; {beat}\" & wait")));
}

#[test]
fn a_hook_for_the_end_under_a_second_guard_ends_when_the_seat_is_lost() {
    let redis = Redis::start();
    let world = World::on(&redis.url());
    // Its deadline is minutes away.
    let on_stop = "echo stop $$ >> log; exec sleep 1000";
    let options = ["--lease", "3m", "--renew-every", "500ms", "--retry-every", "500ms", "--on-stop", on_stop];
    let tenure = world.run(&options, "echo start >> log; exec sleep 1000");
    world.log_of(1);
    send(tenure.guard(&world), Signal::KILL);
    let hook = pid(&world.log_of(2)[1], 1);
    redis.ask(&["DEL", "tenure:{jobs}:seat"]);
    world.eventually("the hook to be killed", || !is_alive(hook));
    world.eventually("the loss to be reported", || {
        world.lines("errors").iter().any(|line| line.contains("the seat vanished"))
    });
}

fn assert_refused(output: &Output, expected: &str) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("tenure: ") && error.lines().count() == 1, "{error}");
    assert!(error.contains(expected) && !error.contains("hunter2"), "{expected:?} is not in {error}");
}

/// Starts a server that speaks neither protocol, and returns its address.
fn other_protocol() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            // Keeps the connection open until the client closes it.
            let _ = stream.read(&mut [0; 100]);
        }
    });
    address
}
