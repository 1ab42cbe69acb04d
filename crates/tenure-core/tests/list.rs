//! The list of all elections: complete, sorted, read in batches, and never hidden by one record.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, BatchLimits, Call, Elections, LifeKind, ManualClock, Promises, Reading, SeatName, SeatStore, Store,
    StoreError, Swap, Write,
};

/// A store that lists these names, and reads at most three seats of one shard in a call, in two calls at once.
struct Shelf {
    memory: MemoryStore,
    names: Vec<&'static str>,
    /// The seats of each call that reads.
    calls: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Store for Shelf {
    fn promises(&self) -> Promises {
        Promises { reads: BatchLimits { seats: 3, calls: 2 }, ..Store::promises(&self.memory) }
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        u64::from(seat.as_str().starts_with('z'))
    }

    async fn read(&self, _: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        self.calls.lock().unwrap().push(seats.iter().map(ToString::to_string).collect());
        if seats.iter().any(|seat| seat.as_str() == "odd") {
            return Err(StoreError::denied("one of them is odd").caused_by_one());
        }
        for (place, seat) in seats.iter().enumerate() {
            match seat.as_str() {
                "damaged" => to.set(place, Err(StoreError::denied("this record is damaged"))),
                "unanswered" => {}
                _ => to.set(place, SeatStore::read(&self.memory, seat).await),
            }
        }
        Ok(())
    }

    async fn write(&self, _: &Call, _: &[Write], _: &Answers<Swap>) -> Result<(), StoreError> {
        Err(StoreError::denied("this store is only read"))
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        Ok(self.names.iter().map(|name| SeatName::new(name).unwrap()).collect())
    }
}

/// Returns elections over a shelf on which these names are listed. All but those that begin with "gone" have a leader.
fn shelf(names: &[&'static str]) -> (Elections, Arc<Mutex<Vec<Vec<String>>>>) {
    let memory = Memory::new();
    for name in names.iter().filter(|name| !name.starts_with("gone")) {
        memory.usurp(name);
    }
    let calls = Arc::default();
    let shelf = Shelf { memory: memory.store(), names: names.to_vec(), calls: Arc::clone(&calls) };
    (Elections::new(shelf), calls)
}

/// Returns the names that are listed, each with its leader or its error.
async fn listed(elections: &Elections) -> Vec<(String, String)> {
    let status = |status: Result<tenure_core::SeatStatus, tenure_core::Error>| match status {
        Ok(status) => status.leader.map_or("vacant".to_owned(), |leader| leader.candidate.id.to_string()),
        Err(error) => error.to_string(),
    };
    let listed = elections.list().await.unwrap();
    listed.into_iter().map(|election| (election.name.to_string(), status(election.status))).collect()
}

#[tokio::test]
async fn elections_are_sorted_and_read_in_batches_of_one_shard() {
    let (elections, calls) = shelf(&["d", "zb", "b", "a", "za", "c", "e"]);
    let names: Vec<_> =
        listed(&elections).await.into_iter().map(|(name, leader)| (name, leader == "usurper")).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "za", "zb"].map(|name| (name.to_owned(), true)));
    let mut sizes: Vec<_> = calls.lock().unwrap().iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [2, 2, 3], "five seats of one shard and two of another share three calls");
}

#[tokio::test]
async fn an_election_that_is_listed_twice_appears_once_and_one_that_is_gone_not_at_all() {
    let (elections, _) = shelf(&["a", "gone", "a", "b", "gone too"]);
    assert_eq!(listed(&elections).await, ["a", "b"].map(|name| (name.to_owned(), "usurper".to_owned())));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_does_not_hide_the_others() {
    let (elections, _) = shelf(&["a", "damaged", "b", "odd", "unanswered", "c"]);
    let listed = listed(&elections).await;
    let names: Vec<_> = listed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "damaged", "odd", "unanswered"]);
    assert!(listed[..3].iter().all(|(_, leader)| leader == "usurper"), "{listed:?}");
    for (at, error) in [(3, "damaged"), (4, "odd"), (5, "without an answer")] {
        assert!(listed[at].1.contains(error), "{listed:?}");
    }
}

#[tokio::test]
async fn released_seats_are_listed_and_forgotten_ones_are_not() {
    let elections = Elections::new(MemoryStore::new());
    assert!(elections.list().await.unwrap().is_empty());
    for name in ["kept", "forgotten"] {
        let election = elections.election(name).start().unwrap();
        election.elected().await.unwrap();
        election.shutdown(Duration::from_secs(60)).await.unwrap();
    }
    elections.forget("forgotten").await.unwrap();
    assert_eq!(listed(&elections).await, [("kept".to_owned(), "vacant".to_owned())]);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_an_error_after_ten_seconds() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let elections = Elections::with_clock(memory.store(), clock.clone());
    memory.hang_next();
    let listing = tokio::spawn(async move { elections.list().await });
    while !listing.is_finished() {
        clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    let error = listing.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("did not answer in time"), "{error}");
    assert!(clock.now() >= tenure_core::Moment::default() + Duration::from_secs(10));
}

#[tokio::test]
async fn a_store_that_cannot_list_says_so() {
    struct Silent;
    impl SeatStore for Silent {
        fn promises(&self) -> Promises {
            Promises::of("silent")
        }

        async fn read(&self, _: &SeatName) -> Result<Reading, StoreError> {
            Ok(Reading::of(None))
        }

        async fn swap(
            &self,
            _: &SeatName,
            _: Option<&tenure_core::Version>,
            _: &tenure_core::Record,
        ) -> Result<Swap, StoreError> {
            Ok(Swap::Lost)
        }
    }
    let error = Elections::new(Silent).list().await.unwrap_err().to_string();
    assert!(error.contains("cannot list its elections"), "{error}");
}
