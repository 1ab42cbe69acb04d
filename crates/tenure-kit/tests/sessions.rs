//! Sessions are opened once per lease, remembered, renewed for all seats, and reported when they end.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{
    Answers, Call, Change, Clock, InterestChange, Life, ManualClock, Moment, News, Promises, Push, Reading, Record,
    Seat, SeatInterest, SeatName, SeatStore, Seen, SingleSeat, Store, StoreError, Swap, Token, Version, Write,
};
use tenure_kit::{HeartbeatReply, ReadySessions, Session, Sessions};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

const LEASE: Duration = Duration::from_secs(12);

/// A server that keeps sessions, and how it behaves.
#[derive(Clone)]
struct Server {
    clock: ManualClock,
    opened: Arc<AtomicUsize>,
    beats: Arc<AtomicUsize>,
    /// How long an answer takes.
    slow: Arc<Mutex<Duration>>,
    refuses: Arc<AtomicBool>,
    /// All sessions have ended.
    over: Arc<AtomicBool>,
    closed: Arc<watch::Sender<bool>>,
    lapses: bool,
}

struct One {
    name: String,
    server: Server,
}

impl Server {
    fn new() -> Self {
        Self {
            clock: ManualClock::new(),
            opened: Arc::default(),
            beats: Arc::default(),
            slow: Arc::new(Mutex::new(Duration::from_millis(1))),
            refuses: Arc::default(),
            over: Arc::default(),
            closed: Arc::new(watch::Sender::new(false)),
            lapses: true,
        }
    }

    fn sessions(&self) -> Sessions<One> {
        let server = self.clone();
        let sessions = Sessions::new(move |lease: Duration, _| server.clone().open(lease));
        sessions.attach(&self.clock.clone().into(), &News::unheard());
        sessions
    }

    fn counts(&self) -> (usize, usize) {
        (self.opened.load(Ordering::Relaxed), self.beats.load(Ordering::Relaxed))
    }

    async fn answers(&self) -> Result<(), StoreError> {
        let slow = *self.slow.lock().unwrap();
        sleep(slow).await;
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(StoreError::refused("the server says no").because("its reason")),
            false => Ok(()),
        }
    }

    async fn open(self, lease: Duration) -> Result<One, StoreError> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        self.answers().await?;
        Ok(One { name: format!("{number} for {lease:?}"), server: self })
    }
}

impl Session for One {
    type Report = usize;

    fn name(&self) -> tenure_core::SessionId {
        tenure_core::SessionId::new(self.name.as_str())
    }

    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<usize>, StoreError> {
        let number = self.server.beats.fetch_add(1, Ordering::Relaxed) + 1;
        self.server.answers().await?;
        match self.server.over.load(Ordering::Relaxed) {
            true => Ok(HeartbeatReply::Over),
            false => Ok(HeartbeatReply::Alive(sent, number)),
        }
    }

    fn lapses(&self) -> bool {
        self.server.lapses
    }

    fn closed(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closed = self.server.closed.subscribe();
        async move {
            let _ = closed.wait_for(|closed| *closed).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_one_session_per_lease_and_it_is_known_as_our_own() {
    let server = Server::new();
    let sessions = server.sessions();
    let (one, same) = tokio::join!(sessions.get(LEASE), sessions.get(LEASE));
    let (one, same) = (one.unwrap(), same.unwrap());
    assert!(Arc::ptr_eq(&one, &same));
    let other = sessions.get(LEASE * 2).await.unwrap();
    assert_eq!((server.counts().0, other.lease, sessions.live().len()), (2, LEASE * 2, 2));
    assert!(sessions.is_own(&one.name) && sessions.is_own(&other.name));
    assert!(!sessions.is_own("another's"));
    assert!(Arc::ptr_eq(&sessions.find(&one.name).unwrap(), &one));
}

#[tokio::test(start_paused = true)]
async fn opening_a_session_continues_when_its_call_is_cancelled() {
    let server = Server::new();
    *server.slow.lock().unwrap() = Duration::from_secs(1);
    let sessions = server.sessions();
    assert!(timeout(Duration::from_millis(1), sessions.get(LEASE)).await.is_err());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(sessions.live().len(), 1);
    sessions.get(LEASE).await.unwrap();
    assert_eq!(server.counts().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_opening_is_an_error_for_all_waiting_calls_and_the_next_call_tries_again() {
    let server = Server::new();
    server.refuses.store(true, Ordering::Relaxed);
    let sessions = server.sessions();
    let (one, other) = tokio::join!(sessions.get(LEASE), sessions.get(LEASE));
    assert_eq!([one, other].map(|error| error.unwrap_err().to_string()), ["the server says no"; 2]);
    assert_eq!(server.counts().0, 1);
    server.refuses.store(false, Ordering::Relaxed);
    assert!(sessions.get(LEASE).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn one_heartbeat_serves_all_callers_and_a_later_one_those_that_need_it() {
    let server = Server::new();
    let session = server.sessions().get(LEASE).await.unwrap();
    let (one, same) = tokio::join!(session.beat(|_| true), session.beat(|_| true));
    assert_eq!((one.unwrap().number, same.unwrap().number, server.counts().1), (1, 1, 1));
    // The last heartbeat is used as long as it suits.
    assert_eq!(session.beat(|_| true).await.unwrap().number, 1);
    // The heartbeat in flight does not suit, so another one follows, for all callers that need it.
    let early = session.beat(|beat| beat.number >= 2);
    let late = async {
        sleep(Duration::from_micros(500)).await;
        tokio::join!(session.beat(|beat| beat.number >= 3), session.beat(|beat| beat.number >= 3))
    };
    let (early, (late, same)) = tokio::join!(early, late);
    assert_eq!((early.unwrap().number, late.unwrap().number, same.unwrap().number), (2, 3, 3));
    // A condition that no heartbeat meets does not loop forever.
    assert_eq!(session.beat(|_| false).await.unwrap().number, 4);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_from_before_a_write_does_not_answer_a_later_renewal() {
    let server = Server::new();
    let session = server.sessions().get(LEASE).await.unwrap();
    assert_eq!(session.beat(|_| true).await.unwrap().number, 1);
    session.outdate();
    assert_eq!(session.beat(|_| true).await.unwrap().number, 2, "the last heartbeat is outdated");
    // A heartbeat that is in flight at the write is outdated too. The caller that began it still gets it.
    let before = session.beat(|beat| beat.number > 2);
    let after = async {
        sleep(Duration::from_micros(500)).await;
        session.outdate();
        session.beat(|_| true).await
    };
    let (before, after) = tokio::join!(before, after);
    assert_eq!((before.unwrap().number, after.unwrap().number), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_counts_from_its_send_and_continues_when_its_call_is_cancelled() {
    let server = Server::new();
    let session = server.sessions().get(LEASE).await.unwrap();
    let opened = session.renewed();
    server.clock.advance(Duration::from_secs(3));
    let sent = server.clock.now();
    assert!(timeout(Duration::from_micros(10), session.beat(|_| true)).await.is_err());
    server.clock.advance(Duration::from_secs(2));
    assert_eq!(session.renewed(), opened);
    sleep(Duration::from_secs(1)).await;
    assert_eq!((session.renewed(), session.beat(|_| true).await.unwrap().sent), (sent, sent));
}

#[tokio::test(start_paused = true)]
async fn for_a_bid_an_old_session_is_renewed_and_an_ended_one_replaced() {
    let server = Server::new();
    let sessions = server.sessions();
    let first = sessions.fresh(LEASE, LEASE / 2).await.unwrap();
    server.clock.advance(LEASE / 2);
    sessions.fresh(LEASE, LEASE / 2).await.unwrap();
    assert_eq!(server.counts(), (1, 0), "it was opened recently");
    server.clock.advance(Duration::from_secs(1));
    sessions.fresh(LEASE, LEASE / 2).await.unwrap();
    assert_eq!((server.counts(), first.renewed()), ((1, 1), server.clock.now()));
    server.clock.advance(LEASE);
    let second = sessions.fresh(LEASE, LEASE / 2).await.unwrap();
    assert_eq!((server.counts(), first.is_over()), ((2, 1), true), "it was not renewed for a lease");
    assert!(sessions.find(&first.name).is_none() && sessions.is_own(&first.name));
    assert!(first.beat(|_| true).await.is_err(), "its last heartbeat does not count either");
    assert!(!second.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_server_has_ended_stays_ended() {
    let server = Server::new();
    let sessions = server.sessions();
    let session = sessions.get(LEASE).await.unwrap();
    let over = session.over();
    server.over.store(true, Ordering::Relaxed);
    assert!(session.beat(|_| true).await.is_err());
    over.await;
    server.over.store(false, Ordering::Relaxed);
    assert!(session.beat(|_| true).await.is_err());
    assert_ne!(sessions.get(LEASE).await.unwrap().name(), session.name());
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_revive_an_abandoned_session() {
    let server = Server::new();
    let sessions = server.sessions();
    let session = sessions.get(LEASE).await.unwrap();
    let (answer, ()) = tokio::join!(session.beat(|_| true), async {
        server.clock.advance(LEASE);
        assert!(session.beat(|_| true).await.is_err(), "a lease without an answer");
    });
    assert!(answer.is_err() && session.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_lapse_ends_only_with_its_connection() {
    let server = Server { lapses: false, ..Server::new() };
    let sessions = server.sessions();
    let session = sessions.get(LEASE).await.unwrap();
    server.clock.advance(LEASE * 10);
    sessions.fresh(LEASE, Duration::ZERO).await.unwrap();
    assert!(session.beat(|_| true).await.is_ok());
    let over = session.over();
    server.closed.send_replace(true);
    over.await;
    assert!(session.is_over() && sessions.live().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_is_kept_ready_while_a_guard_exists() {
    let server = Server::new();
    let sessions = server.sessions();
    let (ready, same) = (sessions.keep_warm(LEASE), sessions.keep_warm(LEASE));
    for _ in 0..9 {
        sleep(LEASE / 3).await;
        server.clock.advance(LEASE / 3);
    }
    let (opened, beats) = server.counts();
    assert!(opened == 1 && (7..=9).contains(&beats), "{opened} opened, {beats} heartbeats");
    drop(same);
    server.over.store(true, Ordering::Relaxed);
    sleep(LEASE).await;
    server.over.store(false, Ordering::Relaxed);
    sleep(LEASE).await;
    assert_eq!((sessions.live().len(), server.counts().0), (1, 2), "another one was opened when it ended");
    drop(ready);
    let before = server.counts();
    server.clock.advance(LEASE / 2);
    sleep(LEASE * 3).await;
    assert_eq!(server.counts(), before);
    drop(sessions.keep_warm(LEASE));
    let _ready = sessions.keep_warm(LEASE);
    drop(sessions);
    sleep(LEASE * 3).await;
    assert_eq!(server.counts(), before, "nothing is renewed once the store is dropped");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_ready_only_while_another_process_holds_the_seat() {
    let server = Server::new();
    let (sessions, mut ready) = (server.sessions(), ReadySessions::default());
    let mut follow = |seen: Option<(&str, Life)>| {
        let seat = seen.map(|(version, life)| {
            let record = Record::new(None, Token::new(1), LEASE);
            Seat { record, version: Version::new(version), life }
        });
        let wanted = Some(SeatInterest { lease: LEASE, seen: Some(Seen { seat, requests: false }) });
        let change = InterestChange { seat: SeatName::new("jobs").unwrap(), wanted };
        ready.update(change, &sessions, |version| Some(tenure_core::SessionId::new(version.as_str())));
    };
    follow(None);
    follow(Some(("theirs", Life::Over)));
    sleep(LEASE).await;
    assert_eq!(server.counts().0, 0, "no other process holds the seat");
    follow(Some(("theirs", Life::Held)));
    sleep(LEASE).await;
    assert_eq!(server.counts().0, 1);
    // The session that was opened for bids is our own.
    server.clock.advance(LEASE / 2);
    follow(Some(("1 for 12s", Life::Held)));
    sleep(LEASE).await;
    let before = server.counts();
    server.clock.advance(LEASE / 2);
    sleep(LEASE * 2).await;
    assert_eq!(server.counts(), before, "this process holds the seat itself");
}

#[tokio::test(start_paused = true)]
async fn the_names_of_own_sessions_are_known_after_their_end_but_not_for_ever() {
    let server = Server::new();
    let sessions = server.sessions();
    let mut names = Vec::new();
    for number in 1..=200 {
        let session = sessions.get(Duration::from_secs(number)).await.unwrap();
        names.push(session.name());
        session.end();
    }
    let own = names.iter().filter(|name| sessions.is_own(name.as_str())).count();
    assert!(sessions.is_own(names[199].as_str()) && (10..=110).contains(&own), "{own} names are known");
}

/// A store with one seat, held on the session that its version names.
struct OneSeat(Arc<Sessions<One>>, Seat);

impl Store for OneSeat {
    fn promises(&self) -> Promises {
        Promises { push: Push::Hint, ..Promises::of("one seat") }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.0.attach(clock, news);
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        (0..seats.len()).for_each(|place| to.set(place, Ok(Reading::of(Some(self.1.clone())))));
        Ok(())
    }

    async fn write(&self, _: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let done = || Swap::Done { version: self.1.version.clone(), since: None, granted: None };
        (0..writes.len()).for_each(|place| to.set(place, Ok(done())));
        Ok(())
    }

    fn session_of(&self, version: &Version) -> Option<tenure_core::SessionId> {
        Some(tenure_core::SessionId::new(version.as_str()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_is_notified_when_a_session_ends() {
    let server = Server::new();
    let opener = server.clone();
    let sessions = Arc::new(Sessions::new(move |lease: Duration, _| opener.clone().open(lease)));
    let seat =
        Seat { record: Record::new(None, Token::new(1), LEASE), version: Version::new("1 for 12s"), life: Life::Held };
    let store = SingleSeat::new(OneSeat(sessions.clone(), seat.clone()));
    SeatStore::attach(&store, &server.clock.clone().into());
    let session = sessions.get(LEASE).await.unwrap();
    assert_eq!(session.name().as_str(), "1 for 12s");
    let (seen, name) = (Seen { seat: Some(seat.clone()), requests: false }, SeatName::new("jobs").unwrap());
    // A session counts as our own once a seat was won on it.
    store.swap(&name, None, &seat.record).await.unwrap();
    let (change, ()) = tokio::join!(store.changed(&name, &seen), async {
        sleep(Duration::from_secs(1)).await;
        session.end();
    });
    assert_eq!(change, Change::SessionOver);
}
