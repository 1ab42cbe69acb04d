//! The laws, one file each. The name of the file is the name of the law, and its documentation says what the law
//! protects from.

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
    a_pushed_release_is_the_seat_as_it_is_read,
    a_released_seat_is_taken_at_once,
    a_last_will_frees_the_seat_of_a_dead_process,
    a_seat_can_be_taken_after_its_lease_and_not_before,
    a_session_of_a_longer_lease_keeps_no_other_seat,
    a_call_with_another_lease_releases_the_seat,
    a_read_after_an_unknown_outcome_shows_the_holder,
    a_read_shows_whether_an_abandoned_bid_has_won,
    every_write_has_a_version_of_its_own,
    a_bid_based_on_other_data_is_lost,
    every_field_of_a_record_is_read_back,
    unknown_fields_of_a_newer_version_are_kept,
    seats_are_independent,
    every_seat_of_a_call_gets_its_own_answer,
    every_name_is_a_seat_of_its_own,
    tokens_only_rise,
    tokens_rise_above_a_deleted_seat,
    a_forgotten_seat_keeps_its_floor,
    a_bid_from_before_a_removal_is_lost,
    the_list_has_every_seat_once_and_no_other,
    // The connection.
    many_tasks_can_call_concurrently,
    a_dropped_call_leaves_nothing_locked,
    a_failed_call_is_an_error_and_never_a_panic,
    // Sessions.
    a_bid_on_a_living_session_is_lost,
    a_seat_is_not_kept_on_an_ended_session,
    a_write_reports_when_its_heartbeat_was_sent,
    // Push.
    a_watch_wakes_when_the_holder_changes,
    a_watch_reports_changes_from_before_it_began,
    renewals_do_not_wake_a_watch,
    a_watch_wakes_when_the_holders_session_ends,
    a_watch_reports_the_end_of_its_own_session,
    a_request_wakes_a_watch_that_subscribes_to_requests,
    // Notes.
    a_note_stays_until_it_is_removed,
    a_note_expires_after_its_lifetime,
    a_note_replaces_the_note_with_the_same_key,
    writing_a_note_reports_whether_it_existed,
    boards_are_independent,
    every_note_of_a_call_gets_its_own_answer,
    notes_do_not_change_the_seat,
];

/// Returns all laws: first those about stores alone, then those about elections over a store.
pub fn all() -> Vec<Law> {
    LAWS.iter().chain(elections::LAWS).copied().collect()
}

/// Returns the laws about elections over a store, which run through the real engine and in real time.
pub fn of_elections() -> Vec<Law> {
    elections::LAWS.to_vec()
}

/// A duration that is longer than any law takes.
const LONG: Duration = Duration::from_secs(600);

fn notes_of(store: &Connection) -> Result<&dyn DynNotes, Failure> {
    store.notes().ok_or_else(|| Failure::new("`notes()` returned `Some` before, and `None` now"))
}

/// The answers to a call, by position; `None` where the store gave none.
type Collected<T> = Vec<Option<Result<T, StoreError>>>;

/// Makes a call about `count` items and returns the answers by position.
async fn collected<T: Clone + Send + 'static>(
    count: usize,
    call: impl AsyncFnOnce(&Answers<T>) -> Result<(), StoreError>,
) -> Result<Collected<T>, StoreError> {
    let answers = Arc::new(Mutex::new(vec![None; count]));
    let slots = answers.clone();
    let to = Answers::new(move |place, answer| {
        if let Some(slot) = slots.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_mut(place) {
            *slot = Some(answer);
        }
    });
    call(&to).await?;
    let answers = answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(answers.clone())
}
