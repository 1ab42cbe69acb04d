//! Runs the samples of the older systems that live on leases of Azure Blob Storage over this store, each with two instances:
//! a hosted service and batches (Ibis.MutexLeaderElection), and a loop around a task of the leader (LeaderElection for .NET
//! with its blob storage package). The names are theirs: a container `leases`, and a blob for each election.

#![cfg(feature = "azure-blob")]
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "examples are programs, and only parts of them are used here"
)]

#[path = "../examples/batch_worker.rs"]
mod batch_worker;
#[path = "../examples/hosted_service.rs"]
mod hosted_service;
#[path = "../examples/run_if_leader.rs"]
mod run_if_leader;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::azure_blob::{AzureBlobOptions, AzureBlobStore};
use tenure::{CancellationToken, Elections, Term};
use tenure_testkit::servers::Azurite;

/// Returns the elections of one instance, with the options of the older systems: a connection string and a container.
fn instance(azurite: &Azurite) -> Elections {
    let options = AzureBlobOptions {
        connection_string: Some(Azurite::connection_string(&azurite.address()).as_str().into()),
        container: "leases".to_owned(),
        ..AzureBlobOptions::default()
    };
    Elections::new(AzureBlobStore::new(options).unwrap())
}

/// The work of all instances. It panics if two of them work at once.
#[derive(Clone, Default)]
struct Floor {
    working: Arc<AtomicUsize>,
    shifts: Arc<AtomicUsize>,
}

impl Floor {
    fn enter(&self) -> Shift {
        assert_eq!(self.working.fetch_add(1, Ordering::SeqCst), 0, "two instances work at once");
        self.shifts.fetch_add(1, Ordering::SeqCst);
        Shift(self.working.clone())
    }
}

struct Shift(Arc<AtomicUsize>);

impl Drop for Shift {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hosted_service_works_while_it_leads_and_the_other_instance_takes_over() {
    let (azurite, floor) = (Azurite::start(), Floor::default());
    let worker = |floor: &Floor| {
        let floor = floor.clone();
        async move |term: Term| {
            let _shift = floor.enter();
            term.ending().await;
        }
    };
    let (here, elsewhere) = (instance(&azurite), instance(&azurite));
    let one = hosted_service::start(here.election("background-job").candidate("here"), worker(&floor)).unwrap();
    let first = one.elected().await.unwrap().token();
    let other = hosted_service::start(elsewhere.election("background-job"), worker(&floor)).unwrap();
    hosted_service::stop(&one).await.unwrap();
    assert!(other.elected().await.unwrap().token() > first);
    hosted_service::stop(&other).await.unwrap();
    assert_eq!(floor.shifts.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_release_the_seat_and_run_in_turns() {
    let (azurite, floor, stopping) = (Azurite::start(), Floor::default(), CancellationToken::new());
    let (one, other) = (instance(&azurite), instance(&azurite));
    let batch = async |_: Term| {
        let _shift = floor.enter();
        tokio::time::sleep(Duration::from_millis(50)).await;
        if floor.shifts.load(Ordering::SeqCst) == 3 {
            stopping.cancel();
        }
    };
    let (one, other) = tokio::join!(
        batch_worker::worker(one.election("batches").candidate("one"), stopping.clone(), batch),
        batch_worker::worker(other.election("batches").candidate("other"), stopping.clone(), batch),
    );
    one.and(other).unwrap();
    assert!(floor.shifts.load(Ordering::SeqCst) >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_of_the_leader_runs_on_one_instance_and_then_on_the_other() {
    let (azurite, floor) = (Azurite::start(), Floor::default());
    let stops = [CancellationToken::new(), CancellationToken::new()];
    let (one, other) = (instance(&azurite), instance(&azurite));
    let task = |floor: Floor, stop: CancellationToken| {
        async move |_: Term| {
            let _shift = floor.enter();
            tokio::time::sleep(Duration::from_millis(20)).await;
            stop.cancel();
        }
    };
    let (one, other) = tokio::join!(
        run_if_leader::service(
            one.election("leader_election_tester"),
            stops[0].clone(),
            task(floor.clone(), stops[0].clone())
        ),
        run_if_leader::service(
            other.election("leader_election_tester"),
            stops[1].clone(),
            task(floor.clone(), stops[1].clone())
        ),
    );
    one.and(other).unwrap();
    assert_eq!(floor.shifts.load(Ordering::SeqCst), 2, "each instance has led and run the task once");
}
