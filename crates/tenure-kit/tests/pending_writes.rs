//! Writes that run to their end although their call was dropped, and reads that wait for them.

use std::future::Future;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tenure_core::{Answers, SeatName, StoreError};
use tenure_kit::PendingWrites;
use tokio::sync::oneshot;

/// A server: it says what it was asked, in order.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Vec<String>>>);

impl Server {
    fn says(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }

    fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Returns a write that ends when the sender is used or dropped.
    fn write(
        &self,
        what: &str,
    ) -> (oneshot::Sender<()>, impl Future<Output = Result<(), StoreError>> + Send + 'static) {
        let (end, ended) = oneshot::channel::<()>();
        let (server, what) = (self.clone(), what.to_owned());
        let write = async move {
            let _ = ended.await;
            server.says(&format!("{what} is written"));
            Ok(())
        };
        (end, write)
    }

    /// Reads seats, and returns which places were answered.
    async fn read(&self, writes: &PendingWrites, seats: &[SeatName]) -> Result<Vec<usize>, StoreError> {
        let places = Arc::new(Mutex::new(Vec::new()));
        let answered = places.clone();
        let to = Answers::new(move |place, answer: Result<String, StoreError>| {
            answer.unwrap();
            answered.lock().unwrap().push(place);
        });
        let read = |seats: Vec<SeatName>, to: Answers<String>| async move {
            let names: Vec<_> = seats.iter().map(SeatName::as_str).collect();
            self.says(&format!("read {}", names.join(" ")));
            (0..seats.len()).for_each(|at| to.set(at, Ok(names[at].to_owned())));
            Ok(())
        };
        writes.read(seats, &to, read).await?;
        Ok(places.lock().unwrap().clone())
    }
}

fn seats(names: &[&str]) -> Vec<SeatName> {
    names.iter().map(|name| SeatName::new(*name).unwrap()).collect()
}

/// Polls a call once, as the engine does before it drops it.
async fn poll_once(call: impl Future<Output = Result<(), StoreError>>) {
    assert!(Box::pin(call).now_or_never().is_none(), "the call must not end yet");
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn a_read_waits_for_a_write_whose_call_was_dropped_and_other_seats_do_not() {
    let (server, writes) = (Server::default(), PendingWrites::default());
    let (end, write) = server.write("b");
    poll_once(writes.run(seats(&["b"]), write)).await;
    let seats = seats(&["a", "b", "c"]);
    let mut read = Box::pin(server.read(&writes, &seats));
    assert!((&mut read).now_or_never().is_none());
    assert_eq!(server.said(), ["read a c"]);
    end.send(()).unwrap();
    assert_eq!(read.await.unwrap(), [0, 2, 1]);
    assert_eq!(server.said(), ["b is written", "read b"]);
    // Nothing is pending any more, so all seats share a call.
    assert_eq!(server.read(&writes, &seats).await.unwrap(), [0, 1, 2]);
    assert_eq!(server.said(), ["read a b c"]);
}

#[tokio::test]
async fn a_read_waits_for_all_writes_to_its_seat() {
    let (server, writes) = (Server::default(), PendingWrites::default());
    let [(first_ends, first), (second_ends, second)] = ["first", "second"].map(|what| server.write(what));
    poll_once(writes.run(seats(&["a"]), first)).await;
    drop(second_ends);
    writes.run(seats(&["a"]), second).await.unwrap();
    let seats = seats(&["a"]);
    let mut read = Box::pin(server.read(&writes, &seats));
    assert!((&mut read).now_or_never().is_none());
    first_ends.send(()).unwrap();
    read.await.unwrap();
    assert_eq!(server.said(), ["second is written", "first is written", "read a"]);
}

#[tokio::test]
async fn of_two_writes_to_a_seat_the_second_can_wait_for_the_first() {
    let (server, writes) = (Server::default(), PendingWrites::default());
    let (seat, [(first_ends, first), (second_ends, second), (never_ends, never)]) =
        (&seats(&["a"])[0], ["first", "second", "never"].map(|what| server.write(what)));
    poll_once(writes.run_alone(seat, first)).await;
    drop(second_ends);
    let mut second = Box::pin(writes.run_alone(seat, second));
    assert!((&mut second).now_or_never().is_none());
    // A write that is dropped while it waits is never sent.
    drop(never_ends);
    poll_once(writes.run_alone(seat, never)).await;
    first_ends.send(()).unwrap();
    second.await.unwrap();
    assert_eq!(server.said(), ["first is written", "second is written"]);
}

#[tokio::test]
async fn a_write_that_panics_is_unknown_and_no_longer_waited_for() {
    let (server, writes) = (Server::default(), PendingWrites::default());
    let write = async { panic!("a bug in the store") };
    let error = writes.run::<()>(seats(&["a"]), write).await.unwrap_err();
    assert_eq!(error.to_string(), "the write was interrupted before its answer arrived");
    assert_eq!(server.read(&writes, &seats(&["a"])).await.unwrap(), [0]);
}
