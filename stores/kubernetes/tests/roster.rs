//! Who stands, over restarts of candidates and what operators do.

mod support;

use std::time::Duration;

use support::{until, url};
use tenure_core::{Board, DynNotes, NoteState, SeatName};
use tenure_kubernetes::KubernetesStore;
use tenure_testkit::servers::Kubernetes;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn what_processes_have_left_that_are_gone_is_removed_by_one_that_starts() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let url = url(server.kubeconfig(&namespace));
    let lives = store(&url);
    let one = announce(&lives, LONG).await;
    for _ in 0..5 {
        // Each was killed right after it had announced itself.
        announce(&store(&url), SHORT).await;
    }
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let left = || server.must("GET", &path, "").matches("\"uid\"").count();
    assert_eq!(left(), 12);
    tokio::time::sleep(Duration::from_secs(26)).await;
    let next = store(&url);
    let two = announce(&next, LONG).await;
    until("what is left is removed", || left() == 4).await;
    let mut listed: Vec<_> = list(&lives).await;
    listed.sort();
    let mut there = vec![one, two];
    there.sort();
    assert_eq!(listed, there);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_just_come_does_not_list_those_who_have_left() {
    let server = Kubernetes::shared();
    let url = url(server.kubeconfig(&server.namespace()));
    let gone = announce(&store(&url), SHORT).await;
    let there = announce(&store(&url), LONG).await;
    // Listed by a newcomer each time, who can go by nothing but what the server says.
    let mut listed = list(&store(&url)).await;
    while listed.contains(&gone) {
        assert!(listed.contains(&there), "{listed:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        listed = list(&store(&url)).await;
    }
    assert_eq!(listed, [there]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_been_there_for_long_is_listed_by_those_who_have_just_come() {
    let server = Kubernetes::shared();
    let url = url(server.kubeconfig(&server.namespace()));
    let lives = store(&url);
    let one = announce(&lives, SHORT * 4).await;
    // Longer than a lifetime and all that is allowed for.
    for _ in 0..10 {
        tokio::time::sleep(SHORT).await;
        is_there(&lives, &one, SHORT * 4).await;
    }
    assert_eq!(list(&store(&url)).await, [one]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_object_an_operator_has_deleted_announces_itself_anew() {
    let server = Kubernetes::shared();
    let namespace = server.namespace();
    let store = store(&url(server.kubeconfig(&namespace)));
    let process = announce(&store, LONG).await;
    assert_eq!(is_there(&store, &process, LONG).await, NoteState::Present);
    let which = "labelSelector=tenure.election%2Fnote%3Dprocesses";
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?{which}");
    server.must("DELETE", &path, "");
    assert!(list(&store).await.is_empty());
    assert_eq!(is_there(&store, &process, LONG).await, NoteState::Absent);
    assert_eq!(is_there(&store, &process, LONG).await, NoteState::Present);
    assert_eq!(list(&store).await, [process]);
}

/// A new process that is there for so long, and stands. Returns its key.
async fn announce(store: &KubernetesStore, lifetime: Duration) -> String {
    let key = format!("{:016x}", rand::random::<u64>());
    assert_eq!(is_there(store, &key, lifetime).await, NoteState::Absent);
    let notes: &dyn DynNotes = store;
    notes.put_one(&Board::Candidates(seat()), &key, "{}", lifetime).await.unwrap();
    key
}

async fn is_there(store: &KubernetesStore, key: &str, lifetime: Duration) -> NoteState {
    let notes: &dyn DynNotes = store;
    notes.put_one(&Board::Processes, key, "{}", lifetime).await.unwrap()
}

/// The processes that are there.
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
