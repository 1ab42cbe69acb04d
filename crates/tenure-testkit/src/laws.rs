//! The laws, one file each. A law's name is its file's, and its doc says what it protects from.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Answers, DynNotes, StoreError};

use crate::bench::Connection;
use crate::law::laws;
use crate::{Failure, Law};

mod elections;
#[cfg(unix)]
pub mod faults;

laws![
    // The seat.
    one_of_many_racing_bids_wins,
    a_swap_on_a_stale_version_loses_and_changes_nothing,
    a_renewal_of_a_lost_seat_is_lost,
    a_released_seat_is_taken_at_once,
    a_lapsed_seat_can_be_taken_and_not_before,
    a_read_back_tells_who_holds,
    every_write_has_a_version_of_its_own,
    a_seat_absent_from_other_data_is_not_written,
    every_field_of_a_record_comes_back,
    fields_of_a_newer_version_survive,
    separate_seats_do_not_touch,
    seats_of_one_call_are_answered_each,
    odd_names_are_seats_of_their_own,
    tokens_only_rise,
    tokens_rise_above_a_deleted_seat,
    a_forgotten_seat_keeps_its_floor,
    // The connection.
    many_tasks_may_call_at_once,
    a_dropped_call_leaves_nothing_locked,
    a_failed_call_is_an_error_and_never_a_panic,
    // Sessions.
    a_bid_on_a_living_session_is_lost,
    a_seat_is_not_kept_on_an_ended_session,
    a_shared_heartbeat_tells_its_own_age,
    // Push.
    a_watch_wakes_when_the_holder_changes,
    a_watch_tells_what_changed_before_it_began,
    a_watch_sleeps_through_renewals,
    a_watch_wakes_when_the_holders_session_ends,
    a_watch_tells_that_our_own_session_is_over,
    a_watch_wakes_on_a_request_to_whoever_minds,
    // Notes.
    a_note_stays_until_it_is_removed,
    a_note_lives_as_long_as_it_says,
    a_note_replaces_one_of_the_same_key,
    a_note_that_is_written_tells_whether_it_was_there,
    boards_are_apart,
    notes_of_one_call_are_answered_each,
    notes_leave_the_seat_alone,
];

/// All laws: those about stores alone first, then those about elections over them.
pub fn all() -> Vec<Law> {
    LAWS.iter().chain(elections::LAWS).copied().collect()
}

/// The laws about elections, through the real engine.
pub fn of_elections() -> Vec<Law> {
    elections::LAWS.to_vec()
}

/// Longer than any law takes.
const LONG: Duration = Duration::from_secs(600);

fn notes_of(store: &Connection) -> Result<&dyn DynNotes, Failure> {
    store.notes().ok_or_else(|| Failure::new("the store has notes only at times"))
}

/// The answers to a call, by their places; `None` where there is none.
type Collected<T> = Vec<Option<Result<T, StoreError>>>;

/// Makes a call, and returns the answers to it by their places.
async fn collected<T: Clone + Send + 'static>(
    count: usize,
    call: impl AsyncFnOnce(&Answers<T>) -> Result<(), StoreError>,
) -> Result<Collected<T>, StoreError> {
    let answers = Arc::new(Mutex::new(vec![None; count]));
    let told = answers.clone();
    let to = Answers::new(move |place, answer| {
        if let Some(slot) = told.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_mut(place) {
            *slot = Some(answer);
        }
    });
    call(&to).await?;
    let answers = answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(answers.clone())
}
