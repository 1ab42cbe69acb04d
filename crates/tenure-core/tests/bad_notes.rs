//! Stores that make mistakes with one of several notes in a call affect no other candidate and no term.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, BatchLimits, Board, Change, Clock, DynNotes, Election, Elections, Error, LifeKind, ManualClock, Note,
    NoteState, NoteWrite, Notes, Promises, Reading, Record, SeatName, SeatStore, Seen, StoreError, Swap, Version,
};

const LEASE: Duration = Duration::from_secs(15);
const MANY: usize = 40;

/// A mistake of a store with notes about the seat named `odd`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// It does not answer for that note.
    Silent,
    /// It answers twice for each note, and for notes that are not in the call.
    Eager,
    /// It panics when it reaches that note.
    Panics,
    /// It fails the whole call because of that note, and marks the error so.
    BlamesOne,
    /// Its calls with that note never end.
    Slow,
}

struct Flawed {
    store: MemoryStore,
    flaw: Flaw,
    is_bad: Arc<AtomicBool>,
}

impl SeatStore for Flawed {
    fn promises(&self) -> Promises {
        let many = BatchLimits { seats: 100, calls: 1 };
        Promises { reads: many, writes: many, ..SeatStore::promises(&self.store) }
    }

    fn attach(&self, clock: &Clock) {
        SeatStore::attach(&self.store, clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        SeatStore::read(&self.store, seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.store.swap(seat, expected, next).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.store.changed(seat, seen).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }
}

impl Notes for Flawed {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        let bad = self.is_bad.load(Ordering::SeqCst);
        let is_odd = |note: &NoteWrite| note.board.seat().is_some_and(|seat| seat.as_str() == "odd");
        if bad && self.flaw == Flaw::BlamesOne && notes.iter().any(is_odd) {
            return Err(StoreError::denied("one of them is odd").caused_by_one());
        }
        let (odd, even): (Vec<_>, Vec<_>) = (0..notes.len()).partition(|place| is_odd(&notes[*place]));
        for place in even.into_iter().chain(odd) {
            match self.flaw {
                Flaw::Silent if bad && is_odd(&notes[place]) => continue,
                Flaw::Panics if bad && is_odd(&notes[place]) => panic!("an odd note"),
                Flaw::Slow if bad && is_odd(&notes[place]) => std::future::pending().await,
                _ => {}
            }
            let answers = to.clone();
            let one = Answers::new(move |_, answer| answers.set(place, answer));
            Notes::write(&self.store, std::slice::from_ref(&notes[place]), &one).await?;
        }
        if bad && self.flaw == Flaw::Eager {
            (0..2 * notes.len()).for_each(|place| to.set(place, Err(StoreError::denied("an answer too many"))));
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        Notes::list(&self.store, boards, to).await
    }
}

/// Checks that all other candidates are listed, that no candidate loses its term, and that the odd one is listed once
/// the store works.
fn only_the_odd_candidate_is_not_listed(flaw: Flaw) {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let is_bad = Arc::new(AtomicBool::new(true));
    let elections =
        Elections::with_clock(Flawed { store: memory.store(), flaw, is_bad: is_bad.clone() }, clock.clone());
    let names = (0..MANY).map(|number| format!("job-{number}")).chain(["odd".to_owned()]);
    let running: Vec<_> = names.map(|name| elections.election(name).lease(LEASE).start().unwrap()).collect();
    for _ in 0..12 {
        clock.advance(LEASE / 4);
        assert!(running.iter().all(Election::is_leader));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let is_listed = |election: &Election| !runtime.block_on(election.candidates()).unwrap().is_empty();
    assert!(running[..MANY].iter().all(is_listed));
    assert_eq!(is_listed(&running[MANY]), flaw == Flaw::Eager);
    is_bad.store(false, Ordering::SeqCst);
    clock.advance(LEASE * 2);
    assert!(running.iter().all(is_listed), "the odd one is listed once the store works");
    assert!(running.iter().all(Election::is_leader));
}

#[test]
fn a_note_without_an_answer_is_written_again() {
    only_the_odd_candidate_is_not_listed(Flaw::Silent);
}

#[test]
fn a_panic_in_a_call_costs_only_the_notes_that_were_not_answered() {
    only_the_odd_candidate_is_not_listed(Flaw::Panics);
}

#[test]
fn a_slow_note_keeps_no_other_off_its_board() {
    only_the_odd_candidate_is_not_listed(Flaw::Slow);
}

#[test]
fn a_call_that_fails_because_of_one_note_is_made_again_without_it() {
    only_the_odd_candidate_is_not_listed(Flaw::BlamesOne);
}

#[test]
fn surplus_answers_to_notes_are_ignored() {
    only_the_odd_candidate_is_not_listed(Flaw::Eager);
}

/// A store whose calls to write notes wait for a permit, and that records the boards and keys of each call.
struct Gated {
    store: MemoryStore,
    seats: usize,
    gate: Arc<tokio::sync::Semaphore>,
    written: Arc<Written>,
}

type Written = std::sync::Mutex<Vec<Vec<(Board, String)>>>;

impl SeatStore for Gated {
    fn promises(&self) -> Promises {
        Promises { writes: BatchLimits { seats: self.seats, calls: 1 }, ..SeatStore::promises(&self.store) }
    }

    fn attach(&self, clock: &Clock) {
        SeatStore::attach(&self.store, clock);
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        SeatStore::read(&self.store, seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.store.swap(seat, expected, next).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.store.changed(seat, seen).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }
}

impl Notes for Gated {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        self.gate.acquire().await.unwrap().forget();
        self.written.lock().unwrap().push(notes.iter().map(|note| (note.board.clone(), note.key.clone())).collect());
        Notes::write(&self.store, notes, to).await
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        Notes::list(&self.store, boards, to).await
    }
}

/// If it waited behind them for two leases, the note of the process would expire, and all announcements would be
/// written again.
#[test]
fn the_announcement_of_a_process_does_not_wait_behind_those_of_its_candidates() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let (gate, written) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::<Written>::default());
    let store = Gated { store: memory.store(), seats: 1, gate: gate.clone(), written: written.clone() };
    let elections = Elections::with_clock(store, clock.clone());
    let _running: Vec<_> =
        (0..200).map(|number| elections.election(format!("job-{number}")).lease(LEASE).start().unwrap()).collect();
    clock.settle();
    // Two notes a second, for more than two leases: most of the announcements still wait then.
    for count in 1..=70 {
        gate.add_permits(1);
        let began = std::time::Instant::now();
        while written.lock().unwrap().len() < count {
            assert!(began.elapsed() < Duration::from_secs(60), "the notes are not written");
            std::thread::sleep(Duration::from_millis(1));
        }
        clock.advance(Duration::from_millis(500));
    }
    let presents = written.lock().unwrap().iter().flatten().filter(|(board, _)| *board == Board::Processes).count();
    assert!((3..=5).contains(&presents), "{presents} times in 35 s, with a lease of 15 s");
}

/// A store may fail a call that contains a note twice, because a statement or a transaction cannot write a row or a key
/// twice.
#[test]
fn no_call_contains_a_note_twice() {
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let (gate, written) = (Arc::new(tokio::sync::Semaphore::new(100)), Arc::<Written>::default());
    let store = Gated { store: memory.store(), seats: 100, gate: gate.clone(), written: written.clone() };
    let elections = Elections::with_clock(store, clock.clone());
    let start = |name: &str| elections.election(name).lease(LEASE).start().unwrap();
    let (jobs, mut mail) = (start("jobs"), start("mail"));
    clock.settle();
    clock.advance(LEASE / 10);
    assert!(jobs.is_leader() && mail.is_leader());
    written.lock().unwrap().clear();
    gate.forget_permits(100);

    // While calls are in flight, a leader reads requests that it has read before, and a candidate leaves and returns.
    let (asker, board) = (memory.store(), Board::Requests(SeatName::new("jobs").unwrap()));
    let notes = SeatStore::notes(&asker).unwrap();
    for number in 0..4 {
        notes.put_one(&board, &format!("request {number}"), "{}", LEASE).now_or_never().unwrap().unwrap();
        mail.stop();
        clock.settle();
        mail = start("mail");
        clock.settle();
    }
    gate.add_permits(100);
    clock.settle();
    clock.advance(LEASE / 10);
    let written = written.lock().unwrap();
    let removed = |key: &str| written.iter().flatten().any(|(on, written)| *on == board && written == key);
    assert!((0..4).all(|number| removed(&format!("request {number}"))), "{written:?}");
    for call in written.iter() {
        let distinct: std::collections::BTreeSet<_> = call.iter().collect();
        assert_eq!(distinct.len(), call.len(), "{call:?}");
    }
}

#[test]
fn a_shutdown_says_that_only_the_list_of_candidates_is_left() {
    let store = Flawed { store: MemoryStore::new(), flaw: Flaw::Slow, is_bad: Arc::new(AtomicBool::new(false)) };
    let is_bad = store.is_bad.clone();
    let elections = Elections::new(store);
    let odd = elections.election("odd").start().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        while odd.candidates().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        is_bad.store(true, Ordering::SeqCst);
        odd.stop();
        odd.stopped().await;
        let late = elections.shutdown(Duration::from_millis(10)).await.unwrap_err();
        assert!(matches!(late, Error::StillListed { .. }), "{late}");
    });
}
