//! Opening a connection to one of several hosts, and the words for connections that fail.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use tenure_core::{Fault, StoreError};
use tenure_kit::{cannot_connect, causes, first_of, is_about_tls};
use tokio::time::{Instant, sleep};

const HEAD_START: Duration = Duration::from_millis(100);

fn refused(text: &str) -> Result<u32, StoreError> {
    Err(StoreError::refused(text))
}

/// Connects as each of `hosts` says, and returns the result, and which host was tried when, in milliseconds.
async fn tried(hosts: &[&str], head_start: Duration) -> (Result<u32, StoreError>, Vec<(String, u128)>) {
    let (tries, began) = (RefCell::new(Vec::new()), Instant::now());
    let opened = first_of(hosts.iter().copied(), head_start, async |host| {
        tries.borrow_mut().push((host.to_owned(), began.elapsed().as_millis()));
        match host {
            "opens" => Ok(1),
            "slow" => {
                sleep(Duration::from_millis(450)).await;
                Ok(2)
            }
            "silent" => {
                sleep(Duration::from_secs(3)).await;
                Err(StoreError::unknown("silent"))
            }
            "denies" => Err(StoreError::denied("denies")),
            host => refused(host),
        }
    })
    .await;
    (opened, tries.into_inner())
}

fn at(tries: &[(&str, u128)]) -> Vec<(String, u128)> {
    tries.iter().map(|(host, at)| ((*host).to_owned(), *at)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_silent_host_does_not_delay_the_next_one_by_more_than_its_head_start() {
    let (opened, tries) = tried(&["silent", "opens", "never"], HEAD_START).await;
    assert_eq!((opened.unwrap(), tries), (1, at(&[("silent", 0), ("opens", 100)])));
    let (opened, tries) = tried(&["fails", "opens"], HEAD_START).await;
    assert_eq!((opened.unwrap(), tries), (1, at(&[("fails", 0), ("opens", 0)])), "a host that fails has no head start");
    let (opened, tries) = tried(&["silent", "slow", "opens"], Duration::ZERO).await;
    assert_eq!((opened.unwrap(), tries.len()), (1, 3), "all at once");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_failed_is_tried_again_while_another_one_is_silent() {
    let (opened, tries) = tried(&["fails", "slow"], HEAD_START).await;
    assert_eq!((opened.unwrap(), tries), (2, at(&[("fails", 0), ("slow", 0), ("fails", 200), ("fails", 400)])));
    let (opened, tries) = tried(&["denies", "slow"], HEAD_START).await;
    assert_eq!((opened.unwrap(), tries), (2, at(&[("denies", 0), ("slow", 0)])), "a permanent error stays");
    let began = Instant::now();
    let (opened, tries) = tried(&["fails", "fails too"], HEAD_START).await;
    assert_eq!((opened.unwrap_err().to_string().as_str(), tries.len()), ("fails", 2));
    assert_eq!(began.elapsed(), Duration::ZERO, "no host was silent");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_may_go_away_takes_precedence_over_a_permanent_one() {
    for hosts in [["denies", "fails"], ["fails", "denies"]] {
        let (opened, _) = tried(&hosts, HEAD_START).await;
        assert_eq!(opened.unwrap_err().to_string(), "fails");
    }
    assert_eq!(tried(&["denies", "silent"], HEAD_START).await.0.unwrap_err().fault(), Fault::Unknown);
    assert_eq!(tried(&["denies"], HEAD_START).await.0.unwrap_err().to_string(), "denies");
    assert_eq!(tried(&[], HEAD_START).await.0.unwrap_err().fault(), Fault::Denied);
}

#[test]
fn an_error_of_connecting_says_what_to_check_and_shows_each_cause_once() {
    #[derive(Debug)]
    struct Outer(&'static str, io::Error);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.1)
        }
    }
    let text = |error: &StoreError| format!("{error} ({})", std::error::Error::source(error).unwrap());
    let inner = |text: &'static str| Outer("cannot send", io::Error::other(text));
    let error = cannot_connect("host:1", "the server", "check ?ca=FILE", &inner("Connection refused (os error 111)"));
    assert_eq!(error.fault(), Fault::Refused);
    assert_eq!(
        text(&error),
        "cannot connect to host:1: connection refused; check host and port, and that the server is running (cannot send: \
         Connection refused (os error 111))"
    );
    let error = cannot_connect("host:1", "the server", "check ?ca=FILE", &inner("no\nroute"));
    assert_eq!(text(&error), "cannot connect to host:1; check the host and the network (cannot send: no route)");
    let error = inner("invalid peer certificate: UnknownIssuer");
    assert!(is_about_tls(&error) && !is_about_tls(&inner("no route")));
    let error = cannot_connect("host:1", "the server", "check ?ca=FILE", &error);
    assert_eq!(
        (error.fault(), error.to_string().as_str()),
        (Fault::Denied, "cannot establish TLS with host:1; check ?ca=FILE")
    );
    assert_eq!(causes(&Outer("cannot send: no route", io::Error::other("no route"))), "no route");
}
