//! Misbehaviour of a store is logged once, in one line with the store's name, and does not affect elections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, BatchLimits, Call, Clock, DynNotes, Election, Elections, Interest, LifeKind, ManualClock, News, Promises,
    PushDetail, Reading, SeatName, SeatStore, Store, StoreError, Swap, Write,
};
use tenure_testkit::Lines;

const LEASE: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddity {
    AnswersTwice,
    LeavesOneOut,
    Panics,
    NeverListens,
    Floods,
    ReportsOtherSeats,
}

/// A store that misbehaves. Misbehaviour about a single seat concerns the seat `odd`.
struct Odd {
    store: MemoryStore,
    oddity: Oddity,
    news: Arc<Mutex<Option<News>>>,
}

impl Store for Odd {
    fn promises(&self) -> Promises {
        let many = BatchLimits { seats: 100, calls: 1 };
        Promises { store: "shelf", reads: many, writes: many, ..Store::promises(&self.store) }
    }

    fn attach(&self, clock: &Clock, news: &News) {
        SeatStore::attach(&self.store, clock);
        *self.news.lock().unwrap() = Some(news.clone());
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        if self.oddity == Oddity::Floods {
            // On the engine's thread, so that the engine cannot process them in between.
            let news = self.news.lock().unwrap().clone().unwrap();
            (0..20_000).for_each(|_| news.holder(&seats[0], PushDetail::Nothing));
        }
        let (odd, even): (Vec<_>, Vec<_>) = (0..seats.len()).partition(|place| seats[*place].as_str() == "odd");
        for place in even.into_iter().chain(odd) {
            if seats[place].as_str() == "odd" {
                match self.oddity {
                    Oddity::LeavesOneOut => continue,
                    Oddity::Panics => panic!("an odd seat"),
                    _ => {}
                }
            }
            to.set(place, SeatStore::read(&self.store, &seats[place]).await);
            if self.oddity == Oddity::AnswersTwice {
                to.set(place, Err(StoreError::denied("a surplus answer")));
                to.set(place + 1000, Err(StoreError::denied("a surplus answer")));
            }
        }
        let _ = call;
        Ok(())
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        Store::write(&self.store, call, writes, to).await
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        match self.oddity {
            Oddity::NeverListens => std::future::pending().await,
            _ => Store::watch(&self.store, interest, news).await,
        }
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        SeatStore::notes(&self.store)
    }
}

/// One test for all, because a process has one subscriber.
#[test]
fn misbehaviour_of_a_store_is_logged_once_with_its_name() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    for (oddity, message) in [
        (Oddity::AnswersTwice, "WARN the store answered twice for one seat"),
        (Oddity::LeavesOneOut, "WARN the store left a seat of a call without an answer"),
        (Oddity::Panics, "WARN the store panicked"),
        (Oddity::NeverListens, "WARN the store promises to push changes and does not listen"),
        (Oddity::Floods, "WARN the store reports changes faster than the engine can process them"),
        (
            Oddity::ReportsOtherSeats,
            "DEBUG the store reports changes of seats that no election in this process is about",
        ),
    ] {
        let clock = ManualClock::new();
        let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
        let news = Arc::default();
        let store = Odd { store: memory.store(), oddity, news: Arc::clone(&news) };
        let elections = Elections::with_clock(store, clock.clone());
        let names = ["one", "two", "three", "odd"];
        let running = names.map(|name| elections.election(name).lease(LEASE).start().unwrap());
        clock.settle();
        let news = news.lock().unwrap().clone().unwrap();
        let other = SeatName::new("another seat").unwrap();
        for _ in 0..5 {
            if oddity == Oddity::ReportsOtherSeats {
                (0..10).for_each(|_| news.holder(&other, PushDetail::Nothing));
            }
            clock.advance(LEASE);
        }
        let is_led = |election: &&Election| election.is_leader();
        assert_eq!(running[..3].iter().filter(is_led).count(), 3, "{oddity:?} has cost a term");
        assert!(tenure_core::log::flush(Duration::from_secs(60)));
        let logged = lines.with(message);
        assert_eq!(logged.len(), 1, "{oddity:?}: {logged:?}");
        assert!(logged[0].contains("store=\"shelf\""), "{logged:?}");
    }
}
