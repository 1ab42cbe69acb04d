//! Health, heirs and priorities, one example per test.

use super::*;

fn health(score: f64) -> Input {
    Input::Health(Score::new(score).unwrap())
}

fn vacant(token: u64, heir: Option<Candidate>, ranked: bool) -> Option<Seat> {
    let mut seat = seat(None, token, "v");
    (seat.record.heir, seat.record.ranked) = (heir, ranked);
    Some(seat)
}

fn led_by_other(priority: i32, ranked: bool) -> Option<Seat> {
    let mut seat = seat(Some(other()), 1, "v");
    (seat.record.priority, seat.record.ranked) = (priority, ranked);
    Some(seat)
}

fn standing(who: Candidate, priority: i32, fit: bool) -> RosterEntry {
    RosterEntry { candidate: who, priority, fit }
}

fn third() -> Candidate {
    candidate("third", 3)
}

/// Returns the vacant record that is written, if one is.
fn given_up(actions: &[Action]) -> Option<&Record> {
    actions.iter().find_map(|action| match action {
        Action::Swap { record, .. } if record.is_vacant() => Some(record),
        _ => None,
    })
}

fn ends(actions: &[Action]) -> Option<EndReason> {
    actions.iter().find_map(|action| match action {
        Action::Ending { why, .. } => Some(*why),
        _ => None,
    })
}

/// Answers every look with this seat, until the candidate bids. Returns when it bids.
fn bids_at(script: &mut Script, seat: &Option<Seat>) -> Moment {
    loop {
        assert_eq!(script.sleep_until(200.0), [Action::Read]);
        if bid(&script.step(read(seat.clone()))).is_some() {
            return script.now;
        }
    }
}

#[test]
fn an_unhealthy_leader_releases_the_seat_and_stands_again_after_a_lease_of_good_health() {
    let mut script = Script::leading(|_| {});
    assert_eq!(script.step(health(0.8)), []);
    let actions = script.step(health(0.79));
    assert!(actions.contains(&Action::Fit(false)) && ends(&actions) == Some(EndReason::Unhealthy), "{actions:?}");
    let actions = script.step(Input::Drained(Token::new(1)));
    assert!(given_up(&actions).is_some(), "{actions:?}");
    assert_eq!(script.step(done("v2")), []);
    assert_eq!(script.at(101.0).step(health(1.0)), []);
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    assert_eq!(script.step(read(vacant(1, None, false))), [], "it has not been healthy for long enough");
    // A bad report in between restarts the count.
    script.at(111.0).step(health(0.0));
    script.at(112.0).step(health(1.0));
    loop {
        let asked = script.sleep_until(127.0);
        if asked.contains(&Action::Fit(true)) {
            assert_eq!(script.now, at(127.0));
            break;
        }
        assert_eq!(asked, [Action::Read], "{:?}", script.now);
        assert_eq!(script.step(read(vacant(1, None, false))), []);
    }
    assert_eq!(bid(&script.step(read(vacant(1, None, false)))), Some(2));
}

#[test]
fn a_leader_can_be_configured_to_stay_while_unhealthy() {
    let mut script = Script::leading(|rules| rules.step_down_when_unhealthy = false);
    assert_eq!(script.step(health(0.0)), [Action::Fit(false)]);
    assert_eq!(script.term(), Some(1));
}

#[test]
fn with_a_minimum_health_of_zero_every_candidate_is_fit() {
    let mut script = Script::leading(|rules| rules.min_health = Score::ZERO);
    assert_eq!(script.step(health(0.0)), []);
}

#[test]
fn a_seat_won_by_a_candidate_that_became_unhealthy_meanwhile_is_released() {
    let mut script = Script::new();
    script.step(read(None));
    assert_eq!(script.step(health(0.0)), [Action::Fit(false)]);
    let actions = script.step(done("v1"));
    assert_eq!(script.term(), None);
    assert!(given_up(&actions).is_some() || script.sleep_until(102.0).iter().any(|a| matches!(a, Action::Swap { .. })));
}

#[test]
fn a_transfer_names_the_heir_in_the_released_seat() {
    let mut script = Script::leading(|_| {});
    assert_eq!(ends(&script.step(Input::Transfer(other()))), Some(EndReason::SteppedDown));
    // The first transfer counts.
    script.step(Input::Transfer(third()));
    let actions = script.step(Input::Drained(Token::new(1)));
    assert_eq!(given_up(&actions).unwrap().heir, Some(other()));
}

#[test]
fn a_transfer_to_itself_changes_nothing() {
    let mut script = Script::leading(|_| {});
    assert_eq!(script.step(Input::Transfer(me())), []);
    assert_eq!(script.term(), Some(1));
}

#[test]
fn an_heir_belongs_to_one_term() {
    let mut script = Script::leading(|_| {});
    script.step(Input::Transfer(other()));
    script.step(Input::Drained(Token::new(1)));
    script.step(done("v2"));
    // The heir has come and gone. A later seat is won, and released before it was led.
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    assert_eq!(bid(&script.step(read(Some(seat(None, 2, "v"))))), Some(3));
    script.step(health(0.0));
    let mut actions = script.step(done("v3"));
    if given_up(&actions).is_none() {
        actions = script.sleep_until(112.0);
    }
    assert_eq!(given_up(&actions).map(|record| (record.token, record.heir.clone())), Some((Token::new(3), None)));
}

#[test]
fn a_request_can_name_the_heir() {
    let mut script = Script::leading(|_| {});
    let request = Request::StepDown { token: Token::new(1), to: Some(other()) };
    script.step(Input::Requests(vec![request]));
    assert_eq!(given_up(&script.step(Input::Drained(Token::new(1)))).unwrap().heir, Some(other()));
}

#[test]
fn the_heir_takes_the_seat_at_once_and_others_wait_for_the_head_start() {
    let mut heir = Script::new();
    assert_eq!(bid(&heir.step(read(vacant(1, Some(me()), false)))), Some(2));

    let mut third = Script::new();
    assert_eq!(third.step(read(vacant(1, Some(other()), false))), []);
    // A second look does not restart the wait.
    third.at(103.0).step(Input::Changed(Change::Look));
    assert_eq!(third.step(read(vacant(1, Some(other()), false))), []);
    assert_eq!(third.sleep_until(105.99), []);
    assert_eq!(third.sleep_until(106.0), [Action::Read]);
    assert_eq!(bid(&third.step(read(vacant(1, Some(other()), false)))), Some(2));
}

#[test]
fn a_seat_that_is_released_after_it_lapsed_is_left_to_the_heir_from_then_on() {
    let mut third = Script::new();
    while third.step(read(led_by_other(0, true))) != [Action::ReadRoster] {
        assert_eq!(third.sleep_until(115.0), [Action::Read]);
    }
    assert_eq!(third.now, at(115.0));
    third.at(119.0).step(Input::Changed(Change::Look));
    let heir = || Some(candidate("heir", 4));
    assert_eq!(third.step(read(vacant(1, heir(), true))), []);
    assert_eq!(bids_at(&mut third, &vacant(1, heir(), true)), at(125.0));
}

#[test]
fn without_priorities_no_bidder_reads_the_roster() {
    let mut script = Script::new();
    assert_eq!(bid(&script.step(read(vacant(1, None, false)))), Some(2));
}

#[test]
fn the_highest_priority_goes_first() {
    for (priority, roster, first) in [
        (0, vec![standing(other(), 1, true)], false),
        (1, vec![standing(other(), 1, true)], true),
        (-1, vec![standing(other(), 0, true)], false),
        (0, vec![standing(other(), 1, false)], true),
        (0, vec![standing(me(), 1, true)], true),
        (0, vec![], true),
    ] {
        let mut script = Script::with(|rules| rules.priority = priority);
        assert_eq!(script.step(read(vacant(1, None, true))), [Action::ReadRoster]);
        assert_eq!(script.step(Input::Roster(roster.clone())), [Action::Read]);
        let actions = script.step(read(vacant(1, None, true)));
        assert_eq!(bid(&actions), first.then_some(2), "{priority} {roster:?}");
        if !first {
            assert_eq!(bids_at(&mut script, &vacant(1, None, true)), at(106.0));
        }
    }
}

#[test]
fn a_roster_that_is_never_answered_costs_no_more_than_the_head_start() {
    let mut script = Script::with(|rules| rules.priority = 1);
    assert_eq!(script.step(read(vacant(1, None, true))), [Action::ReadRoster]);
    assert_eq!(bids_at(&mut script, &vacant(1, None, true)), at(106.0));
}

#[test]
fn the_last_leader_does_not_go_first() {
    let mut script = Script::new();
    script.step(read(led_by_other(5, true)));
    script.at(101.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(vacant(1, None, true))), [Action::ReadRoster]);
    script.step(Input::Roster(vec![standing(other(), 5, true)]));
    assert_eq!(bid(&script.step(read(vacant(1, None, true)))), Some(2));
}

#[test]
fn a_leader_marks_its_record_as_ranked_once() {
    let mut follower = Script::with(|rules| rules.priority = 1);
    let asked = follower.step(read(led_by_other(0, false)));
    assert_eq!(asked, [Action::Ask(Request::Rank { token: Token::new(1) })]);
    follower.at(105.0).step(Input::Changed(Change::Look));
    assert_eq!(follower.step(read(led_by_other(0, false))), []);

    let mut leader = Script::leading(|_| {});
    let actions = leader.step(Input::Requests(vec![Request::Rank { token: Token::new(1) }]));
    let [Action::Swap { expected, record }] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(expected, &Some(Version::new("v1")));
    assert!(record.ranked && record.is_held_by(me().incarnation));
    leader.step(done("v2"));
    assert_eq!(leader.term(), Some(1));
    assert_eq!(leader.step(Input::Requests(vec![Request::Rank { token: Token::new(1) }])), []);
    leader.step(Input::StepDown);
    assert!(given_up(&leader.step(Input::Drained(Token::new(1)))).unwrap().ranked);
}

#[test]
fn a_settled_candidate_of_higher_priority_asks_the_leader_to_hand_over() {
    let preempt = |asked: &[Action]| asked.iter().any(|a| matches!(a, Action::Ask(Request::Preempt { .. })));
    let mut script = Script::with(|rules| (rules.priority, rules.preempt) = (1, true));
    let mut version = 0;
    let mut look = |script: &mut Script, second: f64| {
        version += 1;
        let mut seat = led_by_other(0, true).unwrap();
        seat.version = Version::new(version.to_string());
        script.at(second).step(Input::Changed(Change::Look));
        script.step(read(Some(seat)))
    };
    script.step(read(led_by_other(0, true)));
    assert!(!preempt(&look(&mut script, 129.0)), "it has stood for less than two leases");
    assert!(preempt(&look(&mut script, 131.0)));
    assert!(!preempt(&look(&mut script, 140.0)), "it has just sent a request");
    assert!(preempt(&look(&mut script, 147.0)));
    script.at(150.0).step(health(0.0));
    assert!(!preempt(&look(&mut script, 190.0)), "it is unhealthy");
}

#[test]
fn a_leader_hands_over_to_a_higher_priority_only() {
    for (priority, yields) in [(5, false), (4, false), (6, true)] {
        let mut leader = Script::leading(|rules| rules.priority = 5);
        let request = Request::Preempt { token: Token::new(1), by: other(), priority };
        assert_eq!(ends(&leader.step(Input::Requests(vec![request]))).is_some(), yields);
        if yields {
            assert_eq!(given_up(&leader.step(Input::Drained(Token::new(1)))).unwrap().heir, Some(other()));
        }
    }
}
