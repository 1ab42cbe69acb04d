//! The laws, one file each. A law's name is its file's, and its doc says what it protects from.

use crate::Law;
use crate::law::laws;

mod elections;

laws![
    a_released_seat_is_taken_at_once,
    a_renewal_of_a_lost_seat_is_lost,
    a_swap_on_a_stale_version_loses_and_changes_nothing,
    one_of_many_racing_bids_wins,
    every_field_of_a_record_comes_back,
];

/// All laws: those about stores alone first, then those about elections over them.
pub fn all() -> Vec<Law> {
    LAWS.iter().chain(elections::LAWS).copied().collect()
}
