//! Connections that run one batch of statements at a time, through a relay.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Candidate, Expect, Incarnation, Record, SeatName, Token, Write};
use tenure_kit::socket::{Address, Relay};
use tenure_kit::sql::{BatchClient, BatchConnection, BatchError, LockConnection, WriteSet, want};
use tenure_kit::{Connection, Liveness};
use tokio::time::timeout;

/// A client whose batches take some time, and may fail.
struct Slow(Arc<AtomicU32>);

#[derive(Debug, PartialEq)]
enum Broken {
    Unanswered,
    Closed,
    NoTable,
}

impl BatchError for Broken {
    fn unanswered() -> Self {
        Self::Unanswered
    }

    fn ends_the_connection(&self) -> bool {
        *self != Self::NoTable
    }

    fn is_missing_table(&self) -> bool {
        *self == Self::NoTable
    }
}

impl BatchClient for Slow {
    type Batch = (Duration, Option<Broken>);
    type Results = u32;
    type Error = Broken;

    async fn run(&mut self, (time, error): Self::Batch) -> Result<u32, Broken> {
        tokio::time::sleep(time).await;
        match error {
            Some(error) => Err(error),
            None => Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1),
        }
    }
}

/// Opens a connection. Returns it, and the server's end of its socket.
async fn connection() -> (Arc<BatchConnection<Slow, ()>>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Host(listener.local_addr().unwrap().to_string());
    let (liveness, (driver, relayed)) = (Arc::new(Liveness::new()), tokio::io::duplex(64));
    // The driver's end stays open.
    std::mem::forget(driver);
    let relay = Relay::open(&address, liveness.clone(), async { Ok(relayed) }).await.unwrap();
    let client = Slow(Arc::new(AtomicU32::new(0)));
    (Arc::new(BatchConnection::new(client, (), liveness, relay)), listener.accept().unwrap().0)
}

const MOMENT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_batch_whose_call_is_dropped_runs_to_its_end_and_the_next_one_waits_for_it() {
    let (connection, _server) = connection().await;
    assert!(timeout(MOMENT / 5, connection.run((MOMENT, None))).await.is_err());
    assert_eq!(connection.run((Duration::ZERO, None)).await, Ok(2));
}

#[tokio::test]
async fn the_end_of_a_connection_is_noticed_between_two_batches() {
    let (connection, server) = connection().await;
    drop(server);
    timeout(MOMENT * 100, connection.liveness().closed()).await.expect("the end is noticed");
}

#[tokio::test]
async fn an_error_that_ends_the_connection_closes_its_socket_even_if_there_is_a_duplicate() {
    let (connection, mut server) = connection().await;
    #[cfg(unix)]
    let _duplicate = connection.lifeline().unwrap();
    assert_eq!(connection.run((Duration::ZERO, Some(Broken::Closed))).await, Err(Broken::Closed));
    assert!(connection.liveness().is_closed());
    let end = tokio::task::spawn_blocking(move || server.read(&mut [0]).unwrap()).await.unwrap();
    assert_eq!(end, 0);
}

#[tokio::test]
async fn a_missing_table_makes_the_next_call_open_another_connection() {
    let (connection, _server) = connection().await;
    assert_eq!(connection.run((Duration::ZERO, Some(Broken::NoTable))).await, Err(Broken::NoTable));
    assert!(!connection.liveness().is_closed() && !connection.liveness().is_good());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_answered_closes_the_connection() {
    let (connection, _server) = connection().await;
    assert_eq!(connection.run((Duration::from_secs(60), None)).await, Err(Broken::Unanswered));
    assert!(connection.liveness().is_closed());
}

#[test]
fn the_seats_of_a_statement_have_their_places_and_no_null_members() {
    let seat = SeatName::new("jobs").unwrap();
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(7) };
    let record = Record::new(Some(holder), Token::new(3), Duration::from_secs(1));
    let write = Write { seat: seat.clone(), expect: Expect::Absent(None), record };
    let lost = Mutex::new(0);
    let to = tenure_core::Answers::new(move |_, _| *lost.lock().unwrap() += 1);
    let sets = WriteSet::split([(0, &write)].into_iter(), |_| "11".to_owned(), &to);
    let wanted = want::writes(&sets[0], Some(5), |_| None);
    assert_eq!((wanted[0]["place"].as_i64(), wanted[0]["name"].as_str()), (Some(1), Some("6a6f6273")));
    assert_eq!((wanted[0]["session"].as_i64(), wanted[0]["version"].as_str()), (Some(5), Some("11")));
    for missing in ["held", "held_by", "identity", "lock_name"] {
        assert!(wanted[0].get(missing).is_none(), "{missing}");
    }
    let locked = want::seats(&[seat], |seat| Some(format!("lock of {}", seat.as_str())));
    assert_eq!(locked[0]["lock_name"].as_str(), Some("lock of jobs"));
}
