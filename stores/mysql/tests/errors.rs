//! Errors of servers, log-ins and tables: each is one clear line, and none shows a password.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, Weak};

use common::{held, runtime, seats_at, stand, within};
use tenure_core::{Board, Fault, SeatName, SeatStore, SingleSeat, StoreError, Swap};
use tenure_mysql::{MysqlOptions, MysqlStore, grants_sql, lock_name_of, schema_sql};
use tenure_testkit::OverlapDetector;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Mysql, MysqlSetup, free_port};

#[test]
fn a_wrong_password_is_reported_and_not_shown() {
    let server = server();
    server.sql("CREATE OR REPLACE USER keyed IDENTIFIED BY 'right'; GRANT ALL ON app.* TO keyed");
    let url = |password: &str| format!("mysql://keyed{password}@{}/app", server.address());
    for wrong in [":hunter2", ""] {
        let error = read_error(&url(wrong), Fault::Denied);
        assert!(error.contains("Access denied for user 'keyed'"), "{error}");
        assert!(error.contains("(error 1045); check user and password") && !error.contains("hunter2"), "{error}");
    }
    works(&url(":right"));
}

#[test]
fn an_unknown_database_is_reported() {
    let server = server();
    let error = read_error(&format!("mysql://root@{}/nowhere", server.address()), Fault::Denied);
    assert!(error.contains("Unknown database 'nowhere' (error 1049); create the database"), "{error}");
}

#[test]
fn an_unreachable_host_is_reported_within_the_time_out() {
    let port = free_port();
    let error = read_error(&format!("mysql://root@127.0.0.1:{port}/app"), Fault::Refused);
    let refused = format!("cannot connect to 127.0.0.1:{port}: connection refused; check host and port");
    assert!(error.starts_with(&refused), "{error}");
    let error = read_error("mysql://root@no-such-host.invalid/app", Fault::Refused);
    assert!(error.contains("cannot connect to no-such-host.invalid:3306; check the host"), "{error}");
    let server = server();
    let proxy = Proxy::start(server.address());
    proxy.black_hole(Way::Down);
    let error = read_error(&format!("mysql://root@{}/app?connect_timeout=1", proxy.address()), Fault::Unknown);
    assert!(error.contains("does not answer; check the network"), "{error}");
}

#[test]
fn a_server_of_another_protocol_is_reported() {
    // The first bytes are a length: the second server never sends as much.
    for (greeting, fault, message) in [
        ("SSH-2.0-OpenSSH_9.2p1\r\n", Fault::Denied, "does not speak the MySQL protocol"),
        (
            "220 mail.example ESMTP\r\n",
            Fault::Unknown,
            "does not answer; check the network, and that it is a MySQL server",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let _ = stream.write_all(greeting.as_bytes());
            // Waits until the client closes the connection.
            let _ = stream.read(&mut [0; 64]);
        });
        let error = read_error(&format!("mysql://a@{address}/b?connect_timeout=1"), fault);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn connections_are_encrypted_as_ssl_mode_says() {
    let server = MysqlSetup::new().encrypts().start();
    server.sql("CREATE USER encrypted REQUIRE SSL; GRANT ALL ON app.* TO encrypted");
    let at = |host: &str, mode: &str| format!("mysql://encrypted@{host}:{}/app?ssl-mode={mode}", server.port());
    let error = read_error(&at("127.0.0.1", "disabled"), Fault::Denied);
    assert!(error.contains("Access denied"), "{error}");
    works(&at("127.0.0.1", "preferred"));
    works(&at("127.0.0.1", "REQUIRED"));
    let root = server.folder().join("server.crt");
    let trusted = |host, mode| format!("{}&ssl-ca={}", at(host, mode), root.display());
    works(&trusted("localhost", "verify_identity"));
    for wrong in [trusted("127.0.0.1", "verify_identity"), at("localhost", "verify_identity")] {
        let error = read_error(&wrong, Fault::Denied);
        assert!(error.contains("cannot establish TLS") && error.contains("(ssl-mode=verify_identity)"), "{error}");
    }
    // A host without TLS does not turn TLS off for the next host, which requires it.
    let replica = MysqlSetup::new().with("read-only=ON").start();
    runtime().block_on(async {
        let both = format!("mysql://encrypted@{},{}/app", replica.address(), server.address());
        replica.sql("CREATE USER encrypted; GRANT ALL ON app.* TO encrypted");
        let store = seats_at(&both);
        for _ in 0..2 {
            store.read(&seat("x")).await.unwrap();
            server
                .sql("SELECT CONCAT('KILL ', id) FROM information_schema.PROCESSLIST WHERE user = 'encrypted'")
                .lines()
                .for_each(|kill| drop(server.try_sql(kill)));
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    });
    let plain = self::server();
    let error = read_error(&format!("{}?ssl-mode=required", plain.url()), Fault::Denied);
    assert!(error.contains("does not support TLS, but ssl-mode=required requires it"), "{error}");
}

#[test]
fn a_user_without_the_right_to_create_tables_gets_the_sql() {
    let server = server();
    server.sql(
        "CREATE OR REPLACE TABLE other (id INT); CREATE OR REPLACE USER small; GRANT SELECT ON app.other TO small",
    );
    let url = format!("mysql://small@{}/app?table_prefix=small_", server.address());
    let error = read_error(&url, Fault::Denied);
    assert!(error.contains("tables are missing in database app and this user cannot create them"), "{error}");
    assert!(error.contains("CREATE TABLE IF NOT EXISTS `small_seats`"), "{error}");
    assert!(error.contains("GRANT SELECT, INSERT, UPDATE, DELETE ON `app`.`small_notes` TO 'small'@'%';"), "{error}");
    // The least rights are enough, in both modes.
    server.sql(&format!("{}{}", schema_sql("small_"), grants_sql("app", "small_", "'small'@'%'")));
    works(&url);
    works(&format!("{url}&mode=session"));
}

#[test]
fn a_missing_table_of_notes_that_the_user_cannot_create_costs_no_term() {
    let server = server();
    server.sql(&format!(
        "{}CREATE OR REPLACE USER few; {}",
        schema_sql("few_"),
        grants_sql("app", "few_", "'few'@'%'")
    ));
    for mode in common::MODES {
        let url = format!("mysql://few@{}/app{mode}&table_prefix=few_", server.address());
        runtime().block_on(async {
            let detector = OverlapDetector::new();
            let leader = stand(&url, "jobs", &detector);
            let term = leader.term().await;
            server.sql("DROP TABLE few_notes");
            let (store, board) = (seats_at(&url), Board::Candidates(seat("jobs")));
            let error = store.notes().unwrap().list_one(&board).await.unwrap_err().to_string();
            assert!(error.contains("tenure schema mysql"), "{error}");
            // By then the process of the leader has announced itself, which fails.
            let renewals = leader.counter.counts().renewals;
            within("the leader renews", leader.counter.wait_for(|counts| counts.renewals >= renewals + 6)).await;
            assert!(term.is_current(), "{mode}: the term has ended");
            // Another process can stand, too.
            stand(&url, "others", &OverlapDetector::new()).elected().await;
            server.sql(&format!("{}{}", schema_sql("few_"), grants_sql("app", "few_", "'few'@'%'")));
            store.notes().unwrap().list_one(&board).await.unwrap();
        });
    }
}

#[test]
fn a_user_that_only_reads_can_look_but_not_stand() {
    let server = server();
    server.sql(&format!("{}CREATE OR REPLACE USER looker", schema_sql("look_")));
    for table in ["seats", "floors", "notes"] {
        server.sql(&format!("GRANT SELECT ON app.look_{table} TO looker"));
    }
    for mode in common::MODES {
        let url = format!("mysql://looker@{}/app{mode}&table_prefix=look_", server.address());
        runtime().block_on(async {
            let store = SingleSeat::new(MysqlStore::from_url(&url).unwrap().read_only());
            let reading = store.read(&seat("x")).await.unwrap();
            assert!(reading.seat.is_none() && store.list_seats().await.unwrap().is_empty());
            for store in [store, seats_at(&url)] {
                let error = store.swap(&seat("x"), None, &held(reading.floor.get() + 1, 1)).await.unwrap_err();
                assert_ne!(error.fault(), Fault::Unknown, "{error}");
            }
        });
    }
    let nothing = MysqlStore::from_url(&format!("{}?table_prefix=none_", server.url())).unwrap().read_only();
    runtime().block_on(async {
        let store = SingleSeat::new(nothing);
        assert!(store.read(&seat("x")).await.unwrap().seat.is_none() && store.list_seats().await.unwrap().is_empty());
    });
    assert_eq!(server.sql("SHOW TABLES LIKE 'none%'"), "", "a read-only store created tables");
}

#[test]
fn tables_of_another_program_or_of_a_newer_version_are_refused() {
    let server = server();
    server.sql("CREATE TABLE IF NOT EXISTS foreign_seats (id INT)");
    let error = read_error(&format!("{}?table_prefix=foreign_", server.url()), Fault::Denied);
    assert!(error.contains("the table foreign_seats was not created by Tenure"), "{error}");
    // A table that only lacks a column of this store, and the other tables.
    let without = |prefix: &str, column: &str| {
        let sql = schema_sql(prefix);
        sql.lines().filter(|line| !line.trim_start().starts_with(column)).collect::<Vec<_>>().join("\n")
    };
    server.sql(&without("lockless_", "lock_name"));
    server.sql(&format!("CREATE TABLE floors_floors (id INT); {}", schema_sql("floors_")));
    server.sql(&format!("CREATE TABLE notes_notes (seat INT, kind INT); {}", schema_sql("notes_")));
    for table in ["lockless_seats", "floors_floors", "notes_notes"] {
        let prefix = &table[..=table.find('_').unwrap()];
        let error = read_error(&format!("{}?table_prefix={prefix}", server.url()), Fault::Denied);
        assert!(error.contains(&format!("the table {table} was not created by Tenure")), "{error}");
    }
    server.sql(&schema_sql("newer_").replace("version 1'", "version 99'"));
    let error = read_error(&format!("{}?table_prefix=newer_", server.url()), Fault::Denied);
    assert!(error.contains("newer version of Tenure (version 99, supported up to 1)"), "{error}");
}

#[test]
fn an_old_server_is_refused() {
    for (version, is_old) in [("10.5.9-MariaDB", true), ("5.5.5-10.5.9-MariaDB", true), ("5.7.44", true)] {
        let server = MysqlSetup::new().with(format!("version={version}")).start();
        let error = read_error(&server.url(), Fault::Denied);
        assert!(is_old && error.contains(&format!("has version {version}")), "{error}");
        assert!(error.contains("needs MySQL 8.0 or MariaDB 10.6; upgrade the server"), "{error}");
    }
}

#[test]
fn a_replica_is_refused() {
    let [other, server] =
        ["innodb-read-only=ON", "read-only=ON"].map(|setting| MysqlSetup::new().with(setting).start());
    for url in [&other, &server].into_iter().flat_map(|server| common::MODES.map(|mode| server.url() + mode)) {
        let error = read_error(&url, Fault::Denied);
        assert!(error.contains("is read-only (read_only or innodb_read_only), as a replica is"), "{error}");
    }
    let others = format!("mysql://root@{},{}/app", server.address(), server.address());
    let error = read_error(&others, Fault::Refused);
    assert!(error.contains("no other host accepts writes; check that one of the hosts is the primary"), "{error}");
}

#[test]
fn a_proxy_is_refused_in_session_mode_and_works_in_lease_mode() {
    let server = server();
    let proxy = proxy_with_ids_of_its_own(server.address());
    works(&format!("mysql://root@{proxy}/app"));
    let error = read_error(&format!("mysql://root@{proxy}/app?mode=session"), Fault::Denied);
    assert!(error.contains("mode=session does not work through a proxy"), "{error}");
    works(&format!("{}?mode=session", server.url()));
}

#[test]
fn a_galera_cluster_is_refused_in_session_mode() {
    // A node without a provider is alone, but has the variables of a cluster.
    let server = MysqlSetup::new().with("wsrep-on=ON").with("binlog-format=ROW").start();
    let error = read_error(&format!("{}?mode=session", server.url()), Fault::Denied);
    assert!(error.contains("mode=session does not work with a Galera cluster (wsrep_on=ON)"), "{error}");
    works(&server.url());
}

#[test]
fn a_server_that_does_not_wait_for_its_disk_works_with_a_warning() {
    for settings in [&["innodb-flush-log-at-trx-commit=2"][..], &["log-bin", "sync-binlog=0"]] {
        let server = settings.iter().fold(MysqlSetup::new(), |setup, setting| setup.with(*setting)).start();
        let lines = tenure_testkit::Lines::default();
        tracing::subscriber::with_default(lines.clone(), || works(&server.url()));
        let logged = lines.with("WARN");
        assert_eq!(logged.len(), 1, "{settings:?}: {logged:?}");
        assert!(logged[0].contains("set innodb_flush_log_at_trx_commit=1 and sync_binlog=1"), "{logged:?}");
    }
}

#[test]
fn names_that_differ_only_in_case_or_by_a_space_are_two_seats_with_two_locks() {
    let names =
        ["jobs", "Jobs", "jobs ", &"j".repeat(100), &"J".repeat(100)].map(|name| lock_name_of("app", "t_", name));
    for (place, name) in names.iter().enumerate() {
        assert!(name.len() <= 64 && !names[..place].contains(name), "{name}");
    }
    assert_ne!(lock_name_of("a", "t_", "x"), lock_name_of("b", "t_", "x"));
}

#[test]
fn invalid_options_are_reported_without_the_password() {
    for (url, why) in [
        ("mysql://u:hunter2@h", "no database is given"),
        ("mysql://u:hunter2@h/db?mode=fast", "mode must be lease or session"),
        ("mysql://u:hunter2@h/db?ssl-mode=maybe", "ssl-mode must be disabled, preferred"),
        ("mysql://u:hunter2@h/db?ssl-cert=/a", "ssl-cert and ssl-key must be given together"),
        ("mysql://u:hunter2@h/db?colour=green", "the options are mode, table_prefix"),
        ("mysql://u:hunter2@h/db?table_prefx=x", "did you mean table_prefix?"),
        ("mysql://u:hunter2@h/db?table_prefix=a`b", "table_prefix must have 1 to 32 characters"),
        ("mysql://u:hunter2@h:port/db", "port"),
        ("postgres://u:hunter2@h/db", "begins with one of mysql://"),
    ] {
        let error = MysqlOptions::from_url(url).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("hunter2") && !error.contains('\n'), "{url}: {error}");
    }
    let long = format!("mysql://h/{}", "d".repeat(65));
    assert!(MysqlOptions::from_url(&long).unwrap_err().to_string().contains("at most 64 characters"));
}

// -------------------------------------------------------------------------------------------------

/// Reads a seat at this URL, which must fail in this way. Returns the message, with its causes.
#[track_caller]
fn read_error(url: &str, fault: Fault) -> String {
    let error: StoreError = runtime().block_on(async { seats_at(url).read(&seat("x")).await.expect_err(url) });
    let message = error.to_string();
    assert_eq!(error.fault(), fault, "{message}");
    assert!(!message.contains('\n'), "{message}");
    message
}

/// Takes a seat at this URL and releases it.
#[track_caller]
fn works(url: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, seat) = (seats_at(url), seat(&format!("{:016x}", rand::random::<u64>())));
        let floor = store.read(&seat).await.unwrap_or_else(|error| panic!("{url}: {error}")).floor;
        let swap = store.swap(&seat, None, &held(floor.get() + 1, 1)).await;
        assert!(matches!(swap, Ok(Swap::Done { .. })), "{url}: {swap:?}");
    });
}

/// Starts a proxy that announces connection ids of its own, as poolers do. Returns its address. It ends with the test.
fn proxy_with_ids_of_its_own(server: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let mut greeting = [0; 512];
            let length = server.read(&mut greeting).unwrap();
            // The id follows the text of the version, which ends with a zero.
            let id = 5 + greeting[5..].iter().position(|byte| *byte == 0).unwrap() + 1;
            greeting[id + 2] ^= 1;
            client.write_all(&greeting[..length]).unwrap();
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    address
}

fn seat(name: &str) -> SeatName {
    SeatName::new(name).unwrap()
}

/// Returns the server that tests of this file share while they run.
fn server() -> Arc<Mysql> {
    static SERVER: Mutex<Weak<Mysql>> = Mutex::new(Weak::new());
    let mut server = SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    server.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Mysql::start());
        *server = Arc::downgrade(&started);
        started
    })
}
