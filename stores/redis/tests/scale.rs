//! Five hundred elections in one process.

use tenure_redis::RedisStore;
use tenure_testkit::figures::{Open, RedisTarget, many_elections_child, scale};

const OPEN: Open = |url| Box::new(RedisStore::from_url(url).expect("the URL is valid"));

#[test]
fn five_hundred_elections_share_a_connection_and_move_together() {
    scale::check(&RedisTarget::start(), OPEN, 500);
}

/// Runs the elections, if this process was started for them.
#[test]
fn many_elections() {
    many_elections_child(OPEN);
}
