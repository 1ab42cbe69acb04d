//! Stores that break one law each: the memory store with one defect.

mod defective_calls;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::memory::{Memory, MemoryStore};
use tenure_core::{
    Answers, Board, BoxFuture, Change, DynNotes, DynSeatStore, DynStore, Interest, LifeKind, News, Note, NoteState,
    NoteWrite, Notes, Promises, Reading, Record, SeatName, SeatStore, Seen, StoreError, Swap, Version,
};
use tenure_testkit::{MemorySubject, Subject};

use self::defective_calls::DefectiveCalls;

/// The parts of a defective store.
pub(crate) struct Parts {
    pub(crate) store: MemoryStore,
    pub(crate) memory: Memory,
}

impl Parts {
    pub(crate) fn notes(&self) -> &dyn DynNotes {
        &self.store
    }

    /// Writes a seat without comparing its token with the floor.
    pub(crate) async fn swap_below_the_floor(
        &self,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        let swap = SeatStore::swap(&self.store, seat, expected, next).await?;
        let is_absent = SeatStore::read(&self.store, seat).await?.seat.is_none();
        if expected.is_some() || !is_absent {
            return Ok(swap);
        }
        // Only the floor was against the bid. A write on a version does not compare the token with it.
        self.memory.expire(seat.as_str());
        let created = SeatStore::read(&self.store, seat).await?.seat.map(|seat| seat.version);
        SeatStore::swap(&self.store, seat, created.as_ref(), next).await
    }
}

/// A defect of a store. Methods that it does not override work correctly.
pub(crate) trait Defect: Send + Sync + Sized + 'static {
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

    fn free(
        &self,
        parts: &Parts,
        seat: &SeatName,
        held: &Version,
        vacant: &Record,
    ) -> impl Future<Output = Result<Swap, StoreError>> + Send {
        SeatStore::free(&parts.store, seat, held, vacant)
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

    /// Returns the position for the answer to the board at this position.
    fn place(&self, place: usize) -> usize {
        place
    }

    /// Returns the position for the answer to the seat at this position of a call.
    fn seat_place(place: usize) -> usize {
        place
    }

    fn forget(&self, parts: &Parts, seat: &SeatName) -> impl Future<Output = Result<(), StoreError>> + Send {
        SeatStore::forget(&parts.store, seat)
    }

    fn list_seats(&self, parts: &Parts) -> impl Future<Output = Result<Vec<SeatName>, StoreError>> + Send {
        SeatStore::list_seats(&parts.store)
    }

    /// Returns the watch of all seats, if it is defective.
    fn watch<'a>(&'a self, _: &'a Parts, _: &'a Interest, _: &'a News) -> Option<BoxFuture<'a, StoreError>> {
        None
    }
}

struct Defective<B> {
    parts: Parts,
    defect: B,
    /// Whether calls about notes fail, as on a broken connection.
    broken: bool,
}

impl<B> Defective<B> {
    fn notes_work(&self) -> Result<(), StoreError> {
        if self.broken { Err(StoreError::refused("the connection is broken")) } else { Ok(()) }
    }
}

impl<B: Defect> SeatStore for Defective<B> {
    fn promises(&self) -> Promises {
        self.defect.promises(&self.parts)
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        self.defect.read(&self.parts, seat).await
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        self.defect.swap(&self.parts, seat, expected, next).await
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        self.defect.renew(&self.parts, seat, held, record).await
    }

    async fn free(&self, seat: &SeatName, held: &Version, vacant: &Record) -> Result<Swap, StoreError> {
        self.defect.free(&self.parts, seat, held, vacant).await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        self.defect.changed(&self.parts, seat, seen).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        Some(self)
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.defect.forget(&self.parts, seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.defect.list_seats(&self.parts).await
    }
}

impl<B: Defect> Notes for Defective<B> {
    async fn write(&self, notes: &[NoteWrite], to: &Answers<NoteState>) -> Result<(), StoreError> {
        self.notes_work()?;
        for (place, note) in notes.iter().enumerate() {
            to.set(place, self.defect.write_note(&self.parts, note).await);
        }
        Ok(())
    }

    async fn list(&self, boards: &[Board], to: &Answers<Vec<Note>>) -> Result<(), StoreError> {
        self.notes_work()?;
        for (place, board) in boards.iter().enumerate() {
            to.set(self.defect.place(place), self.defect.list(&self.parts, board).await);
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

/// A subject with a defective store.
struct DefectiveSubject<B> {
    memory: MemorySubject,
    make: fn() -> B,
}

impl<B: Defect> DefectiveSubject<B> {
    fn defective(&self) -> Defective<B> {
        let memory = self.memory.memory().clone();
        Defective { parts: Parts { store: memory.store(), memory }, defect: (self.make)(), broken: false }
    }

    fn of_kind(kind: LifeKind, make: fn() -> B) -> Arc<dyn Subject> {
        Arc::new(Self { memory: MemorySubject::new(kind), make })
    }
}

impl<B: Defect> Subject for DefectiveSubject<B> {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(DefectiveCalls(self.defective()))
    }

    fn open_seats(&self) -> Box<dyn DynSeatStore> {
        Box::new(self.defective())
    }

    /// Short, because the laws are expected to fail.
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
        // The memory fails every call. The defect can turn the error into another answer.
        let memory = Memory::new();
        for _ in 0..64 {
            memory.fail_next(tenure_core::Fault::Refused);
        }
        Some(Box::new(Defective {
            parts: Parts { store: memory.store(), memory },
            defect: (self.make)(),
            broken: true,
        }))
    }
}

/// A store that breaks a law.
#[derive(Clone)]
pub(crate) struct Breaker {
    /// The name of its module, which says what it does wrong.
    pub(crate) name: &'static str,
    /// The law that must find it.
    pub(crate) law: &'static str,
    pub(crate) subject: fn() -> Arc<dyn Subject>,
}

/// Declares defects by their modules: `module::Defect breaks law on Kind`.
macro_rules! breakers {
    ($($module:ident::$defect:ident breaks $law:ident on $kind:ident,)*) => {
        $(mod $module;)*

        pub(crate) const ALL: &[Breaker] = &[$(Breaker {
            name: stringify!($module),
            law: stringify!($law),
            subject: || DefectiveSubject::of_kind(LifeKind::$kind, $module::$defect::default),
        }),*];
    };
}

breakers![
    checks_first_and_writes_later::ChecksFirst breaks one_of_many_racing_bids_wins on Clock,
    ignores_the_version::IgnoresTheVersion breaks a_swap_on_a_stale_version_loses_and_changes_nothing on Clock,
    renews_without_checking_the_holder::RenewsWithoutChecking breaks a_renewal_of_a_lost_seat_is_lost on Clock,
    ignores_the_version_of_a_will::IgnoresTheVersionOfAWill breaks a_last_will_frees_the_seat_of_a_dead_process on Clock,
    ignores_the_lifeline::IgnoresTheLifeline breaks a_last_will_frees_the_seat_of_a_dead_process on Lock,
    waits_for_the_session_of_the_dead::WaitsForTheSession breaks a_last_will_frees_the_seat_of_a_dead_process on Session,
    delays_after_a_release::DelaysAfterARelease breaks a_released_seat_is_taken_at_once on Clock,
    has_one_session_for_all_leases::OneSession breaks a_session_of_a_longer_lease_keeps_no_other_seat on Session,
    writes_on_the_session_of_the_call::SessionOfTheCall breaks a_call_with_another_lease_releases_the_seat on Session,
    ends_sessions_too_early::EndsSessionsTooEarly breaks a_seat_can_be_taken_after_its_lease_and_not_before on Session,
    reports_every_seat_as_just_renewed::AlwaysJustRenewed breaks a_seat_can_be_taken_after_its_lease_and_not_before on Clock,
    changes_the_version_at_every_read::NewVersions breaks a_seat_can_be_taken_after_its_lease_and_not_before on Observe,
    reads_from_a_cache::ReadsFromACache breaks a_read_after_an_unknown_outcome_shows_the_holder on Clock,
    applies_abandoned_bids_late::AppliesLate breaks a_read_shows_whether_an_abandoned_bid_has_won on Clock,
    ignores_the_identity::IgnoresTheIdentity breaks a_bid_based_on_other_data_is_lost on Clock,
    makes_the_version_from_the_content::VersionFromContent breaks every_write_has_a_version_of_its_own on Clock,
    truncates_ids::TruncatesIds breaks every_field_of_a_record_is_read_back on Clock,
    forgets_unknown_fields::ForgetsUnknownFields breaks unknown_fields_of_a_newer_version_are_kept on Clock,
    has_one_seat_for_all::OneSeatForAll breaks seats_are_independent on Clock,
    answers_for_the_next_seat::AnswersForTheNextSeat breaks every_seat_of_a_call_gets_its_own_answer on Clock,
    folds_case::FoldsCase breaks every_name_is_a_seat_of_its_own on Clock,
    deletes_on_release::DeletesOnRelease breaks tokens_only_rise on Clock,
    has_no_floor::HasNoFloor breaks tokens_rise_above_a_deleted_seat on Clock,
    hands_answers_to_the_wrong_caller::WrongCaller breaks many_tasks_can_call_concurrently on Clock,
    stays_locked_when_dropped::StaysLocked breaks a_dropped_call_leaves_nothing_locked on Clock,
    swallows_errors::SwallowsErrors breaks a_failed_call_is_an_error_and_never_a_panic on Clock,
    does_not_check_sessions::DoesNotCheckSessions breaks a_bid_on_a_living_session_is_lost on Clock,
    renews_on_a_dead_session::RenewsOnADeadSession breaks a_seat_is_not_kept_on_an_ended_session on Session,
    reports_every_heartbeat_as_new::EveryHeartbeatNew breaks a_write_reports_when_its_heartbeat_was_sent on Session,
    never_wakes::NeverWakes breaks a_watch_wakes_when_the_holder_changes on Clock,
    watches_from_its_start::WatchesFromItsStart breaks a_watch_reports_changes_from_before_it_began on Clock,
    wakes_at_every_renewal::WakesAtEveryRenewal breaks renewals_do_not_wake_a_watch on Clock,
    pushes_the_version_before_the_release::VersionBefore breaks a_pushed_release_is_the_seat_as_it_is_read on Clock,
    pushes_only_writes::PushesOnlyWrites breaks a_watch_wakes_when_the_holders_session_ends on Session,
    keeps_waking_for_a_dead_holder::WakesForDeadHolder breaks a_watch_wakes_when_the_holders_session_ends on Session,
    hides_the_end_of_its_own_session::HidesItsEnd breaks a_watch_reports_the_end_of_its_own_session on Session,
    ignores_requests::IgnoresRequests breaks a_request_wakes_a_watch_that_subscribes_to_requests on Clock,
    keeps_waking_for_removed_requests::WakesForRemoved breaks a_request_wakes_a_watch_that_subscribes_to_requests on Clock,
    loses_notes::LosesNotes breaks a_note_stays_until_it_is_removed on Clock,
    keeps_only_ascii_of_candidates::KeepsOnlyAscii breaks a_note_stays_until_it_is_removed on Clock,
    keeps_notes_forever::KeepsNotesForever breaks a_note_expires_after_its_lifetime on Clock,
    keeps_process_notes_forever::KeepsProcessNotesForever breaks a_note_expires_after_its_lifetime on Clock,
    says_every_note_existed::SaysEveryNoteExisted breaks writing_a_note_reports_whether_it_existed on Clock,
    says_expired_notes_exist::SaysExpiredNotesExist breaks writing_a_note_reports_whether_it_existed on Clock,
    keeps_every_note_of_a_key::KeepsEveryNote breaks a_note_replaces_the_note_with_the_same_key on Clock,
    mixes_the_boards_of_a_seat::MixesBoards breaks boards_are_independent on Clock,
    has_one_board_for_all::OneBoardForAll breaks boards_are_independent on Clock,
    answers_for_the_next_board::AnswersForTheNextBoard breaks every_note_of_a_call_gets_its_own_answer on Clock,
    writes_notes_into_the_seat::WritesNotesIntoTheSeat breaks notes_do_not_change_the_seat on Clock,
    forgets_the_floor_too::ForgetsTheFloorToo breaks a_forgotten_seat_keeps_its_floor on Clock,
    ignores_the_floor::IgnoresTheFloor breaks a_bid_from_before_a_removal_is_lost on Clock,
    lists_escaped_names::ListsEscapedNames breaks the_list_has_every_seat_once_and_no_other on Clock,
    lists_forgotten_seats::ListsForgottenSeats breaks the_list_has_every_seat_once_and_no_other on Clock,
    lists_only_held_seats::ListsOnlyHeldSeats breaks the_list_has_every_seat_once_and_no_other on Clock,
];
