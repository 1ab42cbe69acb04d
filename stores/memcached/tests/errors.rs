//! Wrong addresses, wrong log-ins and servers that cannot be used: one line that says what to do, and no hang.

mod support;

use std::time::Duration;

use support::{error_of, open, record, seat, told, within};
use tenure_core::{Fault, SeatStore, Swap};
use tenure_testkit::servers::{Memcached, MemcachedSetup, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn a_server_that_does_not_run_is_reported_with_its_address() {
    let address = format!("127.0.0.1:{}", free_port());
    let error = error_of(&format!("memcached://{address}")).await;
    assert_eq!(error.fault(), Fault::Refused);
    assert!(error.to_string().contains(&format!("cannot connect to {address}: connection refused")), "{error}");
    let error = error_of("memcached+unix:///nonexistent/socket").await;
    assert!(error.to_string().contains("the socket does not exist"), "{error}");
}

#[tokio::test]
async fn a_server_that_requires_a_login_says_so_and_a_wrong_password_is_not_shown() {
    let server = MemcachedSetup::new().login("jobs:hunter1").start();
    let error = error_of(&server.url()).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("requires a user and a password"), "{error}");
    let error = error_of(&format!("memcached://jobs:hunter2@{}", server.address())).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("rejected the user or the password"), "{error}");
    assert!(!told(&error).contains("hunter"), "{error}");
    let store = open(&format!("memcached://jobs:hunter1@{}", server.address()));
    let swap = within("the write is answered", store.swap(&seat(), None, &record(1))).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }));
}

#[tokio::test]
async fn a_server_without_a_login_does_not_keep_the_password_that_it_is_sent() {
    let server = Memcached::start();
    let store = open(&format!("memcached://jobs:hunter2@{}", server.address()));
    within("the read is answered", store.read(&seat())).await.unwrap();
    assert_eq!(server.ask("mg tenure v"), "EN", "the server keeps the password as a value, and any client can read it");
}

#[tokio::test]
async fn a_server_without_cas_is_refused() {
    let server = MemcachedSetup::new().with(["-C"]).start();
    let error = error_of(&server.url()).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("runs without CAS"), "{error}");
}

/// Answers each line of a connection with the next of these replies, and then with nothing.
async fn stand_in(replies: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes).await;
            let _ = stream.write_all(replies.concat().as_bytes()).await;
            tokio::spawn(async move { while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {} });
        }
    });
    format!("memcached://{address}")
}

#[tokio::test]
async fn a_server_that_ignores_conditions_is_refused_at_the_first_call() {
    // Each write is answered as if it had taken effect.
    let error = error_of(&stand_in(&["HD c1\r\n", "HD c2\r\n", "HD c3\r\n", "HD c4\r\n"]).await).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("ignores the conditions of writes"), "{error}");
}

#[tokio::test]
async fn a_server_that_ignores_only_the_condition_of_an_addition_is_refused() {
    // On such a server, each of several candidates could create the seat.
    let error = error_of(&stand_in(&["HD c1\r\n", "HD c2\r\n", "HD c3\r\n", "EX c0\r\n"]).await).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("ignores the conditions of writes"), "{error}");
}

#[tokio::test]
async fn servers_of_other_kinds_and_old_versions_are_refused() {
    for replies in [&["ERROR\r\n"][..], &["HTTP/1.1 400 Bad Request\r\n\r\n"], &["-ERR unknown command 'ms'\r\n"]] {
        let error = error_of(&stand_in(replies).await).await;
        assert_eq!(error.fault(), Fault::Denied, "{replies:?}");
        assert!(error.to_string().contains("does not know meta commands"), "{error}");
    }
    let error = error_of(&stand_in(&["SERVER_ERROR out of memory storing object\r\n"; 4]).await).await;
    assert_eq!(error.fault(), Fault::Refused);
}

#[tokio::test]
async fn a_server_that_never_answers_is_reported_and_does_not_hang() {
    let error = within("an error", error_of(&stand_in(&[]).await)).await;
    assert_eq!(error.fault(), Fault::Unknown);
    assert!(error.to_string().contains("does not answer"), "{error}");
}

#[tokio::test]
async fn a_value_that_tenure_did_not_write_is_an_error_and_is_not_overwritten() {
    let server = Memcached::start();
    server.ask("ms tenure:jobs 5\r\nhello");
    let error = error_of(&server.url()).await;
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("Tenure did not write"), "{error}");
    let swap = open(&server.url()).swap(&seat(), None, &record(1)).await.unwrap();
    assert_eq!(swap, Swap::Lost);
    assert_eq!(server.ask("mg tenure:jobs s"), "HD s5");
}

#[tokio::test]
async fn a_list_of_elections_is_denied_in_plain_words() {
    let server = Memcached::start();
    let error = open(&server.url()).list_seats().await.unwrap_err();
    assert_eq!(error.to_string(), "memcached cannot list its keys; name the election");
}

#[tokio::test]
async fn a_full_server_that_evicts_nothing_makes_the_outcome_of_a_write_unknown() {
    let server = MemcachedSetup::new().with(["-M", "-m", "1", "-I", "512k"]).start();
    let store = open(&server.url());
    within("the read is answered", store.read(&seat())).await.unwrap();
    let value = "x".repeat(300);
    let mut number = 0;
    while !server.ask(&format!("ms junk-{number} 300\r\n{value}")).starts_with("SERVER_ERROR") {
        number += 1;
        assert!(number < 20_000, "the memory never fills");
    }
    let swap = tokio::time::timeout(Duration::from_secs(10), store.swap(&seat(), None, &record(1))).await.unwrap();
    // The record may be of a size for which there is memory left.
    if let Err(error) = swap {
        assert_eq!(error.fault(), Fault::Unknown);
        assert!(error.to_string().contains("check its memory"), "{error}");
    }
}
