//! The roster, across restarts of processes and actions of operators.

mod support;

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
