//! Connections are opened once, shared, and replaced when they break or fall silent.

use std::error::Error as _;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Fault, StoreError};
use tenure_kit::{Connection, Liveness, Patience, Reconnect};
use tokio::time::{Instant, sleep, timeout};

struct Link {
    number: usize,
    liveness: Liveness,
    open: Arc<AtomicUsize>,
    is_ageing: AtomicBool,
}

impl Connection for Link {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    fn is_ageing(&self) -> bool {
        self.is_ageing.load(Ordering::Relaxed)
    }

    fn not_replaced(&self, _: &StoreError) {
        self.is_ageing.store(false, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A server: how it treats connection attempts, and how many connections were and are open.
#[derive(Clone, Default)]
struct Server {
    behaviour: Arc<Mutex<Behaviour>>,
    opened: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Default)]
enum Behaviour {
    #[default]
    Quick,
    Slow(Duration),
    Silent,
    Refusing,
}

impl Server {
    fn line(&self) -> Reconnect<Link> {
        let server = self.clone();
        Reconnect::new(move || server.clone().connect())
    }

    fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    async fn connect(self) -> Result<Link, StoreError> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let behaviour = *self.behaviour.lock().unwrap();
        match behaviour {
            Behaviour::Quick => {}
            Behaviour::Slow(span) => sleep(span).await,
            Behaviour::Silent => pending().await,
            Behaviour::Refusing => {
                sleep(Duration::from_millis(1)).await;
                return Err(StoreError::denied("the server says no").because("its reason"));
            }
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let (liveness, open) = (Liveness::new(), self.open.clone());
        Ok(Link { number, liveness, open, is_ageing: AtomicBool::new(false) })
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Makes a call that is cancelled after a while, without an answer.
async fn unanswered(link: &Link, after: Duration, patience: Patience) {
    let waiting = link.liveness.waiting(patience);
    sleep(after).await;
    drop(waiting);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_opened_before_the_first_call_and_all_calls_share_one_connection() {
    let server = Server::default();
    server.behave(Behaviour::Slow(SECOND));
    let line = server.line();
    assert_eq!((server.opened(), line.current().is_some()), (0, false));
    let (one, other) = tokio::join!(line.get(), line.get());
    assert!(Arc::ptr_eq(&one.unwrap(), &other.unwrap()));
    assert_eq!((line.get().await.unwrap().number, line.current().unwrap().number, server.opened()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_continues_when_its_call_is_cancelled() {
    let server = Server::default();
    server.behave(Behaviour::Slow(SECOND));
    let line = server.line();
    assert!(timeout(SECOND / 2, line.get()).await.is_err());
    sleep(SECOND * 60).await;
    assert_eq!((line.get().await.unwrap().number, server.opened()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_abandoned_by_the_next_call() {
    let server = Server::default();
    server.behave(Behaviour::Silent);
    let line = server.line().stale_after(SECOND);
    for _ in 0..3 {
        assert!(timeout(SECOND / 2, line.get()).await.is_err());
    }
    assert_eq!(server.opened(), 2, "one, and another after a second");
    server.behave(Behaviour::Quick);
    sleep(SECOND).await;
    assert_eq!(line.get().await.unwrap().number, 3);
}

#[tokio::test(start_paused = true)]
async fn all_waiting_calls_get_the_same_error_and_the_next_call_tries_again() {
    let server = Server::default();
    server.behave(Behaviour::Refusing);
    let line = server.line();
    let (one, other) = tokio::join!(line.get(), line.get());
    for error in [one.err().unwrap(), other.err().unwrap()] {
        assert_eq!((error.fault(), error.to_string().as_str()), (Fault::Denied, "the server says no"));
        assert_eq!(error.source().unwrap().to_string(), "its reason");
    }
    assert_eq!(server.opened(), 1);
    server.behave(Behaviour::Quick);
    assert_eq!(line.get().await.unwrap().number, 2);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_no_call_waited_for_is_dropped() {
    let server = Server::default();
    server.behave(Behaviour::Refusing);
    let line = server.line();
    assert!(timeout(Duration::ZERO, line.get()).await.is_err());
    sleep(SECOND).await;
    server.behave(Behaviour::Quick);
    assert_eq!(line.get().await.unwrap().number, 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_closed_is_replaced_and_its_watch_ends() {
    let server = Server::default();
    let line = server.line();
    let link = line.get().await.unwrap();
    let closed = link.liveness.closed();
    link.liveness.close();
    closed.await;
    assert!(line.current().is_none());
    assert_eq!(line.get().await.unwrap().number, 2);
    drop(link);
    assert_eq!(server.open(), 1, "the first one was dropped");
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_connection_does_not_keep_it() {
    let server = Server::default();
    let line = server.line();
    let closed = line.get().await.unwrap().liveness.closed();
    drop(line);
    assert_eq!(server.open(), 0);
    closed.await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_fell_silent_is_closed_once_another_one_is_open() {
    let server = Server::default();
    let line = server.line();
    let link = line.get().await.unwrap();
    let closed = link.liveness.closed();
    unanswered(&link, SECOND, Patience::default()).await;
    server.behave(Behaviour::Silent);
    assert!(timeout(SECOND * 6, line.get()).await.is_err());
    assert!(!link.liveness.is_closed(), "no other connection is open yet");
    server.behave(Behaviour::Quick);
    assert_eq!(line.get().await.unwrap().number, 3);
    closed.await;
}

#[tokio::test(start_paused = true)]
async fn a_doubted_connection_stays_in_use_while_no_other_can_be_opened() {
    let server = Server::default();
    let line = server.line();
    let link = line.get().await.unwrap();
    unanswered(&link, SECOND, Patience::default()).await;
    server.behave(Behaviour::Refusing);
    let (one, other) = tokio::join!(line.get(), line.get());
    assert_eq!((one.unwrap().number, other.unwrap().number, server.opened()), (1, 1, 2), "both waited for one attempt");

    // If it does not answer, the doubt stays, so that each further call tries to replace it.
    unanswered(&link, SECOND, Patience::default()).await;
    assert_eq!((line.get().await.unwrap().number, server.opened()), (1, 3));
    server.behave(Behaviour::Quick);
    assert_eq!((line.get().await.unwrap().number, link.liveness.is_closed()), (4, true));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_while_it_is_replaced_is_not_used_again() {
    let server = Server::default();
    let line = server.line();
    let link = line.get().await.unwrap();
    unanswered(&link, SECOND, Patience::default()).await;
    server.behave(Behaviour::Refusing);
    let (got, ()) = tokio::join!(line.get(), async { link.liveness.close() });
    assert_eq!(got.err().unwrap().to_string(), "the server says no");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_only_slow_stays_and_its_replacement_is_dropped() {
    let server = Server::default();
    let line = server.line();
    let link = line.get().await.unwrap();
    unanswered(&link, SECOND, Patience::default()).await;
    server.behave(Behaviour::Slow(SECOND));
    assert!(timeout(SECOND / 2, line.get()).await.is_err());
    link.liveness.heard();
    assert_eq!(line.get().await.unwrap().number, 1);
    sleep(SECOND).await;
    assert_eq!((server.opened(), server.open()), (2, 1), "the second one was abandoned");

    // The same if something is received only while a call waits for the replacement.
    unanswered(&link, SECOND, Patience::default()).await;
    let (got, ()) = tokio::join!(line.get(), async {
        sleep(SECOND / 2).await;
        link.liveness.heard();
    });
    assert_eq!(got.unwrap().number, 1);
    assert_eq!((server.opened(), server.open()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_proves_nothing_if_it_was_short_or_anything_was_received() {
    let server = Server::default();
    let link = server.line().get().await.unwrap();
    unanswered(&link, Duration::from_millis(19), Patience::default()).await;
    assert!(link.liveness.is_good(), "the call was short");
    link.liveness.heard();
    tokio::join!(unanswered(&link, SECOND, Patience::default()), async {
        sleep(SECOND / 2).await;
        let waiting = link.liveness.waiting(Patience::default());
        waiting.answered();
        // A later call waits in silence, but for a shorter time.
        link.liveness.waiting(Patience::default()).failed();
    });
    assert!(link.liveness.is_good(), "something was received");
}

#[tokio::test(start_paused = true)]
async fn with_more_patience_the_first_silent_call_is_not_enough() {
    let server = Server::default();
    let link = server.line().get().await.unwrap();
    let patience = Patience { at_least: Duration::ZERO, times: 2 };
    unanswered(&link, SECOND, patience).await;
    assert!(link.liveness.is_good());
    unanswered(&link, SECOND, patience).await;
    assert!(!link.liveness.is_good());
    link.liveness.heard();
    assert!(link.liveness.is_good());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_when_the_store_is_dropped() {
    let server = Server::default();
    server.behave(Behaviour::Slow(SECOND));
    let line = server.line();
    assert!(timeout(SECOND / 2, line.get()).await.is_err());
    drop(line);
    sleep(SECOND * 2).await;
    assert_eq!((server.opened(), server.open()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn quiet_for_counts_from_the_last_receipt_on_a_connection() {
    let liveness = Liveness::new();
    sleep(SECOND).await;
    assert_eq!(liveness.quiet_for(), SECOND, "counted from its opening");
    // Sending a call is no sign of life from the server.
    liveness.waiting(Patience::default()).failed();
    assert_eq!(liveness.quiet_for(), SECOND);
    liveness.heard();
    sleep(SECOND / 2).await;
    assert_eq!(liveness.quiet_for(), SECOND / 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_stays_on_a_doubted_connection_until_it_is_closed() {
    let server = Server::default();
    let line = server.line();
    assert!(line.open().is_none());
    let link = line.get().await.unwrap();
    unanswered(&link, SECOND, Patience::default()).await;
    assert_eq!((line.current().is_some(), line.open().map(|link| link.number)), (false, Some(1)));
    link.liveness.close();
    assert!(line.open().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_ageing_connection_stays_in_use_until_its_replacement_is_open() {
    let server = Server::default();
    let line = server.line();
    let first = line.get().await.unwrap();
    first.is_ageing.store(true, Ordering::Relaxed);
    server.behave(Behaviour::Slow(SECOND));
    for _ in 0..2 {
        assert_eq!(line.get().await.unwrap().number, 1, "no call waits");
    }
    sleep(SECOND * 2).await;
    let second = line.get().await.unwrap();
    assert_eq!((second.number, first.liveness.is_closed(), server.opened()), (2, true, 2));

    second.is_ageing.store(true, Ordering::Relaxed);
    server.behave(Behaviour::Refusing);
    assert_eq!(line.get().await.unwrap().number, 2);
    sleep(SECOND).await;
    assert_eq!((line.get().await.unwrap().number, second.is_ageing(), server.opened()), (2, false, 3));
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_within_its_limit_and_makes_the_connection_doubted() {
    let (liveness, began) = (Liveness::new(), Instant::now());
    liveness.limit_silence(SECOND * 6);
    liveness.limit_silence(SECOND * 8);
    liveness.fell_silent(pending::<()>).await;
    assert_eq!((began.elapsed(), liveness.is_good(), liveness.is_closed()), (SECOND * 6, false, false));
}

#[tokio::test(start_paused = true)]
async fn only_a_quiet_server_is_pinged_and_one_that_answers_is_not_silent() {
    let (liveness, pings) = (Liveness::new(), AtomicUsize::new(0));
    liveness.limit_silence(SECOND * 6);
    let answered = || async {
        sleep(SECOND).await;
        pings.fetch_add(1, Ordering::Relaxed);
    };
    assert!(timeout(SECOND * 41, liveness.fell_silent(answered)).await.is_err());
    assert_eq!(pings.load(Ordering::Relaxed), 10, "after three seconds, and an answer a second later");
    let pushes = async {
        for _ in 0..20 {
            liveness.heard();
            sleep(SECOND * 2).await;
        }
    };
    tokio::select! {
        () = liveness.fell_silent(answered) => panic!("it was not silent"),
        () = pushes => {}
    }
    assert_eq!(pings.load(Ordering::Relaxed), 10, "pushes need no pings");
}

#[tokio::test(start_paused = true)]
async fn something_received_during_a_ping_ends_the_silence() {
    let (liveness, began) = (Liveness::new(), Instant::now());
    liveness.limit_silence(SECOND * 6);
    tokio::join!(liveness.fell_silent(pending::<()>), async {
        sleep(SECOND * 5).await;
        liveness.heard();
    });
    // The ping that was not answered ends at six seconds, and the next one is sent eight seconds after the start.
    assert_eq!(began.elapsed(), SECOND * 11);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_limit_counts_at_once() {
    let (liveness, began) = (Liveness::new(), Instant::now());
    tokio::join!(liveness.fell_silent(pending::<()>), async {
        sleep(SECOND).await;
        liveness.limit_silence(SECOND * 6);
    });
    assert_eq!(began.elapsed(), SECOND * 6);
}
