//! Faulty clusters, tokens and objects: each causes one clear error, and no damage.

mod support;

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use support::{seats, stand, told, url, within};
use tenure_core::{
    Board, Candidate, Elections, Fault, Incarnation, NoteState, Record, SeatName, SeatStore, SingleSeat, Swap, Token,
    Version,
};
use tenure_kubernetes::{KubernetesOptions, KubernetesStore};
use tenure_testkit::OverlapDetector;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Certificates, Folder, Kubernetes, free_port};

#[tokio::test]
async fn a_wrong_token_is_an_error_that_does_not_show_it() {
    let server = Kubernetes::shared();
    let kubeconfig = server.kubeconfig_of("hunter2", "default", &format!("https://{}", server.address()));
    let error = fails(&url(kubeconfig), Fault::Denied).await;
    assert!(error.contains("rejected the credentials (401)") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    let server = Kubernetes::shared();
    let nowhere = format!("https://127.0.0.1:{}", free_port());
    let error = fails(&url(server.kubeconfig_by("default", &nowhere)), Fault::Refused).await;
    assert!(error.contains(": connection refused; check host and port"), "{error}");
    let error = fails(&url(server.kubeconfig_by("default", "https://no-such-host.invalid:6443")), Fault::Refused).await;
    assert!(error.contains("cannot connect to no-such-host.invalid:6443; check the host"), "{error}");
}

#[tokio::test]
async fn an_untrusted_server_or_another_protocol_is_an_error() {
    let server = Kubernetes::shared();
    // Another certificate authority than the one that signed the server's certificate.
    let folder = Folder::new("other-authority");
    let others = Certificates::make(folder.path());
    let kubeconfig = server.kubeconfig("default");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let ca = |path: &Path| path.display().to_string();
    std::fs::write(&kubeconfig, text.replace(&ca(&server.certificates().ca), &ca(&others.ca))).unwrap();
    let error = fails(&url(kubeconfig), Fault::Denied).await;
    assert!(error.contains("cannot establish TLS with") && error.contains("certificate"), "{error}");

    let web = answers_with("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nnope\n");
    let error = fails(&url(server.kubeconfig_by("default", &format!("http://{web}"))), Fault::Denied).await;
    assert!(error.contains("not a Kubernetes API server"), "{error}");
    let error = fails(&url(server.kubeconfig_by("default", &format!("https://{web}"))), Fault::Denied).await;
    assert!(error.contains("check that it serves HTTPS"), "{error}");
    let page = answers_with("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>");
    let error = fails(&url(server.kubeconfig_by("default", &format!("http://{page}"))), Fault::Denied).await;
    assert!(error.contains("not a Kubernetes API server"), "{error}");
    let other = answers_with("-ERR unknown command\r\n");
    let error = fails(&url(server.kubeconfig_by("default", &format!("http://{other}"))), Fault::Denied).await;
    assert!(error.contains("does not speak HTTP"), "{error}");
}

/// A real server sends these answers only under more load than a test can cause.
#[tokio::test]
async fn an_overloaded_or_failing_server_is_an_error_and_a_write_is_unknown_only_if_it_may_have_happened() {
    let server = Kubernetes::shared();
    for (status, read, write, words) in [
        ("429 Too Many Requests", Fault::Refused, Fault::Refused, "is overloaded (429; Retry-After: 7 s)"),
        ("500 Internal Server Error", Fault::Refused, Fault::Unknown, "failed (500"),
        ("503 Service Unavailable", Fault::Refused, Fault::Unknown, "failed (503"),
        ("504 Gateway Timeout", Fault::Refused, Fault::Unknown, "failed (504"),
        ("422 Unprocessable Entity", Fault::Denied, Fault::Denied, "rejected the call (422"),
        ("302 Found", Fault::Denied, Fault::Denied, "sent a redirect"),
    ] {
        let at = answers_with(&format!("HTTP/1.1 {status}\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\n{{}}"));
        let url = url(server.kubeconfig_by("default", &format!("http://{at}")));
        let error = fails(&url, read).await;
        assert!(error.contains(words), "{error}");
        let error = within("an answer", seats(&url).swap(&seat(), None, &record(1))).await.unwrap_err();
        assert_eq!(error.fault(), write, "{status}: {}", told(&error));
    }
}

#[tokio::test]
async fn calls_that_can_wait_are_not_sent_until_retry_after_has_passed() {
    let server = Kubernetes::shared();
    let busy = |seconds: u32| {
        let (at, calls) = counts_and_answers(&format!(
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {seconds}\r\nContent-Length: 2\r\n\r\n{{}}"
        ));
        (seats(&url(server.kubeconfig_by("default", &format!("http://{at}")))), calls)
    };
    let (one, calls) = busy(600);
    for _ in 0..3 {
        let error = one.read(&seat()).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Refused, "{}", told(&error));
        assert!(error.to_string().contains("is overloaded (429; Retry-After: 600 s)"), "{error}");
        assert_eq!(one.swap(&seat(), None, &record(1)).await.unwrap_err().fault(), Fault::Refused);
        assert_eq!(
            one.notes()
                .unwrap()
                .put_one(&Board::Processes, "5", "{}", Duration::from_secs(3))
                .await
                .unwrap_err()
                .fault(),
            Fault::Refused
        );
    }
    assert_eq!(calls(), 1, "the server was called again");
    // These must not wait, or a leader would lose its seat or keep it from others.
    let held = Version::new("0/1");
    one.renew(&seat(), &held, &record(1)).await.unwrap_err();
    assert_eq!(calls(), 2);
    one.swap(&seat(), Some(&held), &Record { holder: None, ..record(1) }).await.unwrap_err();
    assert_eq!(calls(), 3);

    let (other, calls) = busy(1);
    within("the server is called again", async {
        while calls() < 2 {
            other.read(&seat()).await.unwrap_err();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_write_denied_by_an_admission_webhook_is_reported_as_such() {
    let server = Kubernetes::shared();
    let body = r#"{"kind":"Status","message":"admission webhook \"quota.example\" denied the request: no","code":403}"#;
    let at = answers_with(&format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let store = seats(&url(server.kubeconfig_by("default", &format!("http://{at}"))));
    let error = store.swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
    assert!(error.to_string().contains("admission webhook \"quota.example\" denied"), "{error}");
    assert!(!error.to_string().contains("grant"), "the role is not the cause: {error}");
}

#[tokio::test]
async fn an_unreachable_or_refusing_proxy_is_named_in_the_error() {
    let server = Kubernetes::shared();
    let through = |proxy: &str| {
        let kubeconfig = server.kubeconfig("default");
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        std::fs::write(
            &kubeconfig,
            text.replace("cluster: {server:", &format!("cluster: {{proxy-url: \"{proxy}\", server:")),
        )
        .unwrap();
        url(kubeconfig)
    };
    let port = free_port();
    let error = fails(&through(&format!("http://me:hunter2@127.0.0.1:{port}")), Fault::Refused).await;
    assert!(error.contains(&format!("nothing listens at the proxy 127.0.0.1:{port}")), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let refusing = answers_with("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
    let error = fails(&through(&format!("http://{refusing}")), Fault::Refused).await;
    assert!(error.contains(&server.address()) && error.contains(&format!("through the proxy {refusing}")), "{error}");
}

#[tokio::test]
async fn an_authority_file_without_a_certificate_is_an_error() {
    let server = Kubernetes::shared();
    let folder = Folder::new("no-certificate");
    let empty = folder.path().join("ca.crt");
    std::fs::write(&empty, "# to be filled in\n").unwrap();
    let kubeconfig = server.kubeconfig("default");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let ca = server.certificates().ca.display().to_string();
    std::fs::write(&kubeconfig, text.replace(&ca, &empty.display().to_string())).unwrap();
    let error = fails(&url(kubeconfig), Fault::Denied).await;
    assert!(error.contains(&empty.display().to_string()) && error.contains("contains no PEM certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_times_out_and_is_reported_once() {
    let server = Kubernetes::shared();
    let proxy = Proxy::start(server.address());
    proxy.black_hole(Way::Up);
    let kubeconfig = server.kubeconfig_by(&server.namespace(), &format!("https://{}", proxy.address()));
    let mut one = stand(&url(kubeconfig), "one", Duration::from_secs(3), &OverlapDetector::new());
    let (fault, error) = one.fails().await;
    assert_eq!(fault, Fault::Unknown, "{error}");
    within("the candidate retries", one.counter.wait_for(|counts| counts.reads >= 4)).await;
    proxy.pass();
    one.recovers_without_another_word().await;
    one.leads().await;
}

#[tokio::test]
async fn a_missing_namespace_is_an_error() {
    let server = Kubernetes::shared();
    let store = seats(&url(server.kubeconfig("no-such-place")));
    assert_eq!(store.read(&seat()).await.unwrap().seat, None, "a missing namespace has no seats");
    let error = store.swap(&seat(), None, &record(1)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
    assert!(error.to_string().contains("namespace no-such-place does not exist"), "{error}");
}

#[tokio::test]
async fn a_missing_or_invalid_kubeconfig_is_an_error() {
    let server = Kubernetes::shared();
    let error = fails(&url("/no/such/file"), Fault::Denied).await;
    assert!(error.contains("/no/such/file"), "{error}");
    let kubeconfig = server.kubeconfig("default");
    let error = fails(&format!("{}&context=nowhere", url(&kubeconfig)), Fault::Denied).await;
    assert!(error.contains("context: nowhere"), "{error}");
    std::fs::write(&kubeconfig, "users: [{name: x, user: {token: hunter2}\nclusters: [oops").unwrap();
    let error = fails(&url(&kubeconfig), Fault::Denied).await;
    assert!(error.contains("cannot use the kubeconfig") && !error.contains("hunter2"), "{error}");
    let error = fails("kubernetes:?in_cluster", Fault::Denied).await;
    assert!(error.contains("found no service account"), "{error}");
}

#[tokio::test]
async fn a_fractional_lease_is_rejected_and_never_rounded() {
    let server = Kubernetes::shared();
    let url = url(server.kubeconfig(&server.namespace()));
    let elections = Elections::new(KubernetesStore::from_url(&url).unwrap());
    for lease in [Duration::from_millis(1500), Duration::from_millis(900)] {
        let error = elections.election("jobs").lease(lease).start().unwrap_err().to_string();
        assert!(error.contains("the kubernetes store"), "{error}");
    }
    let fraction = Record { lease: Duration::from_millis(2500), ..record(1) };
    let error = seats(&url).swap(&seat(), None, &fraction).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("whole number of seconds"), "{error}");
}

#[tokio::test]
async fn foreign_newer_and_misplaced_records_are_errors_and_are_not_overwritten() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let url = url(server.kubeconfig(&namespace));
    let store = seats(&url);
    assert!(matches!(store.swap(&seat(), None, &record(1)).await, Ok(Swap::Done { .. })));
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/jobs");
    let ours: serde_json::Value = serde_json::from_str(&server.must("GET", &path, "")).unwrap();
    let text = ours["metadata"]["annotations"]["tenure.election/record"].as_str().unwrap();
    for (annotation, value, expected) in [
        ("tenure.election/record", "mine".to_owned(), "did not write"),
        ("tenure.election/record", text.replace("\"v\":1", "\"v\":99"), "newer"),
        ("tenure.election/name", "another".to_owned(), "the seat of another election"),
    ] {
        let mut changed: serde_json::Value = serde_json::from_str(&server.must("GET", &path, "")).unwrap();
        changed["metadata"]["annotations"] = ours["metadata"]["annotations"].clone();
        changed["metadata"]["annotations"][annotation] = value.clone().into();
        server.must("PUT", &path, &changed.to_string());
        let error = fails(&url, Fault::Denied).await;
        assert!(error.contains(expected), "{error}");
        let now: serde_json::Value = serde_json::from_str(&server.must("GET", &path, "")).unwrap();
        assert_eq!(now["metadata"]["annotations"][annotation], value);
    }
}

/// Returns the verbs in the role that the project provides.
fn verbs() -> Vec<&'static str> {
    let role = include_str!("../../../deploy/kubernetes/rbac.yaml");
    let verbs = role.lines().find_map(|line| line.trim().strip_prefix("verbs: [")).unwrap();
    verbs.trim_end_matches(']').split(", ").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_provided_role_suffice() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let token = server.service_account(&namespace, "jobs", &verbs());
    let url = url(server.kubeconfig_of(&token, &namespace, &format!("https://{}", server.address())));
    let detector = OverlapDetector::new();
    let lease = Duration::from_secs(4);
    let mut one = stand(&url, "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&url, "other", lease, &detector);
    other.knows(first).await;
    within("the request is permitted", other.election.request_step_down()).await.unwrap();
    assert!(other.leads().await > first);
    let store = seats(&url);
    for board in [Board::Processes, Board::Candidates(seat())] {
        for was in [NoteState::Absent, NoteState::Present] {
            assert_eq!(store.notes().unwrap().put_one(&board, "5", "{}", lease).await.unwrap(), was);
        }
        let listed = store.notes().unwrap().list_one(&board).await.unwrap();
        assert!(listed.iter().any(|listed| listed.key == "5"), "{listed:?}");
    }
    store.forget(&seat()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_to_list_suffices_to_look() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let token = server.service_account(&namespace, "looker", &["list"]);
    let looker = seats(&url(server.kubeconfig_of(&token, &namespace, &format!("https://{}", server.address()))));
    assert_eq!(looker.list_seats().await.unwrap(), []);
    seats(&url(server.kubeconfig(&namespace))).swap(&seat(), None, &record(1)).await.unwrap();
    assert_eq!(looker.list_seats().await.unwrap(), [seat()]);
    let held = looker.read(&seat()).await.unwrap().seat.unwrap();
    assert_eq!(looker.notes().unwrap().list_one(&Board::Candidates(seat())).await.unwrap(), []);
    let error = looker.swap(&seat(), Some(&held.version), &record(2)).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_complete_and_has_no_leases_of_other_clients() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let store = seats(&url(server.kubeconfig(&namespace)));
    let expected: Vec<_> = (0..520).map(|number| SeatName::new(format!("jobs-{number:03}")).unwrap()).collect();
    for names in expected.chunks(40) {
        let written = names.iter().map(async |name| store.swap(name, None, &record(1)).await.unwrap());
        futures_util::future::join_all(written).await;
    }
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    server.must("POST", &leases, r#"{"metadata": {"name": "theirs"}, "spec": {"holderIdentity": "them"}}"#);
    let copy = r#"{"metadata": {"name": "copy", "labels": {"tenure.election/seat": "x"}, "annotations": {"tenure.election/name": "jobs-000"}}}"#;
    server.must("POST", &leases, copy);
    let mut listed = store.list_seats().await.unwrap();
    listed.sort();
    assert_eq!(listed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_permission_is_named_in_the_error() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let admin = seats(&url(server.kubeconfig(&namespace)));
    for missing in ["create", "update", "delete", "list"] {
        let left: Vec<_> = verbs().into_iter().filter(|verb| *verb != missing).collect();
        let token = server.service_account(&namespace, missing, &left);
        let store = seats(&url(server.kubeconfig_of(&token, &namespace, &format!("https://{}", server.address()))));
        let name = SeatName::new(format!("without-{missing}")).unwrap();
        let error = match missing {
            "list" => store.read(&name).await.unwrap_err(),
            "create" => store.swap(&name, None, &record(1)).await.unwrap_err(),
            "update" => {
                let Swap::Done { version, .. } = store.swap(&name, None, &record(1)).await.unwrap() else {
                    panic!("lost")
                };
                store.renew(&name, &version, &record(1)).await.unwrap_err()
            }
            _ => {
                admin.swap(&name, None, &record(1)).await.unwrap();
                store.forget(&name).await.unwrap_err()
            }
        };
        assert_eq!(error.fault(), Fault::Denied, "{}", told(&error));
        let text = error.to_string();
        assert!(text.contains(&format!("denied {missing} on Leases in namespace {namespace}")), "{text}");
        assert!(text.contains("create, update, delete, list and watch on leases.coordination.k8s.io"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permission_to_watch_candidates_poll() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let token = server.service_account(&namespace, "no-watch", &["create", "update", "list"]);
    let no_watch = url(server.kubeconfig_of(&token, &namespace, &format!("https://{}", server.address())));
    let lease = Duration::from_secs(3);
    let detector = OverlapDetector::new();
    let mut one = stand(&url(server.kubeconfig(&namespace)), "one", lease, &detector);
    let first = one.leads().await;
    let mut other = stand(&no_watch, "other", lease, &detector);
    other.knows(first).await;
    one.election.stop();
    assert!(other.leads().await > first);
    detector.acts_do_not_overlap().unwrap();
}

#[tokio::test]
async fn a_seat_whose_token_is_above_the_revision_of_the_cluster_is_not_removed() {
    let server = Kubernetes::shared();
    let store = seats(&url(server.kubeconfig(&server.namespace())));
    assert!(matches!(store.swap(&seat(), None, &record(u64::MAX / 4)).await, Ok(Swap::Done { .. })));
    let error = store.forget(&seat()).await.unwrap_err();
    assert_eq!(error.fault(), Fault::Denied);
    assert!(error.to_string().contains("tokens would start over"), "{error}");
    assert!(store.read(&seat()).await.unwrap().seat.is_some());
}

#[tokio::test]
async fn options_a_context_and_a_custom_config_work_as_well() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let kubeconfig = server.kubeconfig(&namespace);
    let options = KubernetesOptions {
        namespace: Some(namespace.clone()),
        kubeconfig: Some(server.kubeconfig("default")),
        context: Some("test".to_owned()),
        in_cluster: false,
    };
    let one = SingleSeat::new(KubernetesStore::new(options).unwrap());
    assert!(matches!(one.swap(&seat(), None, &record(1)).await, Ok(Swap::Done { .. })));
    let read = kube::config::Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await.unwrap();
    assert!(
        SingleSeat::new(KubernetesStore::with_config(config.clone(), None)).read(&seat()).await.unwrap().seat.is_some()
    );
    let elsewhere = SingleSeat::new(KubernetesStore::with_config(config, Some("default")));
    assert_eq!(elsewhere.read(&seat()).await.unwrap().seat, None, "namespaces are independent");
    let error = KubernetesStore::from_url("kubernetes://Jobs").unwrap_err().to_string();
    assert!(error.contains("lower-case letters"), "{error}");
}

// -------------------------------------------------------------------------------------------------

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

/// Returns the error that a read fails with, after checking that it has this fault and is one line.
async fn fails(url: &str, fault: Fault) -> String {
    let error = within("an answer", seats(url).read(&seat())).await.expect_err("the read must fail");
    assert_eq!(error.fault(), fault, "{}", told(&error));
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error.to_string()
}

fn record(token: u64) -> Record {
    Record {
        holder: Some(Candidate { id: "me".into(), incarnation: Incarnation::from_bits(7) }),
        token: Token::new(token),
        lease: Duration::from_secs(60),
        since_ms: None,
        heir: None,
        priority: 0,
        ranked: false,
        metadata: Default::default(),
        nonce: rand::random(),
        claim: None,
        crash: None,
        unknown: Default::default(),
    }
}

/// Starts a server that gives the same answer to every request.
fn answers_with(answer: &str) -> std::net::SocketAddr {
    counts_and_answers(answer).0
}

/// Starts such a server, and returns a function that counts its requests.
fn counts_and_answers(answer: &str) -> (std::net::SocketAddr, impl Fn() -> usize + use<>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answer) = (listener.local_addr().unwrap(), answer.to_owned());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if stream.read(&mut [0; 4000]).is_ok_and(|read| read > 0) {
                requests.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    (address, move || count.load(Ordering::SeqCst))
}
