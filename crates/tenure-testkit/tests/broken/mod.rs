//! Stores that break one law each: a memory store with one thing bent.

mod bent_calls;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, Board, BoxFuture, Change, DynNotes, DynSeatStore, DynStore, LifeKind, Note, NoteState, NoteWrite, Notes,
    Promises, Reading, Record, SeatName, SeatStore, Seen, StoreError, Swap, Version,
};
use tenure_testkit::{MemorySubject, Subject};

use self::bent_calls::BentCalls;

/// What a bent store is made of.
pub(crate) struct Parts {
    pub(crate) store: MemoryStore,
    pub(crate) memory: Memory,
}

impl Parts {
    pub(crate) fn notes(&self) -> &dyn DynNotes {
        &self.store
    }
}

/// One thing done wrong. Everything that a bend does not say is done right.
pub(crate) trait Bend: Send + Sync + Sized + 'static {
    fn promises(&self, parts: &Parts) -> Promises {
        SeatStore::promises(&parts.store)
    }

    fn read(&self, parts: &Parts, seat: &SeatName) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        SeatStore::read(&parts.store, seat)
    }

    fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        SeatStore::swap(&parts.store, seat, expected, next)
    }

    fn renew(
        &self,
        parts: &Parts,
        seat: &SeatName,
        held: &Version,
        record: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        SeatStore::renew(&parts.store, seat, held, record)
    }

    fn changed(&self, parts: &Parts, seat: &SeatName, seen: &Seen) -> impl Future<Output = Change> + Send {
        SeatStore::changed(&parts.store, seat, seen)
    }

    fn write_note(
        &self,
        parts: &Parts,
        note: &NoteWrite,
    ) -> impl Future<Output = Result<NoteState, StoreError>> + Send {
        let (notes, note) = (parts.notes(), note.clone());
        async move { write_one(notes, note).await }
    }

    fn list(&self, parts: &Parts, board: &Board) -> impl Future<Output = Result<Vec<Note>, StoreError>> + Send {
        let (notes, board) = (parts.notes(), board.clone());
        async move { notes.list_one(&board).await }
    }

    /// The place that the answer to the board at this place is given at.
    fn place(&self, place: usize) -> usize {
        place
    }

    /// The place that the answer for the seat at this place of a call is given at.
    fn seat_place(place: usize) -> usize {
        place
    }

    fn forget(&self, parts: &Parts, seat: &SeatName) -> impl Future<Output = Result<(), StoreError>> + Send {
        SeatStore::forget(&parts.store, seat)
    }
}

struct Bent<B> {
    parts: Parts,
    bend: B,
    /// Whether its notes fail, as everything else does on a broken connection.
    broken: bool,
}

impl<B> Bent<B> {
    fn notes_work(&self) -> Result<(), StoreError> {
        if self.broken { Err(StoreError::refused("the connection is broken")) } else { Ok(()) }
    }
}

impl<B: Bend> SeatStore for Bent<B> {
    fn promises(&self) -> Promises {
        self.bend.promises(&self.parts)
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.bend.read(&self.parts, seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.bend.swap(&self.parts, seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.bend.renew(&self.parts, seat, held, record).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.bend.changed(&self.parts, seat, seen).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.bend.forget(&self.parts, seat).await
    }
}

impl<B: Bend> Notes for Bent<B> {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        self.notes_work()?;
        for (place, note) in notes.iter().enumerate() {
            to.set(place, self.bend.write_note(&self.parts, note).await);
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        self.notes_work()?;
        for (place, board) in boards.iter().enumerate() {
            to.set(self.bend.place(place), self.bend.list(&self.parts, board).await);
        }
        Ok(())
    }
}

pub(crate) async fn write_one(notes: &dyn DynNotes, note: NoteWrite) -> Result<NoteState, StoreError> {
    match note.value {
        Some(value) => notes.put_one(&note.board, &note.key, &value, note.lifetime).await,
        None => notes.remove_one(&note.board, &note.key).await,
    }
}

/// A bent store as a subject.
struct BentSubject<B> {
    memory: MemorySubject,
    make: fn() -> B,
}

impl<B: Bend> BentSubject<B> {
    fn bent(&self) -> Bent<B> {
        let memory = self.memory.memory().clone();
        Bent { parts: Parts { store: memory.store(), memory }, bend: (self.make)(), broken: false }
    }

    fn of_kind(kind: LifeKind, make: fn() -> B) -> Arc<dyn Subject> {
        Arc::new(Self { memory: MemorySubject::new(kind), make })
    }
}

impl<B: Bend> Subject for BentSubject<B> {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(BentCalls(self.bent()))
    }

    fn open_seats(&self) -> Box<dyn DynSeatStore> {
        Box::new(self.bent())
    }

    /// Short: here, laws are to fail.
    fn patience(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        self.memory.delete(seat)
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        self.memory.end_session(seat)
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        // The memory of it fails every call, which the bend may put in other words.
        let memory = Memory::new();
        for _ in 0..64 {
            memory.fail_next(tenure_core::Fault::Refused);
        }
        Some(Box::new(Bent { parts: Parts { store: memory.store(), memory }, bend: (self.make)(), broken: true }))
    }
}

/// A store that breaks a law.
#[derive(Clone)]
pub(crate) struct Breaker {
    /// What it does wrong.
    pub(crate) name: &'static str,
    /// The law that must find it.
    pub(crate) law: &'static str,
    pub(crate) subject: fn() -> Arc<dyn Subject>,
}

/// Lists bends by the modules that they stand in: `module::Bend breaks law on Kind`.
macro_rules! breakers {
    ($($module:ident::$bend:ident breaks $law:ident on $kind:ident,)*) => {
        $(mod $module;)*

        pub(crate) const ALL: &[Breaker] = &[$(Breaker {
            name: stringify!($module),
            law: stringify!($law),
            subject: || BentSubject::of_kind(LifeKind::$kind, $module::$bend::default),
        }),*];
    };
}

breakers![
    checks_first_and_writes_later::ChecksFirst breaks one_of_many_racing_bids_wins on Clock,
    ignores_the_version::IgnoresTheVersion breaks a_swap_on_a_stale_version_loses_and_changes_nothing on Clock,
    renews_whatever_is_there::RenewsWhatever breaks a_renewal_of_a_lost_seat_is_lost on Clock,
    delays_after_a_release::DelaysAfterARelease breaks a_released_seat_is_taken_at_once on Clock,
    lapses_in_a_hurry::LapsesInAHurry breaks a_lapsed_seat_can_be_taken_and_not_before on Session,
    tells_the_wrong_time::TellsTheWrongTime breaks a_lapsed_seat_can_be_taken_and_not_before on Clock,
    touches_what_it_reads::TouchesWhatItReads breaks a_lapsed_seat_can_be_taken_and_not_before on Observe,
    reads_from_a_cache::ReadsFromACache breaks a_read_back_tells_who_holds on Clock,
    ignores_the_identity::IgnoresTheIdentity breaks a_seat_absent_from_other_data_is_not_written on Clock,
    takes_content_for_a_version::ContentForAVersion breaks every_write_has_a_version_of_its_own on Clock,
    cuts_ids_short::CutsIdsShort breaks every_field_of_a_record_comes_back on Clock,
    forgets_unknown_fields::ForgetsUnknownFields breaks fields_of_a_newer_version_survive on Clock,
    has_one_seat_for_all::OneSeatForAll breaks separate_seats_do_not_touch on Clock,
    answers_for_the_next_seat::AnswersForTheNextSeat breaks seats_of_one_call_are_answered_each on Clock,
    folds_case::FoldsCase breaks odd_names_are_seats_of_their_own on Clock,
    deletes_on_release::DeletesOnRelease breaks tokens_only_rise on Clock,
    has_no_floor::HasNoFloor breaks tokens_rise_above_a_deleted_seat on Clock,
    hands_answers_to_the_wrong_caller::WrongCaller breaks many_tasks_may_call_at_once on Clock,
    stays_locked_when_dropped::StaysLocked breaks a_dropped_call_leaves_nothing_locked on Clock,
    swallows_errors::SwallowsErrors breaks a_failed_call_is_an_error_and_never_a_panic on Clock,
    has_sessions_in_name_only::SessionsInNameOnly breaks a_bid_on_a_living_session_is_lost on Clock,
    renews_on_a_dead_session::RenewsOnADeadSession breaks a_seat_is_not_kept_on_an_ended_session on Session,
    calls_every_heartbeat_new::EveryHeartbeatNew breaks a_shared_heartbeat_tells_its_own_age on Session,
    never_wakes::NeverWakes breaks a_watch_wakes_when_the_holder_changes on Clock,
    watches_from_now_on::WatchesFromNowOn breaks a_watch_tells_what_changed_before_it_began on Clock,
    wakes_at_every_renewal::WakesAtEveryRenewal breaks a_watch_sleeps_through_renewals on Clock,
    pushes_releases_alone::PushesReleasesAlone breaks a_watch_wakes_when_the_holders_session_ends on Session,
    wakes_for_who_is_gone::WakesForWhoIsGone breaks a_watch_wakes_when_the_holders_session_ends on Session,
    keeps_quiet_about_its_own_end::KeepsQuiet breaks a_watch_tells_that_our_own_session_is_over on Session,
    minds_no_requests::MindsNoRequests breaks a_watch_wakes_on_a_request_to_whoever_minds on Clock,
    wakes_by_requests_that_are_gone::WakesByRequestsThatAreGone breaks a_watch_wakes_on_a_request_to_whoever_minds on Clock,
    loses_notes::LosesNotes breaks a_note_stays_until_it_is_removed on Clock,
    keeps_notes_for_ever::KeepsNotesForEver breaks a_note_lives_as_long_as_it_says on Clock,
    lists_the_dead::ListsTheDead breaks a_note_lives_as_long_as_it_says on Clock,
    greets_nobody_anew::GreetsNobodyAnew breaks a_note_that_is_written_tells_whether_it_was_there on Clock,
    keeps_every_note_of_a_key::KeepsEveryNote breaks a_note_replaces_one_of_the_same_key on Clock,
    mixes_kinds::MixesKinds breaks boards_are_apart on Clock,
    has_one_board_for_all::OneBoardForAll breaks boards_are_apart on Clock,
    answers_for_the_next_board::AnswersForTheNextBoard breaks notes_of_one_call_are_answered_each on Clock,
    writes_notes_into_the_seat::WritesNotesIntoTheSeat breaks notes_leave_the_seat_alone on Clock,
    forgets_the_floor_too::ForgetsTheFloorToo breaks a_forgotten_seat_keeps_its_floor on Clock,
];
