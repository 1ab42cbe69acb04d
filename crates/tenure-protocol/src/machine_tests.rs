//! The rules of the machine, one example per test.

use std::time::Duration;

use super::Machine;
use crate::*;

#[path = "claims_tests.rs"]
mod claims;
#[path = "hold_tests.rs"]
mod hold;
#[path = "observation_tests.rs"]
mod observation;
#[path = "precedence_tests.rs"]
mod precedence;
#[path = "pushed_tests.rs"]
mod pushed;
#[path = "retry_tests.rs"]
mod retry;

const LEASE: Duration = Duration::from_secs(15);

/// A machine, a clock that is moved by hand, and the wake that the machine asked for.
struct Script {
    machine: Machine,
    now: Moment,
    wake: Option<Moment>,
}

impl Script {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Rules::new(Durations::of(LEASE).check().unwrap());
        change(&mut rules);
        let mut script = Self { machine: Machine::new(me(), rules, 7), now: at(100.0), wake: None };
        assert_eq!(script.step(Input::Start), [Action::Read]);
        script
    }

    /// A leader whose term 1 was won at 100 s.
    fn leading(change: impl FnOnce(&mut Rules)) -> Self {
        let mut script = Self::with(change);
        if script.step(read(None)) == [Action::ReadRoster] {
            script.step(Input::Roster(Vec::new()));
            script.step(read(None));
        }
        script.step(done("v1"));
        assert_eq!(script.term(), Some(1));
        script
    }

    /// Takes a step. Reports of the leader, watches, wakes and reads of the board are left out of the result.
    fn step(&mut self, input: Input) -> Vec<Action> {
        let mut out = Vec::new();
        self.machine.step(self.now, input, &mut out);
        for action in &out {
            if let Action::WakeAt(moment) = action {
                self.wake = Some(*moment);
            }
        }
        out.retain(|a| {
            let left_out =
                matches!(a, Action::WakeAt(_) | Action::Watch { .. } | Action::Leader(_) | Action::ReadBoard);
            !left_out && *a != Action::BidLost
        });
        out
    }

    /// Moves the clock to this second.
    fn at(&mut self, second: f64) -> &mut Self {
        self.now = at(second);
        self
    }

    /// Wakes the machine at the moments it asked for, up to this second or until it returns actions.
    fn sleep_until(&mut self, second: f64) -> Vec<Action> {
        while let Some(wake) = self.wake.take().filter(|wake| *wake <= at(second)) {
            self.now = self.now.max(wake);
            let asked = self.step(Input::Wake);
            if !asked.is_empty() {
                return asked;
            }
        }
        self.now = at(second);
        self.step(Input::Wake)
    }

    fn term(&self) -> Option<u64> {
        self.machine.term(self.now).map(Token::get)
    }
}

fn at(second: f64) -> Moment {
    Moment::from_nanos((second * 1e9) as u64)
}

fn candidate(id: &str, bits: u128) -> Candidate {
    Candidate { id: id.into(), incarnation: Incarnation::from_bits(bits) }
}

fn me() -> Candidate {
    candidate("me", 1)
}

fn other() -> Candidate {
    candidate("other", 2)
}

fn seat(holder: Option<Candidate>, token: u64, version: &str) -> Seat {
    let record = Record::new(holder, Token::new(token), LEASE);
    Seat { record, version: Version::new(version), life: Life::Observe }
}

fn read(seat: Option<Seat>) -> Input {
    Input::Read(Ok(Reading::of(seat)))
}

fn done(version: &str) -> Input {
    Input::Written(Ok(Swap::Done { version: Version::new(version), since: None, granted: None }))
}

const UNKNOWN: Input = Input::Written(Err(Fault::Unknown));
const LOST: Input = Input::Written(Ok(Swap::Lost));

/// Returns the token of the bid, if `actions` is one bid and nothing else.
fn bid(actions: &[Action]) -> Option<u64> {
    match actions {
        [Action::Swap { record, .. }] if !record.is_vacant() => Some(record.token.get()),
        _ => None,
    }
}

fn renews(actions: &[Action]) -> bool {
    matches!(actions, [Action::Renew { .. }])
}

fn releases(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Swap { record, .. } if record.is_vacant()))
}

fn ended(actions: &[Action], why: EndReason) -> bool {
    actions.iter().any(|action| matches!(action, Action::Ended { why: reason, .. } if *reason == why))
}

#[test]
fn a_released_seat_is_bid_for_at_once_above_its_token() {
    let mut script = Script::new();
    assert_eq!(bid(&script.step(read(Some(seat(None, 41, "v9"))))), Some(42));
}

#[test]
fn a_bid_is_above_the_floor_of_the_store() {
    let mut script = Script::new();
    let reading = Reading { floor: Token::new(1000), ..Reading::of(Some(seat(None, 41, "v9"))) };
    assert_eq!(bid(&script.step(Input::Read(Ok(reading)))), Some(1001));
}

#[test]
fn a_seat_is_taken_after_it_was_unchanged_for_the_lease_in_its_own_record() {
    let mut script = Script::new();
    let mut taken = seat(Some(other()), 5, "v5");
    taken.record.lease = LEASE * 2;
    assert_eq!(script.step(read(Some(taken.clone()))), []);
    while script.sleep_until(200.0) == [Action::Read] {
        let asked = script.step(read(Some(taken.clone())));
        if bid(&asked).is_some() {
            assert_eq!((bid(&asked), script.now), (Some(6), at(130.0)));
            return;
        }
    }
    panic!("it was never taken");
}

#[test]
fn a_lease_counts_from_the_moment_at_which_the_renewal_was_received() {
    let mut script = Script::new();
    let received =
        |second, version| Seat { life: Life::Received { at: at(second) }, ..seat(Some(other()), 5, version) };
    assert_eq!(script.step(read(Some(received(99.0, "v5")))), []);
    // Renewed and received long before the next look.
    script.at(110.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(received(102.0, "v6")))), []);
    while script.sleep_until(200.0) == [Action::Read] {
        let asked = script.step(read(Some(received(102.0, "v6"))));
        if bid(&asked).is_some() {
            assert_eq!((bid(&asked), script.now), (Some(6), at(117.0)));
            return;
        }
    }
    panic!("it was never taken");
}

#[test]
fn a_renewal_restarts_the_count_of_a_lease() {
    let mut script = Script::new();
    script.step(read(Some(seat(Some(other()), 5, "v5"))));
    script.at(110.0).step(Input::Changed(Change::Look));
    script.step(read(Some(seat(Some(other()), 5, "v6"))));
    script.at(116.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(seat(Some(other()), 5, "v6")))), []);
}

#[test]
fn a_spurious_notification_delays_the_next_watch_only_after_several_in_a_row() {
    let mut script = Script::new();
    let mut looks = |second| {
        let mut out = Vec::new();
        for input in [Input::Changed(Change::Look), read(Some(seat(Some(other()), 7, "a")))] {
            script.machine.step(at(second), input, &mut out);
        }
        out.iter().any(|action| matches!(action, Action::Watch { .. }))
    };
    assert!(looks(100.0), "the first look");
    for second in [101.0, 101.1, 101.2, 101.3] {
        assert!(looks(second), "a few spurious notifications");
    }
    assert!(!looks(101.4), "another one soon after");
    assert!(looks(108.0), "one after a quiet time");
}

#[test]
fn a_seat_whose_session_is_alive_is_never_taken() {
    let mut script = Script::new();
    let held = Seat { life: Life::Held, ..seat(Some(other()), 5, "v5") };
    script.step(read(Some(held.clone())));
    script.at(1000.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(held))), []);
}

#[test]
fn a_seat_whose_session_has_ended_is_taken_at_once_or_after_a_lease_as_configured() {
    let over = Seat { life: Life::Over, ..seat(Some(other()), 5, "v5") };
    let mut instant = Script::with(|rules| rules.takeover = Takeover::Instant);
    assert_eq!(bid(&instant.step(read(Some(over.clone())))), Some(6));

    let mut safe = Script::with(|rules| rules.takeover = Takeover::Safe);
    assert_eq!(safe.step(read(Some(over.clone()))), []);
    safe.at(115.0).step(Input::Changed(Change::Look));
    assert_eq!(bid(&safe.step(read(Some(over)))), Some(6));
}

/// The seat of another candidate, from a store that reports its own clock, in milliseconds.
fn clocked(now: i64, renewed: i64, version: &str) -> Seat {
    let life = Life::Clock { now: StoreTime::from_millis(now), renewed: StoreTime::from_millis(renewed) };
    Seat { life, ..seat(Some(other()), 5, version) }
}

#[test]
fn the_stores_clock_counts_only_where_our_own_clock_vouches_for_it() {
    let mut script = Script::new();
    // The first reading vouches for nothing, whatever the store says.
    assert_eq!(script.step(read(Some(clocked(90_000, 0, "v5")))), []);
    // Renewed a second later, and seen at 110 s. From 116.1 s on, our clock agrees that a lease has passed.
    script.at(110.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(clocked(100_000, 91_000, "v6")))), []);
    script.at(115.5).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(clocked(199_000, 91_000, "v6")))), []);
    script.at(116.1).step(Input::Changed(Change::Look));
    assert_eq!(bid(&script.step(read(Some(clocked(106_100, 91_000, "v6"))))), Some(6));
}

#[test]
fn a_renewal_that_was_in_flight_during_a_look_is_vouched_for_by_the_look_before() {
    let mut script = Script::new();
    assert_eq!(script.step(read(Some(clocked(90_000, 89_000, "v5")))), []);
    script.at(107.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(clocked(97_000, 92_000, "v6")))), []);
    // It bears a time from before that look, and was seen only after it.
    script.at(114.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(clocked(104_000, 96_990, "v7")))), []);
    // 6.99 s and a lease after the first look, which is before a lease after the receipt.
    script.at(122.3).step(Input::Changed(Change::Look));
    assert_eq!(bid(&script.step(read(Some(clocked(112_300, 96_990, "v7"))))), Some(6));
}

#[test]
fn a_bid_of_unknown_outcome_is_read_back_and_its_term_begins_with_a_renewal() {
    let mut script = Script::new();
    script.step(read(None));
    assert_eq!(script.at(101.0).step(UNKNOWN), [Action::Failing(Fault::Unknown), Action::Read]);
    let asked = script.at(101.1).step(read(Some(seat(Some(me()), 1, "v1"))));
    assert!(renews(&asked));
    let began = script.at(101.2).step(done("v2"));
    let hold = Durations::of(LEASE).check().unwrap().hold();
    assert_eq!(began, [Action::Recovered, Action::Began { token: Token::new(1), until: at(101.1) + hold }]);
}

#[test]
fn a_seat_of_our_own_that_cannot_be_renewed_is_bid_above() {
    let mut script = Script::new();
    script.step(read(None));
    script.step(UNKNOWN);
    // The bid landed, but a renewal of the seat is refused although it names this candidate: its session lives
    // without the lock, for example. Renewing it again and again would leave the election without a leader.
    assert!(renews(&script.step(read(Some(seat(Some(me()), 1, "v1"))))));
    assert_eq!(script.step(LOST), [Action::Recovered, Action::Read]);
    let mut asked = script.step(read(Some(seat(Some(me()), 1, "v1"))));
    if asked.is_empty() {
        // A pause, as two writes in a row did not succeed.
        asked = script.sleep_until(110.0);
        if asked == [Action::Read] {
            asked = script.step(read(Some(seat(Some(me()), 1, "v1"))));
        }
    }
    assert_eq!(bid(&asked), Some(2));
}

#[test]
fn a_bid_of_unknown_outcome_that_did_not_land_is_repeated_with_another_token() {
    let mut script = Script::new();
    script.step(read(None));
    script.step(UNKNOWN);
    assert_eq!(bid(&script.step(read(None))), Some(2));
}

#[test]
fn a_lost_bid_is_followed_by_a_look() {
    let mut script = Script::new();
    script.step(read(None));
    assert_eq!(script.step(LOST), [Action::Read]);
    assert_eq!(script.step(read(Some(seat(Some(other()), 1, "v1")))), []);
}

#[test]
fn a_seat_that_vanished_or_went_backwards_is_waited_out() {
    for after in [None, Some(seat(None, 4, "v4")), Some(seat(Some(candidate("third", 3)), 5, "v7"))] {
        let mut script = Script::with(|rules| rules.takeover = Takeover::Instant);
        script.step(read(Some(seat(Some(other()), 5, "v5"))));
        // Even if the session of the holder that it names now has ended.
        let after = after.map(|after| Seat { life: Life::Over, ..after });
        script.at(101.0).step(Input::Changed(Change::Look));
        assert_eq!(script.step(read(after.clone())), []);
        script.at(115.9).step(Input::Changed(Change::Look));
        assert_eq!(script.step(read(after.clone())), []);
        script.at(116.0).step(Input::Changed(Change::Look));
        assert_eq!(bid(&script.step(read(after))), Some(6));
    }
}

#[test]
fn a_released_seat_is_not_waited_out_because_the_stores_clock_was_set_back() {
    let clocked = |holder: Option<Candidate>, second: i64, version: &str| {
        let now = StoreTime::from_millis(second * 1000);
        Some(Seat { life: Life::Clock { now, renewed: now }, ..seat(holder, 5, version) })
    };
    let mut script = Script::new();
    script.step(read(clocked(Some(other()), 90, "v5")));
    script.at(101.0).step(Input::Changed(Change::Look));
    assert_eq!(bid(&script.step(read(clocked(None, 80, "v6")))), Some(6));
}

#[test]
fn a_late_bid_of_its_own_does_not_end_the_hold_back_after_stepping_down() {
    let mut script = Script::leading(|_| {});
    script.step(Input::StepDown);
    script.step(Input::Drained(Token::new(1)));
    script.step(done("v2"));
    // The seat is lost, and an old bid lands in its place. The candidate releases it and does not lead.
    script.at(101.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(seat(Some(me()), 2, "v3")))), []);
    let actions = script.at(116.0).step(Input::Wake);
    assert!(releases(&actions), "{actions:?}");
}

#[test]
fn a_store_with_another_identity_is_waited_out() {
    let life = |name: &str| {
        let reading = Reading::of(Some(seat(None, 5, "v5")));
        Input::Read(Ok(Reading { identity: Some(DataIdentity::new(name)), ..reading }))
    };
    let mut script = Script::with(|rules| rules.stands = false);
    script.step(life("one"));
    script.at(101.0).step(Input::Bid);
    assert_eq!(script.step(life("two")), [Action::BidSettled(Bid::Taken)]);
    script.at(116.0).step(Input::Bid);
    assert_eq!(bid(&script.step(life("two"))), Some(6));
}

#[test]
fn a_bid_that_lands_after_another_holder_was_seen_in_its_place_is_waited_out_and_not_led() {
    let mut script = Script::new();
    script.step(read(None));
    script.step(UNKNOWN);
    script.step(read(Some(seat(Some(other()), 1, "v1"))));
    // The other candidate's seat was lost, and our old bid has landed in its place.
    script.at(101.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(seat(Some(me()), 2, "v2")))), []);
    script.at(116.0);
    assert_eq!(bid(&script.step(Input::Wake)), Some(3));
}

#[test]
fn a_bid_that_landed_in_a_seat_gone_backwards_is_not_released_at_once() {
    let mut script = Script::with(|rules| rules.stands = false);
    script.step(read(Some(seat(None, 1, "v1"))));
    script.step(Input::Bid);
    script.step(Input::Wake);
    script.step(read(Some(seat(None, 1, "v1"))));
    script.step(UNKNOWN);
    script.step(read(Some(seat(Some(other()), 2, "v2"))));
    script.at(101.0).step(Input::Changed(Change::Look));
    // To a third candidate, a release would look like the end of the other's term.
    assert_eq!(script.step(read(Some(seat(Some(me()), 2, "v3")))), []);
    script.at(116.0);
    assert!(releases(&script.step(Input::Wake)));
}

#[test]
fn the_seat_is_released_only_after_the_work_has_returned() {
    let mut script = Script::leading(|_| {});
    let actions = script.at(101.0).step(Input::Release);
    assert!(matches!(actions[..], [Action::Ending { why: EndReason::Released, .. }]));
    let actions = script.at(101.5).step(Input::Drained(Token::new(1)));
    assert!(ended(&actions, EndReason::Released) && releases(&actions));
}

#[test]
fn a_candidate_whose_work_overruns_neither_stands_nor_releases() {
    let mut script = Script::leading(|_| {});
    script.step(Input::StepDown);
    assert!(ended(&script.sleep_until(103.0), EndReason::SteppedDown));
    assert_eq!(script.sleep_until(103.0), [Action::Overran { token: Token::new(1) }]);
    while script.sleep_until(200.0) == [Action::Read] {
        assert_eq!(script.step(read(Some(seat(None, 1, "v3")))), []);
    }
    assert_eq!(script.step(Input::Drained(Token::new(1))), [Action::Read]);
    assert_eq!(bid(&script.step(read(Some(seat(None, 1, "v3"))))), Some(2));
}

#[test]
fn a_candidate_that_stepped_down_holds_back_until_another_has_led() {
    let mut script = Script::leading(|_| {});
    script.step(Input::StepDown);
    assert!(releases(&script.step(Input::Drained(Token::new(1)))));
    script.step(done("v2"));
    script.at(105.0).step(Input::Changed(Change::Look));
    assert_eq!(script.step(read(Some(seat(None, 1, "v2")))), []);
    script.at(106.0).step(Input::Changed(Change::Look));
    script.step(read(Some(seat(Some(other()), 2, "v3"))));
    script.at(107.0).step(Input::Changed(Change::Look));
    assert_eq!(bid(&script.step(read(Some(seat(None, 2, "v4"))))), Some(3));
}

#[test]
fn a_candidate_that_yields_lets_others_go_first_and_then_stands_again() {
    let mut script = Script::leading(|_| {});
    assert!(matches!(script.step(Input::Yield)[..], [Action::Ending { why: EndReason::Yielded, .. }]));
    let told = script.step(Input::Drained(Token::new(1)));
    assert!(ended(&told, EndReason::Yielded) && releases(&told));
    script.step(done("v2"));
    // Alone: it stands again two fifths of a lease later, not two leases.
    let lease = script.machine.rules().timing.lease();
    let began = script.now;
    let mut bid_at = None;
    while bid_at.is_none() && script.now < began + lease {
        let told = script.sleep_until(1000.0);
        assert_eq!(told, [Action::Read]);
        bid_at = bid(&script.step(read(Some(seat(None, 1, "v2"))))).map(|_| script.now);
    }
    assert_eq!(bid_at, Some(began + lease * 2 / 5));
}

#[test]
fn a_lost_bid_is_told() {
    let mut script = Script::new();
    assert_eq!(bid(&script.step(read(None))), Some(1));
    let mut out = Vec::new();
    script.machine.step(script.now, LOST, &mut out);
    assert!(out.contains(&Action::BidLost), "{out:?}");
}

#[test]
fn a_request_on_the_board_counts_for_its_own_term_only() {
    let mut script = Script::leading(|_| {});
    let request = |token| Input::Requests(vec![Request::StepDown { token: Token::new(token), to: None }]);
    assert_eq!(script.step(request(7)), []);
    assert!(matches!(script.step(request(1))[..], [Action::Ending { why: EndReason::SteppedDown, .. }]));
}

#[test]
fn a_stop_reports_the_end_releases_the_seat_and_stops() {
    let mut script = Script::leading(|_| {});
    assert!(matches!(script.step(Input::Stop)[..], [Action::Ending { why: EndReason::Stopped, .. }]));
    let actions = script.step(Input::Drained(Token::new(1)));
    assert!(ended(&actions, EndReason::Stopped) && releases(&actions));
    assert_eq!(script.step(done("v2")), [Action::Stopped(Stopped::Asked)]);
}

#[test]
fn a_refused_release_is_retried() {
    let mut script = Script::leading(|_| {});
    // The identity changes first, because waiting out a loss must not delay the release.
    script.step(Input::Changed(Change::Look));
    let ours = Reading::of(Some(seat(Some(me()), 1, "v1")));
    script.step(Input::Read(Ok(Reading { identity: Some(DataIdentity::new("another")), ..ours })));
    script.step(Input::StepDown);
    assert!(releases(&script.step(Input::Drained(Token::new(1)))));
    script.step(Input::Written(Err(Fault::Refused)));
    assert!(releases(&script.sleep_until(101.1)));
}

#[test]
fn a_candidate_gives_up_after_the_store_has_failed_for_give_up_after() {
    let mut script = Script::with(|rules| rules.timing = gives_up_after(15));
    script.step(Input::Read(Err(Fault::Denied)));
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    // One call that succeeds restarts the count.
    script.step(read(Some(seat(Some(other()), 1, "v1"))));
    let mut began = None;
    for _ in 0..100 {
        if script.sleep_until(script.now.as_nanos() as f64 / 1e9 + 10.0) != [Action::Read] {
            continue;
        }
        let actions = script.step(Input::Read(Err(Fault::Denied)));
        let since = *began.get_or_insert(script.now);
        if let Some(Action::Stopped(Stopped::GaveUp { after })) = actions.last() {
            assert_eq!(*after, script.now.since(since));
            assert!(*after >= LEASE && *after < LEASE * 2, "{after:?}");
            return;
        }
    }
    panic!("it never gave up");
}

/// The default durations, with `give_up_after` set to `seconds`.
fn gives_up_after(seconds: u64) -> Timing {
    Durations { give_up_after: Some(Duration::from_secs(seconds)), ..Durations::of(LEASE) }.check().unwrap()
}

/// If a renewal does not change the version, a release that is still in flight matches it, and would vacate the
/// seat under its leader.
#[test]
fn a_seat_that_a_late_release_may_still_vacate_is_bid_above_and_not_renewed() {
    let mut script = Script::with(|rules| (rules.stands, rules.held_by_session) = (false, true));
    let ours = || read(Some(Seat { life: Life::Held, ..seat(Some(me()), 1, "v1") }));
    script.step(read(None));
    script.step(Input::Bid);
    assert_eq!(bid(&script.step(read(None))), Some(1));
    script.step(Input::Written(Err(Fault::Unknown)));
    script.step(Input::Read(Err(Fault::Unknown)));
    // The bid had landed, and the candidate no longer wants the seat.
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    assert!(releases(&script.step(ours())));
    script.step(Input::Bid);
    script.step(Input::Written(Err(Fault::Unknown)));
    let mut asked = script.step(ours());
    while asked.is_empty() {
        asked = script.sleep_until(130.0);
    }
    assert_eq!(bid(&asked), Some(2), "{asked:?}");
}

#[test]
fn a_manual_candidate_bids_only_on_request() {
    let mut script = Script::with(|rules| rules.stands = false);
    assert_eq!(script.step(read(None)), []);
    assert_eq!(script.step(Input::Bid), [Action::Read]);
    assert_eq!(bid(&script.step(read(None))), Some(1));
    let actions = script.step(done("v1"));
    assert!(matches!(actions[..], [Action::Began { .. }, Action::BidSettled(Bid::Won(_))]));
}
