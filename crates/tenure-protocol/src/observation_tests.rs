//! When a seat may be taken by the store's clock.

use super::*;

/// A seat of another candidate, as a store tells it whose clock shows `now`.
fn clocked(token: u64, version: &str, now: u64, renewed: u64) -> Seat {
    let life = Life::Clock { now: StoreTime::from_nanos(nanos(now)), renewed: StoreTime::from_nanos(nanos(renewed)) };
    Seat { life, ..seat(Some(other()), token, version) }
}

fn nanos(seconds: u64) -> i128 {
    i128::from(seconds) * 1_000_000_000
}

/// The store's clock shows 900 s more than ours to begin with.
#[test]
fn a_reading_of_the_stores_clock_from_before_an_own_term_vouches_for_nothing() {
    let mut script = Script::new();
    let vacant = Seat { record: Record::new(None, Token::new(1), LEASE), ..clocked(1, "v1", 1000, 900) };
    assert_eq!(bid(&script.tell(read(Some(vacant)))), Some(2));
    script.tell(done("v2"));
    // It leads for an hour, while the store's clock is set back by 120 s.
    for renewal in 0..720 {
        assert!(renews(&script.sleep_until(105.0 + f64::from(renewal) * 5.0)));
        script.tell(done("v2"));
    }
    // It is cut off, and another leads from 3720 s on, renewed at 3722 s, as the store's clock shows 4502 s.
    assert!(renews(&script.sleep_until(3705.0)));
    script.tell(Input::Written(Err(Fault::Refused)));
    script.at(3723.0).tell(Input::Wake);
    script.tell(Input::Drained(Token::new(2)));
    // The clock is set forward by 120 s before it is back.
    let told = script.tell(read(Some(clocked(3, "w9", 4623, 4502))));
    assert!(!told.iter().any(|action| matches!(action, Action::Swap { .. })), "{told:?}");
}

#[test]
fn a_follower_that_has_looked_within_a_lease_takes_a_seat_as_soon_as_it_has_lapsed() {
    let mut script = Script::new();
    script.tell(read(Some(clocked(1, "v1", 1000, 998))));
    assert_eq!(script.sleep_until(105.0), [Action::Read]);
    // Renewed at 101 s on our clock, and never again.
    let mut told = script.tell(read(Some(clocked(1, "v2", 1005, 1001))));
    while bid(&told).is_none() {
        assert!(script.now < at(116.5), "its look at {:?} found it still taken", script.now);
        assert_eq!(script.sleep_until(120.0), [Action::Read]);
        let store = script.now.as_nanos() / 1_000_000_000 + 900;
        told = script.tell(read(Some(clocked(1, "v2", store, 1001))));
    }
    assert!(script.now >= at(116.0), "{:?}", script.now);
}
