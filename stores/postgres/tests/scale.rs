//! Five hundred elections in one process, in both modes.

use tenure_postgres::PostgresStore;
use tenure_testkit::figures::{Open, PostgresTarget, many_elections_child, scale};

const OPEN: Open = |url| Box::new(PostgresStore::from_url(url).expect("the URL is valid"));

#[test]
fn five_hundred_leases_share_their_statements_and_move_together() {
    scale::check(&PostgresTarget::start("lease"), OPEN, 500);
}

#[test]
fn five_hundred_seats_share_a_session_and_move_together() {
    scale::check(&PostgresTarget::start("session"), OPEN, 500);
}

/// Runs the elections, if this process was started for them.
#[test]
fn many_elections() {
    many_elections_child(OPEN);
}
