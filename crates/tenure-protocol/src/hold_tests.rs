//! How long a term is held, when it is renewed, and what ends it.

use super::*;

#[test]
fn a_term_counts_from_the_send_of_its_bid() {
    let mut script = Script::new();
    script.step(read(None));
    let began = script.at(100.9).step(done("v1"));
    let hold = Durations::of(LEASE).check().unwrap().hold();
    assert_eq!(began, [Action::Began { token: Token::new(1), until: at(100.0) + hold }]);
}

#[test]
fn a_term_counts_from_the_heartbeat_that_it_rests_on() {
    let mut script = Script::new();
    script.step(read(None));
    let won = Swap::Done { version: Version::new("v1"), since: Some(at(96.0)), granted: Some(LEASE / 2) };
    let began = script.step(Input::Written(Ok(won)));
    let hold = Durations::of(LEASE).check().unwrap().hold_of(LEASE / 2);
    assert_eq!(began, [Action::Began { token: Token::new(1), until: at(96.0) + hold }]);
}

#[test]
fn a_seat_won_with_no_more_than_the_drain_left_is_renewed_before_its_term_begins() {
    let mut script = Script::new();
    script.step(read(None));
    let won = Swap::Done { version: Version::new("v1"), since: Some(at(87.0)), granted: None };
    assert_eq!(script.step(Input::Written(Ok(won))), []);
    assert!(renews(&script.sleep_until(101.1)));
    assert!(matches!(script.step(done("v2"))[..], [Action::Began { .. }]));
}

#[test]
fn one_failed_renewal_does_not_cost_the_term() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    let asked = script.at(106.0).step(UNKNOWN);
    assert!(matches!(asked[..], [Action::Failing(Fault::Unknown), Action::Renew { .. }]), "{asked:?}");
    assert!(matches!(script.step(done("v2"))[..], [Action::Recovered, Action::Extended { .. }]));
    assert_eq!(script.term(), Some(1));
}

#[test]
fn where_renewals_are_matched_by_version_one_of_unknown_outcome_is_read_back_first() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    // This renewal has landed, so the next one is lost to it.
    assert!(script.at(106.0).step(UNKNOWN).iter().any(|action| matches!(action, Action::Renew { .. })));
    assert!(script.step(LOST).contains(&Action::Read));
    assert!(renews(&script.step(read(Some(seat(Some(me()), 1, "v2"))))));
    script.step(done("v3"));
    assert!(renews(&script.sleep_until(112.0)));
    assert!(script.at(112.1).step(UNKNOWN).contains(&Action::Read));
}

#[test]
fn a_rewrite_of_the_record_shows_nothing_about_how_renewals_are_matched() {
    let mut script = Script::leading(|_| {});
    let token = Token::new(1);
    // A rewrite lands and its answer is lost, so the next one is lost to it.
    let asked = script.at(103.0).step(Input::Requests(vec![Request::Rank { token }]));
    assert!(asked.iter().any(|action| matches!(action, Action::Swap { .. })), "{asked:?}");
    assert!(script.at(104.0).step(UNKNOWN).iter().any(|action| matches!(action, Action::Swap { .. })));
    assert!(script.step(LOST).contains(&Action::Read));
    let mut now = seat(Some(me()), 1, "v2");
    now.record.ranked = true;
    assert!(script.step(read(Some(now))).iter().any(|action| matches!(action, Action::Swap { .. })));
    script.step(done("v3"));
    // A renewal of unknown outcome is repeated without a look.
    assert!(renews(&script.sleep_until(112.0)));
    assert!(script.at(112.1).step(UNKNOWN).iter().any(|action| matches!(action, Action::Renew { .. })));
}

#[test]
fn a_reading_never_extends_the_hold() {
    let mut script = Script::leading(|_| {});
    script.at(104.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(seat(Some(me()), 1, "v1")))), []);
    assert!(script.at(114.0).term().is_some());
    assert!(script.at(114.71).term().is_none());
}

#[test]
fn a_paused_leader_stops_leading() {
    let script = &mut Script::leading(|_| {});
    assert_eq!(script.at(114.7).term(), Some(1));
    assert_eq!(script.at(114.71).term(), None);
}

#[test]
fn a_term_that_is_not_renewed_is_ending_a_drain_before_its_hold_is_over() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    let actions = script.sleep_until(114.0);
    assert!(matches!(actions[..], [Action::Ending { why: EndReason::NotRenewed, .. }]));
    assert_eq!(script.now, at(100.0) + Durations::of(LEASE).check().unwrap().hold() - Duration::from_secs(2));
    assert!(ended(&script.sleep_until(115.0), EndReason::NotRenewed));
}

#[test]
fn a_late_renewal_never_revives_a_term() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    script.sleep_until(113.0);
    assert_eq!(script.step(done("v2")), []);
    assert_eq!(script.term(), None);
    // The candidate bids above its own record, with another token.
    assert!(ended(&script.step(Input::Drained(Token::new(1))), EndReason::NotRenewed));
    assert_eq!(bid(&script.step(read(Some(seat(Some(me()), 1, "v2"))))), Some(2));
}

#[test]
fn a_seat_that_names_another_ends_the_term_at_once() {
    let mut script = Script::leading(|_| {});
    script.step(Input::Changed(Change::Look));
    let actions = script.step(read(Some(seat(Some(other()), 2, "v2"))));
    assert!(ended(&actions, EndReason::SeatLost));
}

#[test]
fn a_notification_that_its_session_has_ended_ends_the_term_without_a_look() {
    let mut script = Script::leading(|_| {});
    assert!(ended(&script.step(Input::Changed(Change::SessionOver)), EndReason::SessionOver));
}

#[test]
fn a_leader_whose_seat_has_vanished_ends_its_term_at_once() {
    let mut script = Script::leading(|_| {});
    script.step(Input::Changed(Change::Look));
    assert!(ended(&script.step(read(None)), EndReason::SeatVanished));
}

#[test]
fn a_renewal_that_proves_nothing_newer_is_not_repeated_at_once() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    let kept = Swap::Done { version: Version::new("v1"), since: Some(at(100.0)), granted: None };
    assert!(matches!(script.step(Input::Written(Ok(kept)))[..], [Action::Extended { .. }]));
    assert_eq!(script.sleep_until(105.9), []);
    assert!(renews(&script.sleep_until(106.1)));
}

/// Returns when the first renewals of a thousand elections are due that were all won at 100 s.
fn first_renewals(spread: bool) -> Vec<Moment> {
    let renewal = |seed| {
        let mut rules = Rules::new(Durations::of(LEASE).check().unwrap());
        rules.spread = spread;
        let mut script = Script { machine: Machine::new(me(), rules, seed), now: at(100.0), wake: None };
        script.step(Input::Start);
        script.step(read(None));
        script.step(done("v1"));
        assert!(renews(&script.sleep_until(105.0)));
        script.step(done("v2"));
        let first = script.now;
        assert!(renews(&script.sleep_until(first.as_nanos() as f64 / 1e9 + 5.0)));
        assert_eq!(script.now.since(first), Duration::from_secs(5), "later renewals keep the interval");
        first
    };
    (0..1000).map(renewal).collect()
}

#[test]
fn renewals_of_many_elections_are_spread_over_a_few_shared_times() {
    let mut renewals = first_renewals(true);
    renewals.sort();
    assert!(renewals[0] >= at(101.0) && renewals[999] <= at(105.0), "{renewals:?}");
    renewals.dedup();
    assert!((10..=20).contains(&renewals.len()), "{renewals:?}");
}

#[test]
fn a_renewal_that_was_sent_late_is_followed_by_one_at_a_shared_time() {
    let mut rules = Rules::new(Durations::of(LEASE).check().unwrap());
    rules.spread = true;
    let mut script = Script { machine: Machine::new(me(), rules, 7), now: at(100.0), wake: None };
    script.step(Input::Start);
    script.step(read(None));
    script.step(done("v1"));
    for _ in 0..3 {
        // A busy machine wakes 7 ms late.
        script.now = script.wake.unwrap() + Duration::from_millis(7);
        assert!(renews(&script.step(Input::Wake)));
        let sent = script.now;
        script.step(done("v2"));
        let next = script.wake.unwrap();
        assert_eq!(next.as_nanos() % 250_000_000, 0, "{next:?}");
        assert!(next.since(sent) <= Duration::from_secs(5), "{next:?} after {sent:?}");
    }
}

#[test]
fn renewals_that_one_heartbeat_covers_stay_together() {
    assert_eq!(first_renewals(false), [at(105.0); 1000]);
}
