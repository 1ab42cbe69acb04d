//! Errors of servers, log-ins and tables: each is one clear line, and none shows a password.

mod common;
mod peer;

use std::io::{Read, Write};
use std::net::TcpListener;

use common::{MODES, bid, described, read_error, runtime, seat, seats_at};
use peer::tokens::{Answer, Failure, row};
use peer::{Peer, Scripted, url_at};
use tenure_core::{Fault, SeatStore, SingleSeat, Swap};
use tenure_sqlserver::{SqlServerStore, grants_sql, schema_sql};
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::free_port;

#[test]
fn a_wrong_password_is_reported_and_not_shown() {
    let peer = Peer::start();
    let error = read_error(&peer.url().replace("right", "hunter2"), Fault::Denied);
    assert!(error.contains("Login failed for user 'app'. (error 18456); check user and password"), "{error}");
}

#[test]
fn an_access_token_is_read_from_its_file_at_each_connect() {
    let peer = Peer::start();
    let file = std::env::temp_dir().join(format!("tenure-token-{}", std::process::id()));
    let url = format!("sqlserver://{}/app?encrypt=disable&token_file={}", peer.address(), file.display());
    let error = read_error(&url, Fault::Refused);
    assert!(error.contains("cannot read the access token from") && error.contains("check token_file"), "{error}");
    std::fs::write(&file, "hunter2").unwrap();
    read_error(&url, Fault::Denied);
    std::fs::write(&file, "fresh\n").unwrap();
    runtime().block_on(async { seats_at(&url).read(&seat("x")).await.unwrap() });
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_missing_database_is_reported() {
    let peer = Peer::start();
    let error = read_error(&peer.url().replace("/app?", "/nowhere?"), Fault::Denied);
    assert!(
        error.contains("Cannot open database \"nowhere\"") && error.contains("create the database, or name"),
        "{error}"
    );
}

#[test]
fn an_unreachable_host_is_reported_within_the_time_out() {
    let port = free_port();
    let error = read_error(&url_at(&format!("127.0.0.1:{port}")), Fault::Refused);
    assert!(
        error.starts_with(&format!("cannot connect to 127.0.0.1:{port}: connection refused; check host")),
        "{error}"
    );
    let peer = Peer::start();
    let proxy = Proxy::start(peer.address());
    proxy.black_hole(Way::Down);
    let error = read_error(&format!("{}&connect_timeout=1", url_at(&proxy.address().to_string())), Fault::Unknown);
    assert!(error.contains("does not answer; check the network"), "{error}");
}

#[test]
fn a_server_of_another_protocol_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n");
        let _ = stream.read(&mut [0; 64]);
    });
    let error = read_error(&format!("{}&connect_timeout=1", url_at(&address.to_string())), Fault::Denied);
    assert!(error.contains("does not speak the TDS protocol; check host and port"), "{error}");
}

#[test]
fn a_server_that_does_not_encrypt_is_left_unless_the_options_permit_it() {
    let peer = Peer::start();
    for encrypt in ["true", "mandatory"] {
        let url = peer.url().replace("encrypt=disable", &format!("encrypt={encrypt}"));
        let error = read_error(&url, Fault::Denied);
        assert!(error.contains("does not support encryption, but encrypt=mandatory requires it"), "{error}");
    }
}

#[test]
fn an_old_server_is_refused() {
    let peer = Peer::start();
    (peer.state().server.version, peer.state().server.level) = ("12.0.6024.0".to_owned(), 120);
    let error = read_error(&peer.url(), Fault::Denied);
    assert!(error.contains("has version 12.0.6024.0 and database app has compatibility level 120"), "{error}");
    assert!(error.contains("needs SQL Server 2016 and level 130; upgrade the server"), "{error}");
}

#[test]
fn a_secondary_replica_is_refused() {
    let peer = Peer::start();
    peer.state().server.updateability = "READ_ONLY".to_owned();
    for mode in MODES {
        let error = read_error(&format!("{}{mode}", peer.url()), Fault::Denied);
        assert!(error.contains("is read-only, as a secondary replica is; name the listener or the primary"), "{error}");
    }
    let both = peer.url().replace(&peer.address(), &format!("{0},{0}", peer.address()));
    assert!(read_error(&both, Fault::Refused).contains("no other host accepts writes"));
}

#[test]
fn a_login_without_the_right_to_create_tables_gets_the_sql() {
    let peer = Peer::start();
    peer.state().server.may_create = false;
    let error = read_error(&peer.url(), Fault::Denied);
    assert!(error.contains("tables are missing in schema tenure and this login cannot create them"), "{error}");
    assert!(
        error.contains("CREATE TABLE [tenure].[seats] (") && error.contains("CREATE TABLE permission denied"),
        "{error}"
    );
    assert!(error.contains("GRANT SELECT, INSERT, UPDATE, DELETE ON [tenure].[notes] TO [app];"), "{error}");
}

#[test]
fn names_in_the_sql_are_quoted() {
    let sql = schema_sql("a]b'c") + &grants_sql("a]b'c", "o]x");
    assert!(sql.contains("CREATE TABLE [a]]b'c].[seats]") && sql.contains("SCHEMA_ID(N'a]b''c')"), "{sql}");
    assert!(sql.contains("EXEC (N'CREATE SCHEMA [a]]b''c]')") && sql.contains("TO [o]]x];"), "{sql}");
}

#[test]
fn a_login_that_only_reads_can_look_but_not_stand() {
    let peer = Peer::start();
    for mode in MODES {
        let url = format!("{}{mode}", peer.url());
        runtime().block_on(async {
            peer.state().server.may_write = true;
            let looks = SingleSeat::new(SqlServerStore::from_url(&url).unwrap().read_only());
            peer.state().drop_tables("tenure");
            assert!(
                looks.read(&seat("x")).await.unwrap().seat.is_none() && looks.list_seats().await.unwrap().is_empty()
            );
            assert!(peer.state().tables("tenure").is_none(), "a read-only store created tables");
            seats_at(&url).read(&seat("x")).await.unwrap();
            peer.state().server.may_write = false;
            let error = bid(&seats_at(&url), &seat("x")).await.unwrap_err();
            let error = described(&error, Fault::Denied);
            assert!(
                error.contains("permission was denied") && error.contains("`tenure schema sqlserver --role USER`"),
                "{error}"
            );
        });
    }
}

#[test]
fn tables_of_another_program_or_of_a_newer_version_are_refused() {
    let peer = Peer::start();
    let facts = |mark: Option<&str>, columns: &[&str]| {
        let columns = columns.iter().map(|column| row![*column]).collect();
        Scripted::Answer(Answer { results: vec![vec![row!["app", 3, mark, 0]], columns], failure: None })
    };
    peer.script("facts", facts(None, &["id"]));
    let error = read_error(&peer.url(), Fault::Denied);
    assert!(error.contains("the table [tenure].[seats] was not created by Tenure; use another schema"), "{error}");
    let columns = ["name", "record", "version", "token", "holder", "written", "session"];
    peer.script("facts", facts(Some("Tenure, version 99"), &columns));
    let error = read_error(&peer.url(), Fault::Denied);
    assert!(error.contains("newer version of Tenure (version 99, supported up to 1)"), "{error}");
}

#[test]
fn a_database_whose_commits_do_not_wait_for_the_disk_works_with_a_warning() {
    let peer = Peer::start();
    peer.state().server.durability = 2;
    let lines = tenure_testkit::Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { seats_at(&peer.url()).read(&seat("x")).await.unwrap() });
    });
    let logged = lines.with("WARN");
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("set DELAYED_DURABILITY of the database to DISABLED"), "{logged:?}");
}

/// The fault of each error of a write: whether it took effect.
#[test]
fn an_error_says_whether_a_write_took_effect() {
    let peer = Peer::start();
    runtime().block_on(async {
        let store = seats_at(&peer.url());
        for (number, class, fault) in [
            (1205, 13, Fault::Refused),
            (1222, 16, Fault::Refused),
            (2627, 14, Fault::Refused),
            (9002, 17, Fault::Refused),
            (3906, 16, Fault::Refused),
            (229, 14, Fault::Denied),
            (8152, 16, Fault::Denied),
            (596, 21, Fault::Unknown),
            (31_337, 16, Fault::Unknown),
        ] {
            let failure = Failure { number, class, message: "no\r\nway".to_owned() };
            peer.script("write new", Scripted::Answer(Answer::failed(failure)));
            let error = bid(&store, &seat("x")).await.unwrap_err();
            assert!(described(&error, fault).contains(&format!("no  way (error {number})")), "{error}");
        }
        // After the write.
        peer.script("write new", Scripted::Afterwards(Failure::new(1222, "Lock request time out period exceeded.")));
        let error = bid(&store, &seat("x")).await.unwrap_err();
        assert!(described(&error, Fault::Unknown).contains("a SQL Server statement after a write failed"), "{error}");
        assert!(store.read(&seat("x")).await.unwrap().seat.is_some(), "the write has happened");
    });
}

#[test]
fn a_connection_that_is_cut_or_not_answered_leaves_the_outcome_unknown_and_is_replaced() {
    let peer = Peer::start();
    runtime().block_on(async {
        let store = seats_at(&peer.url());
        peer.script("write new", Scripted::Close);
        let error = bid(&store, &seat("x")).await.unwrap_err();
        let message = described(&error, Fault::Unknown);
        assert!(message.contains("the connection to SQL Server failed during a statement"), "{message}");
        assert!(store.read(&seat("x")).await.unwrap().seat.is_some(), "the write has happened");
        peer.script("write new", Scripted::Silence);
        let error = bid(&store, &seat("y")).await.unwrap_err();
        assert!(described(&error, Fault::Unknown).contains("SQL Server does not answer"), "{error}");
        assert!(matches!(bid(&store, &seat("z")).await, Ok(Swap::Done { .. })));
        common::within("the connection that did not answer is closed", async {
            while peer.state().connections() > 1 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
    });
}
