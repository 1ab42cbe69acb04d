//! Health, heirs and priorities, by example.

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

fn standing(who: Candidate, priority: i32, fit: bool) -> Standing {
    Standing { candidate: who, priority, fit }
}

fn third() -> Candidate {
    candidate("third", 3)
}

/// The record that is given up.
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

/// Has it look at this seat whenever it likes to, until it bids.
fn bids_at(script: &mut Script, seat: &Option<Seat>) -> Moment {
    loop {
        assert_eq!(script.sleep_until(200.0), [Action::Read]);
        if bid(&script.tell(read(seat.clone()))).is_some() {
            return script.now;
        }
    }
}

#[test]
fn a_leader_that_is_unwell_gives_up_the_seat_and_stands_again_once_it_was_well_for_a_lease() {
    let mut script = Script::leading(|_| {});
    assert_eq!(script.tell(health(0.8)), []);
    let told = script.tell(health(0.79));
    assert!(told.contains(&Action::Fit(false)) && ends(&told) == Some(EndReason::Unhealthy), "{told:?}");
    let told = script.tell(Input::Drained(Token::new(1)));
    assert!(given_up(&told).is_some(), "{told:?}");
    assert_eq!(script.tell(done("v2")), []);
    assert_eq!(script.at(101.0).tell(health(1.0)), []);
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    assert_eq!(script.tell(read(vacant(1, None, false))), [], "it has not been well for long enough");
    // Unwell in between: it counts from the start.
    script.at(111.0).tell(health(0.0));
    script.at(112.0).tell(health(1.0));
    loop {
        let asked = script.sleep_until(127.0);
        if asked.contains(&Action::Fit(true)) {
            assert_eq!(script.now, at(127.0));
            break;
        }
        assert_eq!(asked, [Action::Read], "{:?}", script.now);
        assert_eq!(script.tell(read(vacant(1, None, false))), []);
    }
    assert_eq!(bid(&script.tell(read(vacant(1, None, false)))), Some(2));
}

#[test]
fn a_leader_may_be_told_to_stay_though_it_is_unwell() {
    let mut script = Script::leading(|rules| rules.step_down_when_unhealthy = false);
    assert_eq!(script.tell(health(0.0)), [Action::Fit(false)]);
    assert_eq!(script.term(), Some(1));
}

#[test]
fn without_a_least_health_everybody_is_fit() {
    let mut script = Script::leading(|rules| rules.min_health = Score::ZERO);
    assert_eq!(script.tell(health(0.0)), []);
}

#[test]
fn a_seat_won_by_somebody_who_fell_ill_meanwhile_is_given_up() {
    let mut script = Script::new();
    script.tell(read(None));
    assert_eq!(script.tell(health(0.0)), [Action::Fit(false)]);
    let told = script.tell(done("v1"));
    assert_eq!(script.term(), None);
    assert!(given_up(&told).is_some() || script.sleep_until(102.0).iter().any(|a| matches!(a, Action::Swap { .. })));
}

#[test]
fn a_transfer_names_the_heir() {
    let mut script = Script::leading(|_| {});
    assert_eq!(ends(&script.tell(Input::Transfer(other()))), Some(EndReason::SteppedDown));
    // The first one counts.
    script.tell(Input::Transfer(third()));
    let told = script.tell(Input::Drained(Token::new(1)));
    assert_eq!(given_up(&told).unwrap().heir, Some(other()));
}

#[test]
fn a_transfer_to_oneself_changes_nothing() {
    let mut script = Script::leading(|_| {});
    assert_eq!(script.tell(Input::Transfer(me())), []);
    assert_eq!(script.term(), Some(1));
}

#[test]
fn an_heir_is_that_of_one_term() {
    let mut script = Script::leading(|_| {});
    script.tell(Input::Transfer(other()));
    script.tell(Input::Drained(Token::new(1)));
    script.tell(done("v2"));
    // The heir has come and gone. A later seat is won, and given up before it was led.
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    assert_eq!(bid(&script.tell(read(Some(seat(None, 2, "v"))))), Some(3));
    script.tell(health(0.0));
    let mut told = script.tell(done("v3"));
    if given_up(&told).is_none() {
        told = script.sleep_until(112.0);
    }
    assert_eq!(given_up(&told).map(|record| (record.token, record.heir.clone())), Some((Token::new(3), None)));
}

#[test]
fn a_request_may_name_the_heir() {
    let mut script = Script::leading(|_| {});
    let request = Request::StepDown { token: Token::new(1), to: Some(other()) };
    script.tell(Input::Requests(vec![request]));
    assert_eq!(given_up(&script.tell(Input::Drained(Token::new(1)))).unwrap().heir, Some(other()));
}

#[test]
fn the_heir_takes_the_seat_at_once_and_others_leave_it_to_it_for_a_while() {
    let mut heir = Script::new();
    assert_eq!(bid(&heir.tell(read(vacant(1, Some(me()), false)))), Some(2));

    let mut third = Script::new();
    assert_eq!(third.tell(read(vacant(1, Some(other()), false))), []);
    // A second look does not begin it anew.
    third.at(103.0).tell(Input::Changed(Change::Look));
    assert_eq!(third.tell(read(vacant(1, Some(other()), false))), []);
    assert_eq!(third.sleep_until(105.99), []);
    assert_eq!(third.sleep_until(106.0), [Action::Read]);
    assert_eq!(bid(&third.tell(read(vacant(1, Some(other()), false)))), Some(2));
}

#[test]
fn a_seat_that_is_given_up_after_it_has_lapsed_is_left_to_the_heir_from_then_on() {
    let mut third = Script::new();
    while third.tell(read(led_by_other(0, true))) != [Action::ReadRoster] {
        assert_eq!(third.sleep_until(115.0), [Action::Read]);
    }
    assert_eq!(third.now, at(115.0));
    third.at(119.0).tell(Input::Changed(Change::Look));
    let heir = || Some(candidate("heir", 4));
    assert_eq!(third.tell(read(vacant(1, heir(), true))), []);
    assert_eq!(bids_at(&mut third, &vacant(1, heir(), true)), at(125.0));
}

#[test]
fn nobody_asks_who_stands_where_there_are_no_priorities() {
    let mut script = Script::new();
    assert_eq!(bid(&script.tell(read(vacant(1, None, false)))), Some(2));
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
        assert_eq!(script.tell(read(vacant(1, None, true))), [Action::ReadRoster]);
        assert_eq!(script.tell(Input::Roster(roster.clone())), [Action::Read]);
        let told = script.tell(read(vacant(1, None, true)));
        assert_eq!(bid(&told), first.then_some(2), "{priority} {roster:?}");
        if !first {
            assert_eq!(bids_at(&mut script, &vacant(1, None, true)), at(106.0));
        }
    }
}

#[test]
fn a_roster_that_never_comes_costs_no_more_than_the_head_start() {
    let mut script = Script::with(|rules| rules.priority = 1);
    assert_eq!(script.tell(read(vacant(1, None, true))), [Action::ReadRoster]);
    assert_eq!(bids_at(&mut script, &vacant(1, None, true)), at(106.0));
}

#[test]
fn whoever_led_last_does_not_go_first() {
    let mut script = Script::new();
    script.tell(read(led_by_other(5, true)));
    script.at(101.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(vacant(1, None, true))), [Action::ReadRoster]);
    script.tell(Input::Roster(vec![standing(other(), 5, true)]));
    assert_eq!(bid(&script.tell(read(vacant(1, None, true)))), Some(2));
}

#[test]
fn a_leader_is_told_once_that_there_are_priorities_and_writes_it_down() {
    let mut follower = Script::with(|rules| rules.priority = 1);
    let asked = follower.tell(read(led_by_other(0, false)));
    assert_eq!(asked, [Action::Ask(Request::Rank { token: Token::new(1) })]);
    follower.at(105.0).tell(Input::Changed(Change::Look));
    assert_eq!(follower.tell(read(led_by_other(0, false))), []);

    let mut leader = Script::leading(|_| {});
    let told = leader.tell(Input::Requests(vec![Request::Rank { token: Token::new(1) }]));
    let [Action::Swap { expected, record }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(expected, &Some(Version::new("v1")));
    assert!(record.ranked && record.is_held_by(me().incarnation));
    leader.tell(done("v2"));
    assert_eq!(leader.term(), Some(1));
    assert_eq!(leader.tell(Input::Requests(vec![Request::Rank { token: Token::new(1) }])), []);
    leader.tell(Input::StepDown);
    assert!(given_up(&leader.tell(Input::Drained(Token::new(1)))).unwrap().ranked);
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
        script.at(second).tell(Input::Changed(Change::Look));
        script.tell(read(Some(seat)))
    };
    script.tell(read(led_by_other(0, true)));
    assert!(!preempt(&look(&mut script, 129.0)), "it is there for less than two leases");
    assert!(preempt(&look(&mut script, 131.0)));
    assert!(!preempt(&look(&mut script, 140.0)), "it has just asked");
    assert!(preempt(&look(&mut script, 147.0)));
    script.at(150.0).tell(health(0.0));
    assert!(!preempt(&look(&mut script, 190.0)), "it is not well");
}

#[test]
fn a_leader_hands_over_to_a_higher_priority_only() {
    for (priority, yields) in [(5, false), (4, false), (6, true)] {
        let mut leader = Script::leading(|rules| rules.priority = 5);
        let request = Request::Preempt { token: Token::new(1), by: other(), priority };
        assert_eq!(ends(&leader.tell(Input::Requests(vec![request]))).is_some(), yields);
        if yields {
            assert_eq!(given_up(&leader.tell(Input::Drained(Token::new(1)))).unwrap().heir, Some(other()));
        }
    }
}
