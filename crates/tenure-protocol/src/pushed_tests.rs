//! Pushes that can replace a read: released seats, and ended sessions.

use std::sync::Arc;

use super::*;

/// The seat after a release, as the store pushes it.
fn released(holder: Option<Candidate>, token: u64, data: Option<&str>) -> Input {
    let Seat { record, version, .. } = seat(holder, token, "v6");
    Input::Released(Arc::new(Release { record, version, identity: data.map(DataIdentity::new) }))
}

#[test]
fn a_pushed_release_of_the_term_that_was_seen_is_bid_for_without_a_read() {
    let mut script = Script::new();
    script.step(read(Some(seat(Some(other()), 5, "v5"))));
    let asked = script.at(101.0).step(released(None, 5, None));
    let on_the_release =
        |action: &Action| matches!(action, Action::Swap { expected: Some(v6), .. } if v6.as_str() == "v6");
    assert!(bid(&asked) == Some(6) && asked.iter().all(on_the_release), "{asked:?}");
    assert_eq!(script.step(LOST), [Action::Read], "another candidate was faster");
}

#[test]
fn any_other_pushed_release_is_read_first() {
    let held = || Some(seat(Some(other()), 5, "v5"));
    for (seen, pushed) in [
        (held(), released(None, 6, None)),
        (held(), released(None, 4, None)),
        (held(), released(None, 5, Some("other data"))),
        (held(), released(Some(candidate("third", 3)), 5, None)),
        (None, released(None, 5, None)),
    ] {
        let mut script = Script::with(|rules| rules.stands = false);
        script.step(read(seen));
        assert_eq!(script.at(101.0).step(pushed.clone()), [Action::Read], "{pushed:?}");
    }
}

#[test]
fn a_release_that_is_pushed_during_a_call_or_a_pause_is_read_afterwards() {
    let mut script = Script::new();
    script.step(read(Some(seat(Some(other()), 5, "v5"))));
    assert_eq!(script.at(110.0).step(Input::Changed(Change::Look)), [Action::Read]);
    assert_eq!(script.step(released(None, 5, None)), [], "a read is in flight");
    assert_eq!(script.step(Input::Read(Err(Fault::Unknown))), [Action::Failing(Fault::Unknown)], "a pause begins");
    assert_eq!(script.step(released(None, 5, None)), []);
    assert_eq!(script.sleep_until(112.0), [Action::Read]);
}

#[test]
fn a_leader_reads_its_seat_when_a_release_of_it_is_pushed() {
    let mut script = Script::leading(|_| {});
    assert_eq!(script.step(released(None, 1, None)), [Action::Read]);
    assert!(ended(&script.step(read(Some(seat(None, 1, "v6")))), EndReason::SeatLost));
}

#[test]
fn a_pushed_release_is_left_to_the_heir_that_it_names() {
    let mut script = Script::new();
    script.step(read(Some(seat(Some(other()), 5, "v5"))));
    let Input::Released(release) = released(None, 5, None) else { unreachable!() };
    let record = Record { heir: Some(candidate("third", 3)), ..release.record.clone() };
    let to_another = Release { record, ..(*release).clone() };
    assert_eq!(script.at(101.0).step(Input::Released(Arc::new(to_another))), []);
}

#[test]
fn a_seat_whose_session_has_ended_is_bid_for_without_a_read() {
    let held = Seat { life: Life::Held, ..seat(Some(other()), 5, "v5") };
    let mut instant = Script::with(|rules| rules.takeover = Takeover::Instant);
    instant.step(read(Some(held.clone())));
    let asked = instant.at(101.0).step(Input::HolderOver);
    let on_what_was_seen =
        |action: &Action| matches!(action, Action::Swap { expected: Some(v5), .. } if v5.as_str() == "v5");
    assert!(bid(&asked) == Some(6) && asked.iter().any(on_what_was_seen), "{asked:?}");
    assert_eq!(instant.step(LOST), [Action::Read], "the seat was written since");

    // The lease counts from the push, not from the last read.
    let over = Seat { life: Life::Over, ..held.clone() };
    let mut safe = Script::with(|rules| rules.takeover = Takeover::Safe);
    safe.step(read(Some(held)));
    assert_eq!(bid(&safe.at(101.0).step(Input::HolderOver)), None);
    for (second, token) in [(115.9, None), (116.0, Some(6))] {
        safe.at(second).step(Input::Changed(Change::Look));
        assert_eq!(bid(&safe.step(read(Some(over.clone())))), token);
    }
}

#[test]
fn the_end_of_any_other_session_is_followed_by_a_read() {
    for seen in [None, Some(seat(None, 5, "v5"))] {
        let mut script = Script::with(|rules| rules.stands = false);
        script.step(read(seen));
        assert_eq!(script.at(101.0).step(Input::HolderOver), [Action::Read]);
    }
    let mut leading = Script::leading(|_| {});
    assert_eq!(leading.step(Input::HolderOver), [Action::Read]);
}
