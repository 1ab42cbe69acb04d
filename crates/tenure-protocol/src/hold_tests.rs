//! What a term stands on: how long it is held, when it is renewed, what ends it.

use super::*;

#[test]
fn a_term_counts_from_the_send_of_its_bid() {
    let mut script = Script::new();
    script.tell(read(None));
    let began = script.at(100.9).tell(done("v1"));
    let hold = Durations::of(LEASE).check().unwrap().hold();
    assert_eq!(began, [Action::Began { token: Token::new(1), until: at(100.0) + hold }]);
}

#[test]
fn a_term_counts_from_the_heartbeat_that_it_stands_on() {
    let mut script = Script::new();
    script.tell(read(None));
    let won = Swap::Done { version: Version::new("v1"), since: Some(at(96.0)), granted: Some(LEASE / 2) };
    let began = script.tell(Input::Written(Ok(won)));
    let hold = Durations::of(LEASE).check().unwrap().hold_of(LEASE / 2);
    assert_eq!(began, [Action::Began { token: Token::new(1), until: at(96.0) + hold }]);
}

#[test]
fn a_win_with_no_more_than_the_drain_left_is_renewed_first() {
    let mut script = Script::new();
    script.tell(read(None));
    let won = Swap::Done { version: Version::new("v1"), since: Some(at(87.0)), granted: None };
    assert_eq!(script.tell(Input::Written(Ok(won))), []);
    assert!(renews(&script.sleep_until(101.1)));
    assert!(matches!(script.tell(done("v2"))[..], [Action::Began { .. }]));
}

#[test]
fn one_failed_renewal_does_not_cost_the_term() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    let asked = script.at(106.0).tell(UNKNOWN);
    assert!(matches!(asked[..], [Action::Failing(Fault::Unknown), Action::Renew { .. }]), "{asked:?}");
    assert!(matches!(script.tell(done("v2"))[..], [Action::Recovered, Action::Extended { .. }]));
    assert_eq!(script.term(), Some(1));
}

#[test]
fn where_renewals_are_matched_by_version_an_unknown_one_is_read_back_first() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    // It has landed, so the next one is lost to it.
    assert!(script.at(106.0).tell(UNKNOWN).iter().any(|action| matches!(action, Action::Renew { .. })));
    assert!(script.tell(LOST).contains(&Action::Read));
    assert!(renews(&script.tell(read(Some(seat(Some(me()), 1, "v2"))))));
    script.tell(done("v3"));
    assert!(renews(&script.sleep_until(112.0)));
    assert!(script.at(112.1).tell(UNKNOWN).contains(&Action::Read));
}

#[test]
fn a_record_written_anew_tells_nothing_of_how_renewals_are_matched() {
    let mut script = Script::leading(|_| {});
    let token = Token::new(1);
    // A rewrite lands and its answer is lost, so the next one is lost to it.
    let asked = script.at(103.0).tell(Input::Requests(vec![Request::Rank { token }]));
    assert!(asked.iter().any(|action| matches!(action, Action::Swap { .. })), "{asked:?}");
    assert!(script.at(104.0).tell(UNKNOWN).iter().any(|action| matches!(action, Action::Swap { .. })));
    assert!(script.tell(LOST).contains(&Action::Read));
    let mut now = seat(Some(me()), 1, "v2");
    now.record.ranked = true;
    assert!(script.tell(read(Some(now))).iter().any(|action| matches!(action, Action::Swap { .. })));
    script.tell(done("v3"));
    // A renewal of unknown outcome is sent again without a look.
    assert!(renews(&script.sleep_until(112.0)));
    assert!(script.at(112.1).tell(UNKNOWN).iter().any(|action| matches!(action, Action::Renew { .. })));
}

#[test]
fn a_reading_never_extends_the_hold() {
    let mut script = Script::leading(|_| {});
    script.at(104.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(seat(Some(me()), 1, "v1")))), []);
    assert!(script.at(114.0).term().is_some());
    assert!(script.at(114.71).term().is_none());
}

#[test]
fn a_paused_leader_stops_believing() {
    let script = &mut Script::leading(|_| {});
    assert_eq!(script.at(114.7).term(), Some(1));
    assert_eq!(script.at(114.71).term(), None);
}

#[test]
fn a_term_that_is_not_renewed_is_ending_a_drain_before_its_hold_is_over() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    let told = script.sleep_until(114.0);
    assert!(matches!(told[..], [Action::Ending { why: EndReason::NotRenewed, .. }]));
    assert_eq!(script.now, at(100.0) + Durations::of(LEASE).check().unwrap().hold() - Duration::from_secs(2));
    assert!(ended(&script.sleep_until(115.0), EndReason::NotRenewed));
}

#[test]
fn a_late_renewal_never_revives_a_term() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    script.sleep_until(113.0);
    assert_eq!(script.tell(done("v2")), []);
    assert_eq!(script.term(), None);
    // Its own record is bid above, with another number.
    assert!(ended(&script.tell(Input::Drained(Token::new(1))), EndReason::NotRenewed));
    assert_eq!(bid(&script.tell(read(Some(seat(Some(me()), 1, "v2"))))), Some(2));
}

#[test]
fn a_seat_that_names_another_ends_the_term_at_once() {
    let mut script = Script::leading(|_| {});
    script.tell(Input::Changed(Change::Look));
    let told = script.tell(read(Some(seat(Some(other()), 2, "v2"))));
    assert!(ended(&told, EndReason::SeatLost));
}

#[test]
fn news_of_the_end_of_its_session_ends_the_term_without_a_look() {
    let mut script = Script::leading(|_| {});
    assert!(ended(&script.tell(Input::Changed(Change::SessionOver)), EndReason::SessionOver));
}

#[test]
fn a_leader_that_finds_no_seat_ends_at_once() {
    let mut script = Script::leading(|_| {});
    script.tell(Input::Changed(Change::Look));
    assert!(ended(&script.tell(read(None)), EndReason::SeatVanished));
}

#[test]
fn a_renewal_that_proves_nothing_newer_is_not_asked_again_at_once() {
    let mut script = Script::leading(|_| {});
    assert!(renews(&script.sleep_until(106.0)));
    let kept = Swap::Done { version: Version::new("v1"), since: Some(at(100.0)), granted: None };
    assert!(matches!(script.tell(Input::Written(Ok(kept)))[..], [Action::Extended { .. }]));
    assert_eq!(script.sleep_until(105.9), []);
    assert!(renews(&script.sleep_until(106.1)));
}

/// When the first renewals of so many elections are due, which were all won at 100 s.
fn first_renewals(spread: bool) -> Vec<Moment> {
    let renewal = |seed| {
        let mut rules = Rules::new(Durations::of(LEASE).check().unwrap());
        rules.spread = spread;
        let mut script = Script { machine: Machine::new(me(), rules, seed), now: at(100.0), wake: None };
        script.tell(Input::Start);
        script.tell(read(None));
        script.tell(done("v1"));
        assert!(renews(&script.sleep_until(105.0)));
        script.tell(done("v2"));
        let first = script.now;
        assert!(renews(&script.sleep_until(first.as_nanos() as f64 / 1e9 + 5.0)));
        assert_eq!(script.now.since(first), Duration::from_secs(5), "after that, it keeps to its time");
        first
    };
    (0..1000).map(renewal).collect()
}

#[test]
fn renewals_of_many_elections_are_spread_and_those_of_one_step_come_together() {
    let mut renewals = first_renewals(true);
    renewals.sort();
    assert!(renewals[0] >= at(101.0) && renewals[999] <= at(105.0), "{renewals:?}");
    renewals.dedup();
    assert!((10..=20).contains(&renewals.len()), "{renewals:?}");
}

#[test]
fn renewals_that_one_heartbeat_serves_stay_together() {
    assert_eq!(first_renewals(false), [at(105.0); 1000]);
}
