//! Faulty members, logins, certificates and keys: each causes one clear error, and no damage.

mod support;

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use support::{of, seats, stand, told, within, write};
use tenure_core::{
    Answers, Board, Call, Elections, Expect, Fault, Record, SeatName, SeatStore, StoreError, Swap, Token, Version,
    Write, record,
};
use tenure_etcd::{EtcdOptions, EtcdStore};
use tenure_testkit::OverlapDetector;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Etcd, EtcdSetup, free_port};

#[tokio::test]
async fn an_unreachable_cluster_is_an_error_but_one_reachable_member_is_enough() {
    let error = fails(&format!("etcd://127.0.0.1:{}", free_port()), Fault::Refused).await;
    assert!(error.contains(": connection refused; check host and port"), "{error}");
    let error = fails("etcd://no-such-host.invalid", Fault::Refused).await;
    assert!(error.contains("cannot connect to no-such-host.invalid:2379; check the host"), "{error}");
    let etcd = Etcd::start();
    works(&format!("etcd://127.0.0.1:{},{},127.0.0.1:{}", free_port(), etcd.addresses(), free_port())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_member_times_out_is_reported_once_and_another_member_is_used() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    proxy.black_hole(Way::Up);
    let error = fails(&format!("etcd://{}?connect_timeout=1s", proxy.address()), Fault::Unknown).await;
    assert!(error.contains("did not answer in time"), "{error}");
    works(&format!("etcd://{},{}", proxy.address(), etcd.addresses())).await;

    let mut one = stand(&format!("etcd://{}", proxy.address()), "one", Duration::from_secs(3), &OverlapDetector::new());
    let (fault, error) = one.fails().await;
    assert_eq!(fault, Fault::Unknown, "{error}");
    within("the candidate retries", one.counter.wait_for(|counts| counts.reads >= 4)).await;
    proxy.pass();
    one.recovers_without_another_word().await;
    one.leads().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_recovers_is_used_while_another_is_silent() {
    let etcd = Etcd::start();
    let [silent, back] = [(); 2].map(|()| Proxy::start(etcd.members[0].address()));
    silent.black_hole(Way::Up);
    back.refuse();
    let url = format!("etcd://{},{}?connect_timeout=10m", silent.address(), back.address());
    let (store, seat) = (seats(&url), seat());
    let mut read = std::pin::pin!(store.read(&seat));
    // By now both members were tried, or are being tried again. Either way the read must complete.
    tokio::select! {
        read = &mut read => panic!("{read:?}, though no member answers"),
        () = tokio::time::sleep(Duration::from_millis(500)) => {}
    }
    back.pass();
    within("the read completes", read).await.unwrap_or_else(|error| panic!("{}", told(&error)));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_seat_of_a_failed_heartbeat_gets_an_error_with_the_cause() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].address());
    let store = EtcdStore::from_url(&format!("etcd://{}", proxy.address())).unwrap();
    let record = held(Duration::from_secs(60));
    let write_both = async |expect: [Expect; 2]| {
        let seats = ["a", "b"].map(|name| SeatName::new(name).unwrap());
        let writes: Vec<_> = seats
            .into_iter()
            .zip(expect)
            .map(|(seat, expect)| Write { seat, expect, record: record.clone() })
            .collect();
        write(&store, &writes).await
    };
    let won = write_both([Expect::Absent(None), Expect::Absent(None)]).await;
    // The next heartbeat checks both seats.
    proxy.drop_reply_to("tenure/live/");
    let held = [0, 1].map(|place| Expect::Held(version(&won[place]).unwrap()));
    for renewed in write_both(held).await {
        let error = renewed.expect_err("the reply was lost");
        assert!(std::error::Error::source(&error).is_some(), "{error} has no cause");
    }
    within("the proxy drops a reply", proxy.caught(1)).await;
}

#[tokio::test]
async fn a_server_with_another_protocol_is_an_error() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"-ERR unknown command 'PRI'\r\n"] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 100]);
                let _ = stream.write_all(answer);
                // Waits until the client closes the connection.
                while stream.read(&mut [0; 100]).is_ok_and(|count| count > 0) {}
            }
        });
        let error = fails(&format!("etcd://{address}"), Fault::Denied).await;
        assert!(error.contains("did not answer as etcd does"), "{error}");
        let error = fails(&format!("etcds://{address}"), Fault::Denied).await;
        assert!(error.contains("cannot establish TLS with"), "{error}");
    }
}

#[tokio::test]
async fn tls_works_and_a_mismatch_of_tls_and_plain_tcp_is_an_error() {
    let etcd = EtcdSetup::new().tls().start();
    let ca = etcd.certificates().unwrap().ca.display().to_string();
    works(&format!("{}?ca={ca}", etcd.url())).await;
    works(&format!("{}?ca={ca}", etcd.url().replace("127.0.0.1", "localhost"))).await;
    let error = fails(&etcd.url(), Fault::Denied).await;
    assert!(error.contains("cannot establish TLS with 127.0.0.1") && error.contains("?ca=FILE"), "{error}");
    let error = fails(&format!("{}?ca=/no/such/file", etcd.url()), Fault::Denied).await;
    assert!(error.contains("/no/such/file cannot be read: "), "{error}");
    let key = etcd.certificates().unwrap().key.display();
    let error = fails(&format!("{}?ca={key}", etcd.url()), Fault::Denied).await;
    assert!(error.contains(&format!("{key} has no certificate in it")), "{error}");
    let error = seats(&etcd.url().replace("etcds", "etcd"));
    let error = told(&error.read(&seat()).await.unwrap_err());
    assert!(error.contains("etcds://"), "{error}");
    let plain = Etcd::start();
    let error = fails(&format!("etcds://{}?ca={ca}", plain.addresses()), Fault::Denied).await;
    assert!(error.contains("cannot establish TLS with") && error.contains("etcd://"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_presented_and_identifies_the_user() {
    let etcd = EtcdSetup::new().mutual_tls().start();
    let files = etcd.certificates().unwrap().clone();
    let (ca, cert, key) = (files.ca.display(), files.cert.display(), files.key.display());
    let error = seats(&format!("{}?ca={ca}", etcd.url()));
    let error = told(&error.read(&seat()).await.unwrap_err());
    assert!(error.contains("?cert=FILE&key=FILE"), "{error}");
    let url = format!("{}?ca={ca}&cert={cert}&key={key}", etcd.url());
    works(&url).await;
    // With authentication, the name in the certificate is the user. Here it is the server's own certificate.
    let jobs = ["user add localhost:unused", "role add jobs", "user grant-role localhost jobs"];
    enable_auth(&etcd, &jobs, "role grant-permission jobs readwrite tenure/ --prefix=true");
    works(&url).await;
}

#[tokio::test]
async fn a_wrong_missing_or_unneeded_login_is_an_error_that_does_not_show_it() {
    let etcd = Etcd::start();
    let at = |login: &str| format!("etcd://{login}@{}", etcd.addresses());
    let error = fails(&at("jobs:hunter2"), Fault::Denied).await;
    assert!(error.contains("authentication disabled") && error.contains("remove the user"), "{error}");

    let jobs = ["user add jobs:right", "role add jobs", "user grant-role jobs jobs"];
    enable_auth(&etcd, &jobs, "role grant-permission jobs readwrite leaders/ --prefix=true");
    for login in ["jobs:hunter2", "nobody:hunter2"] {
        let error = fails(&at(login), Fault::Denied).await;
        assert!(error.contains("rejected the user or the password"), "{error}");
    }
    let error = fails(&etcd.url(), Fault::Denied).await;
    assert!(error.contains("requires a user and a password"), "{error}");
    // The role of this user is for another prefix.
    let error = fails(&at("jobs:right"), Fault::Denied).await;
    assert!(error.contains("denied permission") && error.contains("readwrite on the prefix"), "{error}");
    works(&format!("{}/leaders", at("jobs:right"))).await;
    works(&at("root:root")).await;
}

#[tokio::test]
async fn the_rights_to_look_in_the_readme_suffice() {
    let etcd = Etcd::start();
    let commands: Vec<_> =
        include_str!("../README.md").lines().filter_map(|line| line.strip_prefix("etcdctl ")).collect();
    let looker: Vec<_> = commands.into_iter().filter(|command| command.contains("looker")).collect();
    let [role, right] = looker[..] else { panic!("{looker:?}") };
    enable_auth(&etcd, &["user add looker:right", role, "user grant-role looker looker"], right);
    let at = |login: &str| format!("etcd://{login}@{}", etcd.addresses());
    let looker = seats(&at("looker:right"));
    assert_eq!(looker.list_seats().await.unwrap(), []);
    works(&at("root:root")).await;
    assert_eq!(looker.list_seats().await.unwrap(), [seat()]);
    assert!(looker.read(&seat()).await.unwrap().seat.is_some());
    let notes = looker.notes().unwrap();
    assert_eq!(notes.list_one(&Board::Candidates(seat())).await.unwrap(), []);
    // Not a bid, as the servers of these tests do not check nested transactions (GHSA-rfx7-8w68-q57q).
    let error = notes.put_one(&Board::Candidates(seat()), "k", "{}", Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
}

#[tokio::test]
async fn a_long_list_is_complete() {
    let etcd = Etcd::start();
    let store = EtcdStore::from_url(&etcd.url()).unwrap();
    let expected: Vec<_> = (0..2500).map(|number| SeatName::new(format!("jobs-{number:04}")).unwrap()).collect();
    let lease = Duration::from_secs(5);
    let vacant = |seat: &SeatName| Write {
        seat: seat.clone(),
        expect: Expect::Absent(None),
        record: Record::new(None, Token::new(1), lease),
    };
    for seats in expected.chunks(100) {
        let writes: Vec<_> = seats.iter().map(vacant).collect();
        let done = Answers::new(|_, answer| assert!(matches!(answer, Ok(Swap::Done { .. })), "{answer:?}"));
        tenure_core::Store::write(&store, &Call { lease, within: lease }, &writes, &done).await.unwrap();
    }
    assert_eq!(tenure_core::Store::list_seats(&store).await.unwrap(), expected);
}

#[tokio::test]
async fn leases_that_etcd_cannot_grant_are_rejected() {
    let starts = |url: &str, lease: Duration| {
        let elections = Elections::new(EtcdStore::from_url(url).unwrap());
        elections.election("jobs").lease(lease).start().map(drop).map_err(|error| error.to_string())
    };
    let nowhere = "etcd://127.0.0.1:1";
    let error = starts(nowhere, Duration::from_millis(4500)).unwrap_err();
    assert!(error.contains("etcd") && error.contains("1s"), "{error}");
    let error = starts(nowhere, Duration::from_secs(1)).unwrap_err();
    assert!(error.contains("2s"), "{error}");
    starts("etcd://127.0.0.1:1?min_lease=1s", Duration::from_secs(1)).unwrap();
    let error = starts("etcd://127.0.0.1:1?min_lease=8s", Duration::from_secs(7)).unwrap_err();
    assert!(error.contains("8s"), "{error}");

    let etcd = Etcd::start();
    let store = seats(&etcd.url());
    let error = store.swap(&seat(), None, &held(Duration::from_millis(1500))).await.unwrap_err();
    assert_eq!(
        (error.fault(), error.to_string().contains("whole number of seconds")),
        (Fault::Denied, true),
        "{error}"
    );
}

#[tokio::test]
async fn foreign_values_and_newer_records_are_errors_and_are_not_overwritten() {
    let etcd = Etcd::start();
    works(&etcd.url()).await;
    let key = format!("tenure/seats/{}", seat().as_str());
    let ours = etcd.ctl(&["get", "--print-value-only", &key]);
    let newer = ours.replace("\"v\":1", "\"v\":99");
    for (value, expected) in [("mine", "did not write"), ("-\n\"mine\"", "did not write"), (newer.as_str(), "newer")] {
        etcd.ctl(&["put", "--", &key, value]);
        let error = fails(&etcd.url(), Fault::Denied).await;
        assert!(error.contains(expected), "{error}");
        assert_eq!(etcd.ctl(&["get", "--print-value-only", &key]), value);
    }
}

#[tokio::test]
async fn a_custom_tls_configuration_is_used() {
    let etcd = EtcdSetup::new().tls().start();
    let ca = &etcd.certificates().unwrap().ca;
    let mut roots = rustls::RootCertStore::empty();
    let certificates: Vec<_> =
        rustls::pki_types::pem::PemObject::pem_file_iter(ca).unwrap().map(Result::unwrap).collect();
    roots.add_parsable_certificates(certificates);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let options = EtcdOptions { endpoints: vec![etcd.addresses()], ..EtcdOptions::default() };
    let store = of(EtcdStore::with_tls(options, config).unwrap());
    store.read(&seat()).await.unwrap();
}

/// Creates users and roles, and enables authentication.
fn enable_auth(etcd: &Etcd, commands: &[&str], last: &str) {
    let commands = ["user add root:root"].into_iter().chain(commands.iter().copied()).chain([last, "auth enable"]);
    for command in commands {
        etcd.ctl(&command.split(' ').collect::<Vec<_>>());
    }
}

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

fn held(lease: Duration) -> Record {
    let json = r#"{"v":1,"holder":{"id":"me","incarnation":"00000000000000000000000000000001"},"token":1,"lease_ms":3000,"nonce":"0000000000000001"}"#;
    let parsed = record::from_json(json).unwrap_or_else(|error| panic!("{error}"));
    Record { lease, token: Token::new(1), ..parsed }
}

/// Returns the error that a read fails with, after checking that it has this fault, is one line, and shows no
/// password. A write must fail with the same fault.
async fn fails(url: &str, fault: Fault) -> String {
    let store = seats(url);
    let read = within("an answer", store.read(&seat())).await.expect_err("the read must fail");
    let swap = within("an answer", store.swap(&seat(), None, &held(Duration::from_secs(3)))).await;
    let error = told(&read);
    assert_eq!(read.fault(), fault, "{error}");
    // A seat with a foreign value exists, so a write that expects no seat is lost. Every other write fails as a
    // read does.
    match swap {
        Ok(swap) => assert_eq!(swap, Swap::Lost, "{error}"),
        Err(swap) => assert_eq!(swap.fault(), fault, "{}", told(&swap)),
    }
    assert!(!error.contains("hunter2") && !error.contains('\n') && error.len() < 500, "{error}");
    let store = EtcdStore::from_url(url).unwrap_or_else(|error| panic!("{error}"));
    assert!(!format!("{store:?}").contains("hunter2"));
    error
}

async fn works(url: &str) {
    let store = seats(url);
    let read = within("an answer", store.read(&seat())).await.unwrap_or_else(|error| panic!("{}", told(&error)));
    let expected = read.seat.map(|seat| seat.version);
    let next = Record { holder: None, ..held(Duration::from_secs(3)) };
    let swap = within("an answer", store.swap(&seat(), expected.as_ref(), &next)).await;
    // And with a session, then released again.
    let swap = within("an answer", store.swap(&seat(), version(&swap).as_ref(), &held(Duration::from_secs(3)))).await;
    let swap = within("an answer", store.swap(&seat(), version(&swap).as_ref(), &next)).await;
    version(&swap);
}

fn version(swap: &Result<Swap, StoreError>) -> Option<Version> {
    match swap {
        Ok(Swap::Done { version, .. }) => Some(version.clone()),
        other => panic!("{other:?}"),
    }
}
