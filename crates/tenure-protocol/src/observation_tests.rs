//! When a seat may be taken according to the store's clock.

use super::*;

/// The seat of another candidate, from a store whose clock shows `now`.
fn clocked(token: u64, version: &str, now: u64, renewed: u64) -> Seat {
    let life = Life::Clock { now: StoreTime::from_nanos(nanos(now)), renewed: StoreTime::from_nanos(nanos(renewed)) };
    Seat { life, ..seat(Some(other()), token, version) }
}

fn nanos(seconds: u64) -> i128 {
    i128::from(seconds) * 1_000_000_000
}

/// At the start, the store's clock is 900 s ahead of ours.
#[test]
fn a_reading_of_the_stores_clock_from_before_its_own_term_vouches_for_nothing() {
    let mut script = Script::new();
    let vacant = Seat { record: Record::new(None, Token::new(1), LEASE), ..clocked(1, "v1", 1000, 900) };
    assert_eq!(bid(&script.step(read(Some(vacant)))), Some(2));
    script.step(done("v2"));
    // The candidate leads for an hour, and meanwhile the store's clock is set back by 120 s.
    for renewal in 0..720 {
        assert!(renews(&script.sleep_until(105.0 + f64::from(renewal) * 5.0)));
        script.step(done("v2"));
    }
    // The candidate is cut off. Another leads from 3720 s on, renewed at 3722 s, when the store's clock shows
    // 4502 s.
    assert!(renews(&script.sleep_until(3705.0)));
    script.step(Input::Written(Err(Fault::Refused)));
    script.at(3723.0).step(Input::Wake);
    script.step(Input::Drained(Token::new(2)));
    // The store's clock is set forward by 120 s before the candidate can read again.
    let actions = script.step(read(Some(clocked(3, "w9", 4623, 4502))));
    assert!(!actions.iter().any(|action| matches!(action, Action::Swap { .. })), "{actions:?}");
}

#[test]
fn a_follower_that_has_looked_within_a_lease_takes_a_seat_as_soon_as_it_lapses() {
    let mut script = Script::new();
    script.step(read(Some(clocked(1, "v1", 1000, 998))));
    assert_eq!(script.sleep_until(105.0), [Action::Read]);
    // Renewed at 101 s on our clock, and never again.
    let mut actions = script.step(read(Some(clocked(1, "v2", 1005, 1001))));
    while bid(&actions).is_none() {
        assert!(script.now < at(116.5), "its look at {:?} found it still taken", script.now);
        assert_eq!(script.sleep_until(120.0), [Action::Read]);
        let store = script.now.as_nanos() / 1_000_000_000 + 900;
        actions = script.step(read(Some(clocked(1, "v2", store, 1001))));
    }
    assert!(script.now >= at(116.0), "{:?}", script.now);
}
