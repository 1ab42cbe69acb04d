//! The last will of a dead process: which seat it frees, which it leaves alone, and what others see of it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Candidate, Clock, Elections, Error, EventKind, Fault, Incarnation, LastWill, LifeKind, Record, SeatName, SeatStore,
    Swap, Token,
};

const LEASE: Duration = Duration::from_secs(600);

/// A process that leads and then dies: it holds the seat, and nothing renews it.
struct Dead {
    memory: Memory,
    _store: MemoryStore,
    candidate: Candidate,
}

impl Dead {
    async fn leader(kind: LifeKind) -> Self {
        let memory = Memory::of_kind(kind, Clock::system());
        let (store, incarnation) = (memory.store(), Incarnation::from_bits(7));
        let candidate = Candidate { id: "dead".into(), incarnation };
        let record = Record::new(Some(candidate.clone()), Token::new(5), LEASE);
        let won = SeatStore::swap(&store, &seat(), None, &record).await.unwrap();
        assert!(matches!(won, Swap::Done { .. }));
        Self { memory, _store: store, candidate }
    }

    fn will(&self) -> LastWill {
        LastWill { candidate: self.candidate.clone(), by: "its guard".into() }
    }

    async fn execute(&self, will: &LastWill) -> Result<Option<Token>, Error> {
        Elections::new(self.memory.store()).execute_will("jobs", will, LEASE, LEASE).await
    }

    async fn record(&self) -> Record {
        SeatStore::read(&self.memory.store(), &seat()).await.unwrap().seat.unwrap().record
    }
}

fn seat() -> SeatName {
    SeatName::new("jobs").unwrap()
}

/// The kinds of stores whose seats outlive their process.
const KINDS: [LifeKind; 3] = [LifeKind::Clock, LifeKind::Observe, LifeKind::Session];

#[tokio::test]
async fn a_will_frees_the_seat_and_others_see_who_crashed_and_who_freed_it() {
    for kind in KINDS {
        let dead = Dead::leader(kind).await;
        let follower = Elections::new(dead.memory.store());
        let next = follower.election("jobs").candidate("next").lease(LEASE).start().unwrap();
        let mut events = next.events();
        let mut seen = async |wanted: fn(&EventKind) -> bool| loop {
            let event = events.next().await.unwrap().kind;
            if wanted(&event) {
                return event;
            }
        };
        seen(|event| matches!(event, EventKind::LeaderChanged { leader: Some(_), .. })).await;
        assert_eq!(dead.execute(&dead.will()).await.unwrap(), Some(Token::new(5)), "{kind}");
        let EventKind::LeaderCrashed { crash } = seen(|event| matches!(event, EventKind::LeaderCrashed { .. })).await
        else {
            unreachable!()
        };
        assert_eq!((&*crash.of.id, crash.token.get(), &*crash.by), ("dead", 5, "its guard"));
        // The lease is far longer than this test takes.
        assert!(next.elected().await.unwrap().token() > Token::new(5));
        // Later terms keep the record of the crash.
        assert_eq!(follower.look("jobs").await.unwrap().crash, Some(crash.clone()));
        assert_eq!(dead.record().await.crash, Some(crash));
    }
}

#[tokio::test]
async fn a_will_leaves_every_seat_alone_that_is_not_the_dead_ones() {
    for kind in KINDS {
        let dead = Dead::leader(kind).await;
        let before = dead.record().await;
        let other = Candidate { incarnation: Incarnation::from_bits(8), ..dead.candidate.clone() };
        let will = LastWill { candidate: other, ..dead.will() };
        assert_eq!(dead.execute(&will).await.unwrap(), None, "{kind}");
        assert_eq!(dead.record().await, before);
    }
}

#[tokio::test]
async fn a_will_that_is_executed_twice_frees_the_seat_once() {
    let dead = Dead::leader(LifeKind::Session).await;
    for _ in 0..2 {
        assert_eq!(dead.execute(&dead.will()).await.unwrap(), Some(Token::new(5)));
    }
    let freed = dead.record().await;
    // A process that was started again under the same id, on the same host, and died while it waited.
    let incarnation = Incarnation::from_bits(8);
    let next = LastWill { candidate: Candidate { incarnation, ..dead.candidate.clone() }, ..dead.will() };
    assert_eq!(dead.execute(&next).await.unwrap(), None);
    assert_eq!(dead.record().await, freed);
    // Another candidate leads: it stays.
    let elections = Elections::new(dead.memory.store());
    let next = elections.election("jobs").lease(LEASE).start().unwrap();
    let term = next.elected().await.unwrap();
    dead.execute(&dead.will()).await.unwrap();
    assert!(term.is_current() && dead.record().await.is_held_by(next.candidate().incarnation));
}

#[tokio::test]
async fn a_will_on_a_seat_that_was_removed_frees_nothing() {
    let dead = Dead::leader(LifeKind::Clock).await;
    dead.memory.delete("jobs");
    assert_eq!(dead.execute(&dead.will()).await.unwrap(), None);
}

#[tokio::test]
async fn a_will_tries_again_when_calls_fail_and_when_an_answer_is_lost() {
    let dead = Dead::leader(LifeKind::Clock).await;
    dead.memory.fail_next(Fault::Refused);
    dead.memory.fail_next(Fault::Unknown);
    assert!(dead.execute(&dead.will()).await.unwrap().is_some());
    assert!(dead.record().await.is_vacant());

    // The answer to the write is lost. The next read shows that it took effect.
    let dead = Dead::leader(LifeKind::Clock).await;
    let executor = Arc::new(Elections::new(LosesAnAnswer::new(dead.memory.clone())));
    assert!(executor.execute_will("jobs", &dead.will(), LEASE, LEASE).await.unwrap().is_some());
    assert!(dead.record().await.is_vacant());
}

#[tokio::test]
async fn a_will_that_the_store_denies_ends_at_once() {
    let dead = Dead::leader(LifeKind::Clock).await;
    dead.memory.fail_next(Fault::Denied);
    let error = dead.execute(&dead.will()).await.unwrap_err();
    assert_eq!(error.store_error().unwrap().fault(), Fault::Denied);
    assert!(!dead.record().await.is_vacant());
}

#[tokio::test]
async fn a_will_gives_up_when_the_seat_would_have_expired() {
    let dead = Dead::leader(LifeKind::Clock).await;
    (0..10_000).for_each(|_| dead.memory.fail_next(Fault::Refused));
    let executor = Elections::new(dead.memory.store());
    let within = Duration::from_millis(50);
    let error = executor.execute_will("jobs", &dead.will(), LEASE, within).await.unwrap_err();
    assert_eq!(error.store_error().unwrap().fault(), Fault::Refused);
}

/// A store that loses the answer to its first write.
struct LosesAnAnswer {
    memory: Memory,
    store: MemoryStore,
    is_lost: std::sync::atomic::AtomicBool,
}

impl LosesAnAnswer {
    fn new(memory: Memory) -> Self {
        Self { store: memory.store(), memory, is_lost: false.into() }
    }
}

impl SeatStore for LosesAnAnswer {
    fn promises(&self) -> tenure_core::Promises {
        SeatStore::promises(&self.store)
    }

    async fn read(&self, seat: &SeatName) -> Result<tenure_core::Reading, tenure_core::StoreError> {
        SeatStore::read(&self.store, seat).await
    }

    async fn swap(
        &self,
        seat: &SeatName,
        expected: Option<&tenure_core::Version>,
        next: &Record,
    ) -> Result<Swap, tenure_core::StoreError> {
        if !self.is_lost.swap(true, std::sync::atomic::Ordering::SeqCst) {
            self.memory.lose_next_answer();
        }
        SeatStore::swap(&self.store, seat, expected, next).await
    }
}
