//! Wrong keys, expired signatures, wrong clocks, missing containers, tokens that cannot be had, and servers that do not
//! answer: one line that says what to do, and no hang.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use support::{LEASE, StandIn, error_of, open, record, seat, told, url_with_sas, within};
use tenure_core::{Elections, Fault, Life, Record, SeatStore, StoreError, Swap};
use tenure_testkit::servers::{Azurite, Folder, free_port};

/// Checks that an error is denied, is one line, has this text, and shows no secret.
fn is_denied(error: &StoreError, expected: &str) {
    assert_eq!(error.fault(), Fault::Denied, "{error}");
    let text = told(error);
    assert!(text.contains(expected), "{text}");
    assert!(!text.contains('\n') && !text.contains("hunter2") && !text.contains("sig="), "{text}");
}

#[tokio::test]
async fn a_wrong_key_is_reported_and_never_shown() {
    let server = Azurite::start();
    let (front, _) =
        server.url().split_once("&account_key=").map(|(front, key)| (front.to_owned(), key.len())).unwrap();
    let error = error_of(&format!("{front}&account_key=aHVudGVyMg%3D%3D")).await;
    is_denied(&error, "rejected the credentials; check the key, the signature or the identity");
    assert!(!told(&error).contains("aHVudGVyMg"), "{}", told(&error));
    let swap = open(&format!("{front}&account_key=aHVudGVyMg%3D%3D")).swap(&seat(), None, &record(1)).await;
    is_denied(&swap.unwrap_err(), "rejected the credentials");
    let (status, answer) = server.ask("GET", "/?comp=list", &[], "");
    assert_eq!(status, 200);
    assert!(!answer.contains("<Name>jobs</Name>"), "nothing is left behind: {answer}");
}

#[tokio::test]
async fn signatures_that_have_expired_or_permit_too_little_are_reported() {
    let server = Azurite::start();
    assert_eq!(server.ask("PUT", "/jobs?restype=container", &[], "").0, 201);
    let good = url_with_sas(&server, "racwdl", Duration::from_secs(3600)).await;
    let swap = within("the write is answered", open(&good).swap(&seat(), None, &record(1))).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }), "a container that exists need not be created");
    let reader = url_with_sas(&server, "rl", Duration::from_secs(3600)).await;
    assert!(SeatStore::read(&open(&reader), &seat()).await.unwrap().seat.is_some(), "reading needs no right to write");
    let error = open(&reader).swap(&seat(), None, &record(1)).await.unwrap_err();
    is_denied(&error, "forbids the request; grant the role Storage Blob Data Contributor, or a SAS with racwl");
    let expired = url_with_sas(&server, "racwdl", Duration::from_secs(1)).await;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    is_denied(&error_of(&expired).await, "rejected the shared access signature: it has expired; get a new one");
}

#[tokio::test]
async fn a_container_that_is_missing_is_created_if_the_credentials_permit_it() {
    let server = Azurite::start();
    assert!(SeatStore::read(&open(&server.url()), &seat()).await.unwrap().seat.is_none(), "reading creates nothing");
    assert!(SeatStore::list_seats(&open(&server.url())).await.unwrap().is_empty());
    let weak = url_with_sas(&server, "racwdl", Duration::from_secs(3600)).await;
    let error = open(&weak).swap(&seat(), None, &record(1)).await.unwrap_err();
    is_denied(
        &error,
        "the container azblob://devstoreaccount1/jobs does not exist, and these credentials cannot create it",
    );
    assert!(matches!(open(&server.url()).swap(&seat(), None, &record(1)).await.unwrap(), Swap::Done { .. }));
}

#[tokio::test]
async fn a_container_that_was_deleted_is_created_by_the_next_bid() {
    let server = Azurite::start();
    let (store, first) = (open(&server.url()), record(1));
    assert!(!store.break_lease(&seat()).await.unwrap(), "without a container, there is no lease");
    let Swap::Done { version, .. } = store.swap(&seat(), None, &first).await.unwrap() else { panic!("it exists") };
    assert_eq!(server.ask("DELETE", "/jobs?restype=container", &[], "").0, 202);
    assert_eq!(store.renew(&seat(), &version, &first).await.unwrap(), Swap::Lost, "the term ends");
    assert!(SeatStore::read(&store, &seat()).await.unwrap().seat.is_none());
    assert!(matches!(store.swap(&seat(), None, &record(2)).await.unwrap(), Swap::Done { .. }));
}

#[tokio::test]
async fn a_request_from_a_host_with_a_wrong_clock_is_reported_as_such() {
    let date = "Date: Thu, 01 Jan 2015 00:00:00 GMT\r\n";
    let server = StandIn::start().answering(403, "AuthenticationFailed", date);
    is_denied(&error_of(&server.url()).await, "rejected the time of the request; set the clock of this host");
}

#[tokio::test]
async fn a_server_that_ignores_conditions_is_refused_before_the_first_write() {
    let server = StandIn::start().ignoring_conditions();
    let error = open(&server.url()).swap(&seat(), None, &record(1)).await.unwrap_err();
    is_denied(&error, "ignores the conditions of writes (If-None-Match), so two candidates could lead at once");
    assert!(SeatStore::read(&open(&server.url()), &seat()).await.unwrap().seat.is_none(), "nothing was written");
}

#[tokio::test]
async fn leases_that_azure_does_not_keep_are_refused_at_the_start() {
    let server = StandIn::start();
    let elections = Elections::new(open(&server.url()));
    for (seconds, expected) in [(14.0, "use 15s or more"), (61.0, "use 60s or less"), (15.5, "use a multiple of 1s")] {
        let error = elections.election("jobs").lease(Duration::from_secs_f64(seconds)).start().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let short = Record { lease: LEASE / 2, ..record(1) };
    is_denied(&open(&server.url()).swap(&seat(), None, &short).await.unwrap_err(), "use one of 15 to 60 whole seconds");
    assert_eq!(server.count("PUT"), 0, "nothing was sent");
}

#[tokio::test]
async fn a_body_that_tenure_did_not_write_is_an_error_and_is_not_overwritten() {
    let server = Azurite::start();
    assert_eq!(server.ask("PUT", "/jobs?restype=container", &[], "").0, 201);
    let blob = "/jobs/tenure/seats/jobs";
    assert_eq!(server.ask("PUT", blob, &[("x-ms-blob-type", "BlockBlob")], "hello").0, 201);
    is_denied(&error_of(&server.url()).await, "Tenure did not write");
    assert_eq!(open(&server.url()).swap(&seat(), None, &record(1)).await.unwrap(), Swap::Lost);
    assert!(server.ask("GET", blob, &[], "").1.ends_with("hello"));
}

#[tokio::test]
async fn a_server_that_does_not_run_is_reported_and_nothing_was_sent() {
    let url = Azurite::url_at(&format!("127.0.0.1:{}", free_port()));
    let error = error_of(&url).await;
    assert_eq!(error.fault(), Fault::Refused);
    assert!(
        error.to_string().contains("cannot connect to azblob://devstoreaccount1/jobs: connection refused"),
        "{error}"
    );
    assert_eq!(open(&url).swap(&seat(), None, &record(1)).await.unwrap_err().fault(), Fault::Refused);
}

#[tokio::test]
async fn answers_that_say_nothing_about_the_write_make_its_outcome_unknown() {
    for (status, code) in [(500, "InternalError"), (503, "ServerBusy"), (500, "OperationTimedOut")] {
        let server = StandIn::start().answering(status, code, "");
        let error = open(&server.url()).swap(&seat(), None, &record(1)).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Unknown, "{}", told(&error));
    }
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_leaves_no_lease_behind() {
    let server = StandIn::start().losing_the_answer_to("\"token\":7");
    let (one, other) = (open(&server.url()), open(&server.url()));
    let Swap::Done { version, .. } = one.swap(&seat(), None, &record(6)).await.unwrap() else { panic!("it exists") };
    let vacant = Record { holder: None, ..record(7) };
    assert_eq!(one.swap(&seat(), Some(&version), &vacant).await.unwrap_err().fault(), Fault::Unknown);
    let seen = SeatStore::read(&other, &seat()).await.unwrap().seat.unwrap();
    assert_eq!((&seen.record.holder, seen.record.token), (&None, vacant.token), "the write took effect");
    let swap = other.swap(&seat(), Some(&seen.version), &record(8)).await.unwrap();
    assert!(matches!(swap, Swap::Done { .. }), "the lease of the last holder stayed");
}

#[tokio::test]
async fn a_release_that_arrives_late_does_not_end_the_next_term_of_the_same_candidate() {
    let server = StandIn::start().delaying_releases();
    let (one, other, first) = (open(&server.url()), open(&server.url()), record(1));
    let Swap::Done { version, .. } = one.swap(&seat(), None, &first).await.unwrap() else { panic!("it exists") };
    let vacant = Record { holder: None, nonce: 1, ..first.clone() };
    let vacated = one.swap(&seat(), Some(&version), &vacant).await.unwrap();
    let Swap::Done { version, .. } = vacated else { panic!("{vacated:?}") };
    let second = Record { token: record(2).token, nonce: 2, ..first };
    assert!(matches!(one.swap(&seat(), Some(&version), &second).await.unwrap(), Swap::Done { .. }));
    assert_eq!(server.process_delayed(), 1);
    let seen = SeatStore::read(&other, &seat()).await.unwrap().seat.unwrap();
    let swap = other.swap(&seat(), Some(&seen.version), &record(3)).await.unwrap();
    assert_eq!((seen.life, swap), (Life::Held, Swap::Lost), "two candidates lead");
}

/// A server that issues tokens: it records the requests, and answers all of them with this status and body.
fn token_server(status: u16, body: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut from = BufReader::new(stream.try_clone().unwrap());
            let (mut request, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                from.read_line(&mut line).unwrap();
                let lower = line.to_lowercase();
                length = lower.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
                request.push_str(&line);
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut content = vec![0; length];
            from.read_exact(&mut content).unwrap();
            request.push_str(&String::from_utf8(content).unwrap());
            let _ = sender.send(request);
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    (url, requests)
}

#[tokio::test]
async fn tokens_of_microsoft_entra_are_requested_and_a_refusal_is_reported_without_the_secret() {
    let folder = Folder::new("azure-token");
    let file = folder.path().join("token");
    std::fs::write(&file, "federated").unwrap();
    let container = StandIn::start();
    let base = format!("azblob://acc/jobs?endpoint=http://{}&tenant_id=t&client_id=c", container.address());
    let answer = r#"{"access_token":"abc","expires_in":3600,"token_type":"Bearer","expires_on":"4102444800"}"#;
    for (how, expected) in [
        ("client_secret=hunter2&authority_host", "client_secret=hunter2"),
        (&format!("federated_token_file={}&authority_host", file.display()), "client_assertion=federated"),
        ("identity_endpoint", "resource=https%3A%2F%2Fstorage.azure.com%2F&client_id=c"),
    ] {
        let (tokens, requests) = token_server(200, answer);
        let url = format!("{base}&{how}={tokens}");
        let swap = within("the write is answered", open(&url).swap(&seat(), None, &record(1))).await.unwrap();
        assert!(matches!(swap, Swap::Done { .. } | Swap::Lost), "{swap:?}");
        let request = requests.recv().unwrap();
        assert!(request.contains(expected), "{request}");
        assert!(requests.try_recv().is_err(), "one token is enough for all requests");

        let (tokens, _requests) = token_server(401, r#"{"error":"invalid_client"}"#);
        let error = error_of(&format!("{base}&{how}={tokens}")).await;
        assert_eq!(error.fault(), Fault::Refused, "nothing was sent to the container");
        let text = told(&error);
        assert!(text.contains("cannot get credentials for azblob://acc/jobs") && text.contains("401"), "{text}");
        assert!(!text.contains("hunter2") && !text.contains('\n'), "{text}");
    }
}

#[test]
fn secrets_are_not_in_debug_output() {
    let store = open("azblob://acc/jobs?account_key=aHVudGVyMg%3D%3D");
    assert!(!format!("{store:?}").contains("aHVudGVyMg"), "{store:?}");
}
