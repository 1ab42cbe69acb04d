//! Laws about elections over a store, through the real engine and in real time.
//!
//! No law depends on luck. A law waits, with a long time-out, for events that must happen. For events that must
//! never happen it compares recorded moments, so that a busy machine does not matter.

use crate::law::laws;

laws![
    // Handing over.
    a_leader_that_stops_hands_over,
    a_leader_that_crashes_is_replaced,
    a_leader_that_steps_down_lets_another_lead,
    a_request_on_the_board_makes_the_leader_hand_over,
    dropping_all_handles_releases_the_seat,
    without_release_on_stop_the_seat_is_left_to_expire,
    // One at a time.
    a_paused_leader_stops_believing,
    a_cut_off_leader_stops_before_another_starts,
    a_restart_with_the_same_id_is_another_candidate,
    two_candidates_with_the_same_id_never_both_lead,
    a_lost_answer_to_a_winning_bid_ends_in_one_term,
    stop_during_a_bid_leaves_the_seat_free,
    a_deleted_seat_makes_no_second_leader,
    a_leader_whose_seat_is_taken_stops,
    // Work.
    work_drains_before_the_seat_is_released,
    work_that_cannot_be_cancelled_keeps_the_seat,
    work_that_ignores_the_end_of_its_term_is_cancelled,
    work_that_panics_counts_as_returned,
    work_runs_again_in_every_term,
    work_that_returns_releases_the_seat,
    a_starved_runtime_does_not_delay_renewals,
    // Candidates.
    candidates_are_listed_until_they_end,
    announcing_costs_no_more_than_renewing,
    an_unhealthy_leader_hands_over_and_stands_again,
    health_is_reported_on_leaders_and_followers,
    a_transfer_goes_to_the_heir,
    an_heir_that_is_gone_does_not_keep_the_seat_empty,
    a_free_seat_goes_to_the_highest_priority,
    a_higher_priority_preempts_if_asked_to,
    // Handlers and listeners.
    a_handler_that_leads_is_waited_for,
    slow_handlers_do_not_delay_renewals,
    a_panicking_handler_does_not_hurt_the_election,
    stop_can_be_called_from_handlers_and_work,
    a_cancelled_token_stops_the_election,
    every_start_event_is_followed_by_an_end_event,
    all_candidates_and_observers_see_the_same_leader,
    // Manual bids, and candidates that give up.
    try_acquire_wins_or_reports_that_the_seat_is_taken,
    a_manually_acquired_term_ends_with_its_last_clone,
    try_acquire_keeps_a_term_that_is_dropped_at_the_same_moment,
    a_candidate_gives_up_when_the_store_fails_for_too_long,
];
