//! Faulty agents, tokens and keys: each causes one clear error, and no damage.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write as _};
use std::sync::Arc;
use std::time::Duration;

use support::{LEASE, SEAT, stand, told, within};
use tenure_consul::{ConsulOptions, ConsulStore};
use tenure_core::{
    Answers, Board, Call, Candidate, Clock, DynNotes, Elections, EndReason, Expect, Fault, Incarnation, NoteState,
    Reading, Record, SeatName, SeatStore, SingleSeat, StoreError, Swap, Token, Write,
};
use tenure_testkit::OverlapDetector;
use tenure_testkit::candidate::store_error;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Certificates, Consul, ConsulSetup, Folder, free_port};
use tokio::sync::mpsc;

#[tokio::test]
async fn a_missing_or_wrong_token_is_an_error_that_does_not_show_it() {
    let consul = ConsulSetup::new().with_acl("b1gs33cr3t").start();
    let error = fails(&consul.url(), Fault::Denied).await;
    assert!(error.contains("denied permission") && error.contains("key_prefix \"tenure/\""), "{error}");
    let error = fails(&with_token(&consul, "hunter2"), Fault::Denied).await;
    assert!(error.contains("does not know the ACL token (ACL not found)") && !error.contains("hunter2"), "{error}");
    works(&with_token(&consul, "b1gs33cr3t")).await;
    let file = consul.folder().join("token");
    std::fs::write(&file, "b1gs33cr3t\n").unwrap();
    works(&format!("{}&token_file={}", consul.url(), file.display())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_in_the_readme_suffice_and_fewer_are_an_error() {
    let rules: Vec<_> = include_str!("../README.md").lines().skip_while(|line| *line != "```hcl").skip(1).collect();
    let rules = rules.split(|line| *line == "```").next().unwrap().join("\n");
    let consul = ConsulSetup::new().with_acl("b1gs33cr3t").start();
    let url = with_token(&consul, &token_for(&consul, "jobs", &rules));
    let detector = OverlapDetector::new();
    let mut one = stand(&url, "one", &detector);
    let first = one.leads().await;
    let mut other = stand(&url, "other", &detector);
    other.knows(Token::ZERO).await;
    within("the request is permitted", other.election.request_step_down()).await.unwrap();
    assert!(other.leads().await > first);
    let store = store(&url);
    for board in [Board::Processes, Board::Candidates(seat())] {
        assert_eq!(notes(&store).put_one(&board, "7", "{}", LEASE).await.unwrap(), NoteState::Absent);
        let listed = notes(&store).list_one(&board).await.unwrap();
        assert!(listed.iter().any(|listed| listed.key == "7"), "{listed:?}");
    }
    store.forget(&seat()).await.unwrap();

    // Without permission for sessions, then with permission to read the keys only.
    for less in [rules.replace("session_prefix", "agent_prefix"), rules.replacen("\"write\"", "\"read\"", 1)] {
        assert_ne!(less, rules);
        let store = self::store(&with_token(&consul, &token_for(&consul, "less", &less)));
        let floor = store.read(&seat()).await.unwrap().floor;
        let error = store.swap(&seat(), None, &record(floor.get() + 1)).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
        assert!(error.to_string().contains("denied permission"), "{error}");
    }
}

#[tokio::test]
async fn the_permissions_to_look_in_the_readme_suffice_and_create_nothing() {
    let readme = include_str!("../README.md");
    let rules = readme.split("```hcl\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    let consul = ConsulSetup::new().with_acl("b1gs33cr3t").start();
    let url = with_token(&consul, &token_for(&consul, "looker", rules));
    let looker = SingleSeat::new(ConsulStore::from_url(&url).unwrap().read_only());
    assert_eq!(looker.list_seats().await.unwrap(), []);
    assert_eq!(looker.read(&seat()).await.unwrap().seat, None);
    let keys = consul.ask("GET", "/v1/kv/tenure/?keys", "");
    assert_eq!(keys.0, 404, "something was created: {}", keys.1);
    works(&with_token(&consul, "b1gs33cr3t")).await;
    assert_eq!(looker.list_seats().await.unwrap(), [seat()]);
    let held = looker.read(&seat()).await.unwrap().seat.unwrap();
    assert_eq!(notes(&looker).list_one(&Board::Candidates(seat())).await.unwrap(), []);
    let error = looker.swap(&seat(), Some(&held.version), &held.record).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_revoked_in_mid_term_is_reported_and_the_term_ends_in_time() {
    let consul = ConsulSetup::new().with_acl("b1gs33cr3t").start();
    let rules = r#"key_prefix "tenure/" { policy = "write" } session_prefix "" { policy = "write" }"#;
    let secret = token_for(&consul, "jobs", rules);
    let mut one = stand(&with_token(&consul, &secret), "one", &OverlapDetector::new());
    let first = one.leads().await;
    revoke(&consul, &secret);
    let (fault, error) = one
        .event("the error is reported", |event| {
            store_error(event).filter(|error| error.fault() == Fault::Denied).map(|error| (error.fault(), told(error)))
        })
        .await;
    assert!(error.contains("does not know the ACL token") && !error.contains(&secret), "{fault:?} {error}");
    assert_eq!(one.loses().await, (first, EndReason::NotRenewed));
}

#[tokio::test(flavor = "multi_thread")]
async fn rotating_the_token_in_its_file_costs_no_term() {
    let consul = ConsulSetup::new().with_acl("b1gs33cr3t").start();
    let rules = r#"key_prefix "tenure/" { policy = "write" } session_prefix "" { policy = "write" }"#;
    let (file, next) = (consul.folder().join("token"), consul.folder().join("next"));
    let (detector, mut before) = (OverlapDetector::new(), token_for(&consul, "jobs", rules));
    std::fs::write(&file, &before).unwrap();
    let mut one = stand(&format!("{}&token_file={}", consul.url(), file.display()), "one", &detector);
    one.leads().await;
    for _ in 0..2 {
        let token = token_for(&consul, "jobs", rules);
        std::fs::write(&next, format!("{token}\n")).unwrap();
        std::fs::rename(&next, &file).unwrap();
        revoke(&consul, &before);
        before = token;
        // The second renewal from now on is sent after the rotation.
        let renewals = one.counter.counts().renewals;
        within("the leader renews again", one.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
        tokio::time::sleep(LEASE).await;
        assert!(one.election.is_leader() && detector.work_spans() == 1, "the rotation cost the term");
    }
}

#[tokio::test]
async fn unknown_namespaces_and_datacenters_are_errors() {
    let consul = Consul::start();
    let error = fails(&format!("{}&namespace=team", consul.url()), Fault::Denied).await;
    assert!(error.contains("Consul Enterprise"), "{error}");
    let error = fails(&format!("{}&datacenter=mars", consul.url()), Fault::Denied).await;
    assert!(error.contains("does not know this datacenter"), "{error}");
    works(&format!("{}&datacenter=dc1", consul.url())).await;
}

#[tokio::test]
async fn leases_that_consul_cannot_keep_are_rejected_with_the_reason() {
    let start = |url: &str, lease: Duration| {
        Elections::new(ConsulStore::from_url(url).unwrap())
            .election("jobs")
            .lease(lease)
            .start()
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let error = start("consul:", Duration::from_secs(9));
    assert!(error.contains("10"), "{error}");
    let error = start("consul:", Duration::from_millis(12_500));
    assert!(error.contains("1s") || error.contains("second"), "{error}");
    // The server's own error, if it has another minimum than the store is configured with.
    let consul = ConsulSetup::new().with(r#""session_ttl_min": "10s""#).start();
    let store = store(&consul.url());
    let bid = |lease| Record { lease, ..record(1) };
    let error = store.swap(&seat(), None, &bid(Duration::from_secs(3))).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
    assert!(error.to_string().contains("session_ttl_min"), "{error}");
    for (lease, word) in
        [(Duration::from_millis(1500), "whole number of seconds"), (Duration::from_secs(90_000), "a day")]
    {
        let error = store.swap(&seat(), None, &bid(lease)).await.unwrap_err();
        assert!(error.fault() == Fault::Denied && error.to_string().contains(word), "{error}");
    }
    assert!(matches!(store.swap(&seat(), None, &bid(Duration::from_secs(10))).await, Ok(Swap::Done { .. })));
}

#[tokio::test]
async fn an_unreachable_agent_is_an_error_and_the_next_call_goes_to_another() {
    let nowhere = format!("127.0.0.1:{}", free_port());
    let error = fails(&format!("consul://{nowhere}"), Fault::Refused).await;
    assert!(error.contains(": connection refused; check host and port"), "{error}");
    let error = fails("consul://no-such-host.invalid", Fault::Refused).await;
    assert!(error.contains("cannot connect to no-such-host.invalid:8500; check the host"), "{error}");
    let consul = Consul::start();
    let store = store(&format!("consul://{nowhere},{}", consul.address()));
    assert_eq!(store.read(&seat()).await.unwrap_err().fault(), Fault::Refused);
    assert!(store.read(&seat()).await.is_ok(), "the other agent was not called");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_agent_times_out_and_is_reported_once() {
    let consul = Consul::start();
    let proxy = Proxy::start(consul.address());
    proxy.black_hole(Way::Up);
    let began = Clock::system().now();
    let mut one = stand(&format!("consul://{}/tenure?min_lease=1s", proxy.address()), "one", &OverlapDetector::new());
    let (fault, error) = one.fails().await;
    assert_eq!(fault, Fault::Unknown, "{error}");
    assert!(Clock::system().now().since(began) < Duration::from_secs(30));
    within("the candidate retries", one.counter.wait_for(|counts| counts.reads >= 4)).await;
    proxy.pass();
    one.recovers_without_another_word().await;
    one.leads().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_seat_of_a_failed_heartbeat_gets_an_error_with_the_cause() {
    let consul = Consul::start();
    let proxy = Proxy::start(consul.address());
    let store = store(&format!("consul://{}/tenure?min_lease=1s", proxy.address()));
    let (record, seats) = (record(1), ["a", "b"].map(|name| SeatName::new(name).unwrap()));
    let mut won = Vec::new();
    for seat in &seats {
        let Swap::Done { version, .. } = store.swap(seat, None, &record).await.unwrap() else { panic!("lost") };
        won.push(version);
    }
    proxy.drop_reply_to("/v1/session/renew/");
    let renewals = seats.iter().zip(&won).map(|(seat, won)| store.renew(seat, won, &record));
    for renewed in futures_util::future::join_all(renewals).await {
        let error = renewed.expect_err("the reply was lost");
        assert!(std::error::Error::source(&error).is_some(), "{error} has no cause");
    }
    within("the proxy drops a reply", proxy.caught(1)).await;
}

#[tokio::test]
async fn a_server_other_than_consul_is_an_error() {
    for answer in
        ["HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnope\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 4000]);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let error = fails(&format!("consul://{address}"), Fault::Denied).await;
        assert!(error.contains("did not answer as Consul's HTTP API does"), "{error}");
    }
}

#[tokio::test]
async fn tls_works_and_a_mismatch_of_tls_and_plain_http_is_an_error() {
    let folder = Folder::new("certificates");
    let made = Certificates::make(folder.path());
    let [ca, cert, key] = [&made.ca, &made.cert, &made.key].map(|path| path.display().to_string());
    let port = free_port();
    let consul = ConsulSetup::new()
        .with(format!(
            r#""ca_file": "{ca}", "cert_file": "{cert}", "key_file": "{key}", "verify_incoming_https": true"#
        ))
        .with(format!(r#""addresses": {{"https": "127.0.0.1 127.0.0.2"}}, "ports": {{"https": {port}}}"#))
        .start();
    let query = format!("ca={ca}&cert={cert}&key={key}&min_lease=1s");
    works(&format!("consuls://localhost:{port}/tenure?{query}")).await;
    let error = fails(&format!("consuls://localhost:{port}"), Fault::Denied).await;
    assert!(error.contains("cannot establish TLS with localhost") && error.contains("?ca=FILE"), "{error}");
    let error = fails(&format!("consuls://{}?{query}", consul.address()), Fault::Denied).await;
    assert!(error.contains("consul://"), "{error}");
    let error = fails(&format!("consul://localhost:{port}"), Fault::Denied).await;
    assert!(error.contains("serves HTTPS; use consuls://"), "{error}");
    // The certificate is not for this address, but `tls_server_name` can give the name that it is for.
    let elsewhere = format!("consuls://127.0.0.2:{port}/tenure?{query}");
    assert!(fails(&elsewhere, Fault::Denied).await.contains("?tls_server_name=NAME"));
    works(&format!("{elsewhere}&tls_server_name=localhost")).await;
    works(&format!("{elsewhere}&verify=false")).await;
    let missing =
        ConsulStore::from_url(&format!("consuls://localhost:{port}?ca=/no/such/file")).unwrap_err().to_string();
    assert!(missing.contains("/no/such/file"), "{missing}");
    let empty = ConsulStore::from_url(&format!("consuls://localhost:{port}?ca={key}")).unwrap_err().to_string();
    assert!(empty.contains(&format!("{key} has no certificate in it")), "{empty}");
}

#[tokio::test]
async fn foreign_values_and_newer_records_are_errors_and_are_not_overwritten() {
    let consul = Consul::start();
    works(&consul.url()).await;
    let (_, ours) = consul.ask("GET", &format!("/v1/kv/{SEAT}?raw"), "");
    let newer = ours.replace("\"v\":1", "\"v\":99");
    for (text, expected) in [("\"mine\"", "did not write"), ("\u{0}\u{1}", "did not write"), (newer.as_str(), "newer")]
    {
        consul.ask("PUT", &format!("/v1/kv/{SEAT}"), text);
        let error = fails(&consul.url(), Fault::Denied).await;
        assert!(error.contains(expected), "{error}");
        assert_eq!(consul.ask("GET", &format!("/v1/kv/{SEAT}?raw"), "").1, text);
    }
    // Another prefix still works.
    works(&format!("consul://{}/other?min_lease=1s", consul.address())).await;
}

#[tokio::test]
async fn a_renewal_is_lost_once_the_seat_is_deleted_or_unlocked_although_the_session_is_alive() {
    let consul = Consul::start();
    let store = store(&consul.url());
    store.attach(&Clock::system());
    for deletes in [true, false] {
        let seen = store.read(&seat()).await.unwrap().seat;
        let bid = Record { lease: LEASE, ..record(1) };
        let swap = store.swap(&seat(), seen.as_ref().map(|seat| &seat.version), &bid).await.unwrap();
        let Swap::Done { version, .. } = swap else { panic!("lost") };
        let renewed = store.renew(&seat(), &version, &bid).await.unwrap();
        assert!(matches!(&renewed, Swap::Done { version: same, .. } if *same == version), "{renewed:?}");
        let before = Clock::system().now();
        let session = consul.entry(SEAT, "Session");
        match deletes {
            true => consul.ask("DELETE", &format!("/v1/kv/{SEAT}"), ""),
            false => consul.ask("PUT", &format!("/v1/kv/{SEAT}?release={session}"), "{}"),
        };
        // The last heartbeat still counts, from when it was sent.
        within("a renewal is lost", async {
            while let Swap::Done { since, .. } = store.renew(&seat(), &version, &bid).await.unwrap() {
                assert!(since.is_some_and(|since| since < before), "a deleted seat was renewed");
                tokio::time::sleep(LEASE / 20).await;
            }
        })
        .await;
        assert!(consul.ask("GET", "/v1/session/list", "").1.contains(&session), "the session must stay alive");
        consul.ask("DELETE", &format!("/v1/kv/{SEAT}"), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_seat_of_a_call_is_answered_separately() {
    use tenure_core::Store;
    let consul = Consul::start();
    let proxy = Proxy::start(consul.address());
    let url = format!("consul://{},{}/tenure?min_lease=1s", proxy.address(), consul.address());
    let store = ConsulStore::from_url(&url).unwrap();
    let lease = Duration::from_secs(60);
    let (call, moment) = (Call { lease, within: lease }, Duration::from_millis(300));
    let named = |name: &str| SeatName::new(name).unwrap();
    let write = |name| Write { seat: named(name), expect: Expect::Absent(None), record: Record { lease, ..record(1) } };

    // A write whose condition does not hold does not undo another.
    consul.ask("PUT", "/v1/kv/tenure/seats/there/seat", "nonsense");
    let (to, mut swaps) = answers();
    within("all are written", Store::write(&store, &call, &["a", "there", "b"].map(write), &to)).await.unwrap();
    let mut done = [None; 3];
    while let Ok((place, swap)) = swaps.try_recv() {
        done[place] = Some(matches!(swap, Ok(Swap::Done { .. })));
    }
    assert_eq!(done, [Some(true), Some(false), Some(true)]);

    // A write times out and stays pending. The read after it times out on the same agent, and the next call goes
    // to the other.
    proxy.black_hole(Way::Up);
    let timed_out = tokio::time::timeout(moment, Store::write(&store, &call, &[write("late")], &answers().0)).await;
    assert!(timed_out.is_err(), "the call was answered");
    let timed_out = tokio::time::timeout(moment, Store::read(&store, &call, &[named("a")], &answers().0)).await;
    assert!(timed_out.is_err(), "the call was answered");
    let (to, mut readings) = answers::<Reading>();
    let seats = ["late", "a", "there", "none"].map(named);
    let (read, received) = (Store::read(&store, &call, &seats, &to), async {
        let mut received = BTreeMap::new();
        while received.len() < seats.len() {
            let (place, reading) = readings.recv().await.unwrap();
            let token = |reading: Reading| reading.seat.map(|seat| seat.record.token.get());
            received.insert(place, reading.map(token).map_err(|error| error.fault()));
            if received.len() == 3 {
                assert_eq!(received, BTreeMap::from([(1, Ok(Some(1))), (2, Err(Fault::Denied)), (3, Ok(None))]));
                proxy.pass();
            }
        }
        received
    });
    let (read, received) = within("all are read", async { tokio::join!(read, received) }).await;
    read.unwrap();
    assert_eq!(received[&0], Ok(Some(1)), "the seat was read before the pending write had ended");
}

#[tokio::test]
async fn a_version_of_data_with_another_identity_is_lost() {
    let mut consul = Consul::start();
    let store = store(&consul.url());
    let Swap::Done { version, .. } = store.swap(&seat(), None, &record(1)).await.unwrap() else { panic!("lost") };
    let before = store.read(&seat()).await.unwrap().identity;
    consul.restart();
    let other = self::store(&consul.url());
    let after = other.read(&seat()).await.unwrap();
    assert!(after.seat.is_none() && after.identity != before);
    assert_eq!(store.swap(&seat(), Some(&version), &record(2)).await.unwrap(), Swap::Lost);
    assert_eq!(store.swap(&seat(), None, &record(2)).await.unwrap(), Swap::Lost, "the seat was absent from other data");
    assert!(!matches!(store.renew(&seat(), &version, &record(1)).await, Ok(Swap::Done { .. })));
}

#[tokio::test]
async fn a_forgotten_seat_keeps_its_floor_however_high() {
    let consul = Consul::start();
    let store = store(&consul.url());
    let high = Token::MAX.get() - 5;
    assert!(matches!(store.swap(&seat(), None, &record(high)).await, Ok(Swap::Done { .. })));
    // Even if an operator has deleted the key.
    consul.ask("DELETE", &format!("/v1/kv/{SEAT}"), "");
    for _ in 0..2 {
        let reading = store.read(&seat()).await.unwrap();
        assert_eq!((reading.seat, reading.floor), (None, Token::new(high)));
        store.forget(&seat()).await.unwrap();
    }
}

#[tokio::test]
async fn sessions_have_no_checks_by_default_and_notes_end_with_their_session() {
    let consul = Consul::start();
    works(&consul.url()).await;
    let (_, sessions) = consul.ask("GET", "/v1/session/list", "");
    assert!(!sessions.contains("serfHealth"), "{sessions}");
    let with_check = store(&format!("{}&check=serfHealth", consul.url()));
    with_check.swap(&SeatName::new("checked").unwrap(), None, &record(1)).await.unwrap();
    assert!(consul.ask("GET", "/v1/session/list", "").1.contains("serfHealth"));

    let store = store(&consul.url());
    let boards = [Board::Processes, Board::Candidates(seat()), Board::Requests(seat())];
    for board in &boards {
        notes(&store).put_one(board, "gone", "{}", Duration::from_secs(60)).await.unwrap();
    }
    let keys = || consul.ask("GET", "/v1/kv/tenure/?keys", "").1;
    assert_eq!(keys().matches("/gone").count(), 3);
    consul.destroy_session_of("tenure/processes/gone");
    assert_eq!(keys().matches("/gone").count(), 0, "{}", keys());
    // The first put finds that the session is over, the second creates another one.
    let put = notes(&store).put_one(&boards[0], "back", "{}", Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(put.fault(), Fault::Refused, "{put}");
    let was = notes(&store).put_one(&boards[0], "back", "{}", Duration::from_secs(60)).await.unwrap();
    assert_eq!(was, NoteState::Absent);
}

#[tokio::test]
async fn a_socket_options_and_a_custom_client_work_as_well() {
    let socket = std::env::temp_dir().join(format!("tenure-{}-consul.sock", std::process::id()));
    let path = socket.display().to_string();
    let consul = ConsulSetup::new().with(format!(r#""addresses": {{"http": "127.0.0.1 unix://{path}"}}"#)).start();
    works(&format!("consul+unix://{path}?min_lease=1s")).await;
    let options = ConsulOptions { addresses: vec![consul.address()], ..ConsulOptions::default() };
    assert!(SingleSeat::new(ConsulStore::new(options.clone()).unwrap()).read(&seat()).await.unwrap().seat.is_some());
    let client = reqwest::Client::builder().retry(reqwest::retry::never()).build().unwrap();
    assert!(
        SingleSeat::new(ConsulStore::with_client(client, options).unwrap()).read(&seat()).await.unwrap().seat.is_some()
    );
    let _ = std::fs::remove_file(socket);
}

// -------------------------------------------------------------------------------------------------

/// Opens a store at this URL that takes one seat at a time.
fn store(url: &str) -> SingleSeat {
    SingleSeat::new(ConsulStore::from_url(url).unwrap())
}

/// An answer with its place in the call.
type Placed<T> = (usize, Result<T, StoreError>);

/// Collects the answers to a call.
fn answers<T: Send + 'static>() -> (Answers<T>, mpsc::UnboundedReceiver<Placed<T>>) {
    let (put, answers) = mpsc::unbounded_channel();
    (Answers::new(move |place, answer| drop(put.send((place, answer)))), answers)
}

fn notes(store: &SingleSeat) -> &dyn DynNotes {
    store.notes().unwrap()
}

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

fn with_token(consul: &Consul, token: &str) -> String {
    consul.url().replace("consul://", &format!("consul://:{token}@"))
}

/// Creates a token with these permissions.
fn token_for(consul: &Consul, name: &str, rules: &str) -> String {
    let name = format!("{name}-{:08x}", rand::random::<u32>());
    let rules = rules.replace('"', "\\\"").replace('\n', "\\n");
    let policy = format!(r#"{{"Name": "{name}", "Rules": "{rules}"}}"#);
    let (status, said) = consul.ask("PUT", "/v1/acl/policy", &policy);
    assert_eq!(status, 200, "{said}");
    let (status, said) = consul.ask(
        "PUT",
        "/v1/acl/token",
        &format!(r#"{{"Description": "jobs", "Policies": [{{"Name": "{name}"}}]}}"#),
    );
    assert_eq!(status, 200, "{said}");
    said.split("\"SecretID\"").nth(1).and_then(|rest| rest.split('"').nth(1)).expect("a token").to_owned()
}

fn revoke(consul: &Consul, secret: &str) {
    let listed = consul.ask("GET", "/v1/acl/tokens", "").1;
    let accessors = listed.split("\"AccessorID\"").skip(1).filter_map(|part| part.split('"').nth(1));
    let read = |accessor: &&str| consul.ask("GET", &format!("/v1/acl/token/{accessor}"), "").1;
    let its = accessors.into_iter().find(|accessor| read(accessor).contains(secret)).expect("the token is listed");
    let (status, said) = consul.ask("DELETE", &format!("/v1/acl/token/{its}"), "");
    assert_eq!(status, 200, "{said}");
}

/// Returns the error that a read fails with, after checking that it has this fault and is one line.
async fn fails(url: &str, fault: Fault) -> String {
    let error = within("an answer", store(url).read(&seat())).await.expect_err("the read must fail");
    assert_eq!(error.fault(), fault, "{}", told(&error));
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error.to_string()
}

/// Reads the seat, takes it and releases it. The seat may be absent, or left by a session that has ended.
async fn works(url: &str) {
    let store = store(url);
    // On a busy machine a connection may take too long. Then the read is repeated, as the engine does.
    let reading = async {
        loop {
            match store.read(&seat()).await {
                Err(error) if error.fault() != Fault::Denied => tokio::time::sleep(Duration::from_millis(50)).await,
                reading => return reading.unwrap_or_else(|error| panic!("{}", told(&error))),
            }
        }
    };
    let now = within("the read succeeds", reading).await.seat;
    let token = now.as_ref().map_or(0, |seat| seat.record.token.get()) + 1;
    let swap = store.swap(&seat(), now.as_ref().map(|seat| &seat.version), &record(token)).await;
    let Swap::Done { version, .. } = swap.unwrap_or_else(|error| panic!("{}", told(&error))) else { panic!("lost") };
    let vacant = Record { holder: None, ..record(token) };
    assert!(matches!(store.swap(&seat(), Some(&version), &vacant).await, Ok(Swap::Done { .. })));
}

fn record(token: u64) -> Record {
    Record {
        holder: Some(Candidate { id: "a".into(), incarnation: Incarnation::from_bits(1) }),
        token: Token::new(token),
        lease: Duration::from_secs(15),
        since_ms: None,
        heir: None,
        priority: 0,
        ranked: false,
        metadata: Arc::default(),
        nonce: rand::random(),
        claim: None,
        crash: None,
        unknown: Arc::default(),
    }
}
