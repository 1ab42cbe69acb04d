//! The roster, across restarts of processes and actions of operators.

mod support;

use std::io::{Read, Write};
use std::time::Duration;

use support::{until, url};
use tenure_core::{Board, DynNotes, NoteState, SeatName};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::servers::Kubernetes;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_starts_removes_the_notes_of_processes_long_gone() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let url = url(server.kubeconfig(&namespace));
    let running = store(&url);
    let one = announce(&running, LONG).await;
    for _ in 0..5 {
        // Each of these processes was killed right after it had announced itself.
        announce(&store(&url), SHORT).await;
    }
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let left = || server.must("GET", &path, "").matches("\"uid\"").count();
    assert_eq!(left(), 12);
    tokio::time::sleep(Duration::from_secs(26)).await;
    let next = store(&url);
    let two = announce(&next, LONG).await;
    until("old notes are removed", || left() == 4).await;
    let mut listed: Vec<_> = list(&running).await;
    listed.sort();
    let mut expected = vec![one, two];
    expected.sort();
    assert_eq!(listed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_does_not_list_processes_that_have_ended() {
    let server = Kubernetes::shared();
    let url = url(server.kubeconfig(&server.namespace()));
    let gone = announce(&store(&url), SHORT).await;
    let present = announce(&store(&url), LONG).await;
    // Each list is by a new store, which has only the server's clock to decide by.
    let mut listed = list(&store(&url)).await;
    while listed.contains(&gone) {
        assert!(listed.contains(&present), "{listed:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        listed = list(&store(&url)).await;
    }
    assert_eq!(listed, [present]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_lists_a_process_that_has_run_for_long() {
    let server = Kubernetes::shared();
    let url = url(server.kubeconfig(&server.namespace()));
    let running = store(&url);
    let one = announce(&running, SHORT * 4).await;
    // For longer than the lifetime and all tolerances.
    for _ in 0..10 {
        tokio::time::sleep(SHORT).await;
        announce_process(&running, &one, SHORT * 4).await;
    }
    assert_eq!(list(&store(&url)).await, [one]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_object_was_deleted_by_an_operator_announces_itself_again() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let store = store(&url(server.kubeconfig(&namespace)));
    let process = announce(&store, LONG).await;
    assert_eq!(announce_process(&store, &process, LONG).await, NoteState::Present);
    let which = "labelSelector=tenure.election%2Fnote%3Dprocesses";
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?{which}");
    server.must("DELETE", &path, "");
    assert!(list(&store).await.is_empty());
    assert_eq!(announce_process(&store, &process, LONG).await, NoteState::Absent);
    assert_eq!(announce_process(&store, &process, LONG).await, NoteState::Present);
    assert_eq!(list(&store).await, [process]);
}

/// Otherwise a process that was listed as gone, and has announced itself again, would be missing from the roster.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_note_is_deleted_only_as_it_was_read() {
    let object = serde_json::json!({
        "metadata": {
            "name": "note", "uid": "the-uid", "resourceVersion": "7", "creationTimestamp": "2020-01-01T00:00:00Z",
            "annotations": {
                "tenure.election/key": "one", "tenure.election/value": "{}", "tenure.election/lifetime-ms": "1000"
            }
        }
    });
    let list = serde_json::json!({ "metadata": { "resourceVersion": "9" }, "items": [object] }).to_string();
    // The second request is the deletion, and the object has changed meanwhile.
    let answers = [("200 OK", list), ("409 Conflict", "{}".to_owned())];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let kubernetes = Kubernetes::shared();
    let kubeconfig = kubernetes.kubeconfig_by("default", &format!("http://{}", listener.local_addr().unwrap()));
    let server = std::thread::spawn(move || {
        answers.map(|(status, body)| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 10_000];
            let read = stream.read(&mut request).unwrap();
            let head = "Date: Wed, 18 Nov 2026 00:00:00 GMT\r\nConnection: close";
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        })
    });
    let store = store(&url(kubeconfig));
    let notes: &dyn DynNotes = &store;
    assert_eq!(notes.list_one(&Board::Requests(seat())).await.unwrap(), []);
    let [_, deletion] = server.join().unwrap();
    assert!(deletion.starts_with("DELETE "), "{deletion}");
    let options: serde_json::Value = serde_json::from_str(deletion.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(options["preconditions"], serde_json::json!({ "uid": "the-uid", "resourceVersion": "7" }));
}

/// Announces a new process with this lifetime, and a candidate of it. Returns the key of the process.
async fn announce(store: &KubernetesStore, lifetime: Duration) -> String {
    let key = format!("{:016x}", rand::random::<u64>());
    assert_eq!(announce_process(store, &key, lifetime).await, NoteState::Absent);
    let notes: &dyn DynNotes = store;
    notes.put_one(&Board::Candidates(seat()), &key, "{}", lifetime).await.unwrap();
    key
}

async fn announce_process(store: &KubernetesStore, key: &str, lifetime: Duration) -> NoteState {
    let notes: &dyn DynNotes = store;
    notes.put_one(&Board::Processes, key, "{}", lifetime).await.unwrap()
}

/// Lists the running processes.
async fn list(store: &KubernetesStore) -> Vec<String> {
    let notes: &dyn DynNotes = store;
    let notes = notes.list_one(&Board::Processes).await.unwrap();
    notes.into_iter().map(|note| note.key).collect()
}

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

fn store(url: &str) -> KubernetesStore {
    KubernetesStore::from_url(url).unwrap()
}
