//! Invalid input is refused before an election starts, with one line that says what to do.

use std::time::Duration;

use tenure_core::memory::MemoryStore;
use tenure_core::{
    Builder, Change, Clock, DynNotes, ElectionOptions, Elections, Error, Promises, Reading, Record, SeatName,
    SeatStore, Seen, StoreError, Swap, Version,
};

fn refused(configure: impl FnOnce(Builder) -> Builder) -> String {
    let elections = Elections::new(Coarse(MemoryStore::new()));
    let error = configure(elections.election("jobs").lease(Duration::from_secs(15))).start().unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn names_that_cannot_be_used() {
    let elections = Elections::new(MemoryStore::new());
    for (name, advice) in
        [("", "give the election a name"), (&*"x".repeat(513), "at most 512 bytes"), ("a\0b", "printable")]
    {
        let error = elections.election(name).start().unwrap_err().to_string();
        assert!(error.contains(advice), "{error}");
        let error = elections.observe(name).unwrap_err().to_string();
        assert!(error.contains(advice), "{error}");
    }
    assert!(refused(|builder| builder.candidate("")).contains("the candidate id \"\" is empty"));
    assert!(refused(|builder| builder.candidate("x".repeat(513))).contains("at most 512 bytes"));
}

#[test]
fn durations_that_contradict_each_other() {
    let error = refused(|builder| builder.renew_every(Duration::from_secs(10)));
    assert!(error.contains("use at most 7.5s"), "{error}");
    assert!(
        refused(|builder| builder.drain(Duration::from_secs(15)))
            .contains("drain of 15s is too long for a lease of 15s")
    );
    assert!(refused(|builder| builder.call_timeout(Duration::ZERO)).contains("call_timeout must not be zero"));
    assert!(refused(|builder| builder.lease(Duration::ZERO)).contains("lease must be at least 15ms"));
    assert!(refused(|builder| builder.lease(Duration::MAX)).contains("lease must be at most 7d"));
    for drift in [-0.1, 1.0, f64::NAN, f64::INFINITY] {
        let options = ElectionOptions { drift: Some(drift), ..ElectionOptions::default() };
        assert!(refused(|builder| builder.options(options)).contains("must be a fraction"));
    }
    let error = refused(|builder| builder.give_up_after(Duration::from_secs(3)));
    assert!(error.contains("give_up_after must be at least the lease (15s), got 3s"), "{error}");
}

#[test]
fn a_lease_that_the_store_cannot_keep() {
    let error = refused(|builder| builder.lease(Duration::from_secs(5)));
    assert_eq!(error, "the coarse store cannot keep a lease of 5s; use 10s or more");
    let error = refused(|builder| builder.lease(Duration::from_millis(12_500)));
    assert_eq!(error, "the coarse store cannot keep a lease of 12.5s exactly; use a multiple of 1s");
}

#[test]
fn an_election_that_already_runs_in_this_process() {
    let elections = Elections::new(MemoryStore::new());
    let _runs = elections.election("jobs").start().unwrap();
    let error = elections.election("jobs").start().unwrap_err();
    assert!(matches!(&error, Error::AlreadyRunning { name } if name == "jobs"), "{error}");
}

/// A store that counts leases in seconds, with at least ten.
struct Coarse(MemoryStore);

#[deny(clippy::missing_trait_methods)]
impl SeatStore for Coarse {
    fn promises(&self) -> Promises {
        let (min_lease, lease_step) = (Duration::from_secs(10), Duration::from_secs(1));
        Promises { store: "coarse", min_lease, lease_step, ..self.0.promises() }
    }

    fn attach(&self, clock: &Clock) {
        self.0.attach(clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.0.read(seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.0.swap(seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.0.renew(seat, held, record).await
    }

    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        self.0.free(seat, held, vacant).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.0.changed(seat, seen).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.0.notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.0.forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.0.list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<tenure_core::Lifeline>> {
        self.0.lifeline(seat)
    }
}
