//! The rules of the machine, by example: each test tells one.

use std::time::Duration;

use super::Machine;
use crate::*;

#[path = "hold_tests.rs"]
mod hold;
#[path = "observation_tests.rs"]
mod observation;
#[path = "precedence_tests.rs"]
mod precedence;
#[path = "retry_tests.rs"]
mod retry;

const LEASE: Duration = Duration::from_secs(15);

/// A machine, a clock moved by hand, and what the machine asks for.
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
        assert_eq!(script.tell(Input::Start), [Action::Read]);
        script
    }

    /// Leads term 1, won at 100 s.
    fn leading(change: impl FnOnce(&mut Rules)) -> Self {
        let mut script = Self::with(change);
        if script.tell(read(None)) == [Action::ReadRoster] {
            script.tell(Input::Roster(Vec::new()));
            script.tell(read(None));
        }
        script.tell(done("v1"));
        assert_eq!(script.term(), Some(1));
        script
    }

    /// Takes a step; who leads, what is watched and when to wake are left out of the answer.
    fn tell(&mut self, input: Input) -> Vec<Action> {
        let mut out = Vec::new();
        self.machine.step(self.now, input, &mut out);
        for action in &out {
            if let Action::WakeAt(moment) = action {
                self.wake = Some(*moment);
            }
        }
        out.retain(|a| !matches!(a, Action::WakeAt(_) | Action::Watch { .. } | Action::Leader(_) | Action::ReadBoard));
        out
    }

    /// Moves the clock to this second.
    fn at(&mut self, second: f64) -> &mut Self {
        self.now = at(second);
        self
    }

    /// Wakes the machine whenever it wants to be until this second, or until it asks for something.
    fn sleep_until(&mut self, second: f64) -> Vec<Action> {
        while let Some(wake) = self.wake.take().filter(|wake| *wake <= at(second)) {
            self.now = self.now.max(wake);
            let asked = self.tell(Input::Wake);
            if !asked.is_empty() {
                return asked;
            }
        }
        self.now = at(second);
        self.tell(Input::Wake)
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

/// The token that is bid for, if that is all that is asked.
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
    actions.iter().any(|action| matches!(action, Action::Ended { why: told, .. } if *told == why))
}

#[test]
fn a_released_seat_is_bid_for_at_once_above_its_token() {
    let mut script = Script::new();
    assert_eq!(bid(&script.tell(read(Some(seat(None, 41, "v9"))))), Some(42));
}

#[test]
fn a_bid_is_above_the_floor_of_the_store() {
    let mut script = Script::new();
    let reading = Reading { floor: Token::new(1000), ..Reading::of(Some(seat(None, 41, "v9"))) };
    assert_eq!(bid(&script.tell(Input::Read(Ok(reading)))), Some(1001));
}

#[test]
fn a_seat_is_taken_once_it_was_unchanged_for_the_lease_of_its_own_record() {
    let mut script = Script::new();
    let mut taken = seat(Some(other()), 5, "v5");
    taken.record.lease = LEASE * 2;
    assert_eq!(script.tell(read(Some(taken.clone()))), []);
    while script.sleep_until(200.0) == [Action::Read] {
        let asked = script.tell(read(Some(taken.clone())));
        if bid(&asked).is_some() {
            assert_eq!((bid(&asked), script.now), (Some(6), at(130.0)));
            return;
        }
    }
    panic!("it was never taken");
}

#[test]
fn a_seat_whose_renewal_was_heard_of_is_counted_from_then() {
    let mut script = Script::new();
    let heard = |second, version| Seat { life: Life::Received { at: at(second) }, ..seat(Some(other()), 5, version) };
    assert_eq!(script.tell(read(Some(heard(99.0, "v5")))), []);
    // Renewed, and heard of, long before it is looked at again.
    script.at(110.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(heard(102.0, "v6")))), []);
    while script.sleep_until(200.0) == [Action::Read] {
        let asked = script.tell(read(Some(heard(102.0, "v6"))));
        if bid(&asked).is_some() {
            assert_eq!((bid(&asked), script.now), (Some(6), at(117.0)));
            return;
        }
    }
    panic!("it was never taken");
}

#[test]
fn a_renewed_seat_is_counted_anew() {
    let mut script = Script::new();
    script.tell(read(Some(seat(Some(other()), 5, "v5"))));
    script.at(110.0).tell(Input::Changed(Change::Look));
    script.tell(read(Some(seat(Some(other()), 5, "v6"))));
    script.at(116.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(seat(Some(other()), 5, "v6")))), []);
}

#[test]
fn news_that_were_none_hold_up_the_next_watch_only_if_there_were_others_just_before() {
    let mut script = Script::new();
    let mut looks = |second| {
        let mut out = Vec::new();
        for input in [Input::Changed(Change::Look), read(Some(seat(Some(other()), 7, "a")))] {
            script.machine.step(at(second), input, &mut out);
        }
        out.iter().any(|action| matches!(action, Action::Watch { .. }))
    };
    assert!(looks(100.0), "the first look of all");
    assert!(looks(101.0), "nothing was new");
    assert!(!looks(101.1), "again, soon after it");
    assert!(looks(108.0), "after a while");
}

#[test]
fn a_seat_whose_session_lives_is_never_taken() {
    let mut script = Script::new();
    let held = Seat { life: Life::Held, ..seat(Some(other()), 5, "v5") };
    script.tell(read(Some(held.clone())));
    script.at(1000.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(held))), []);
}

#[test]
fn the_end_of_a_session_is_taken_at_once_or_after_a_lease_as_asked() {
    let over = Seat { life: Life::Over, ..seat(Some(other()), 5, "v5") };
    let mut instant = Script::with(|rules| rules.takeover = Takeover::Instant);
    assert_eq!(bid(&instant.tell(read(Some(over.clone())))), Some(6));

    let mut safe = Script::with(|rules| rules.takeover = Takeover::Safe);
    assert_eq!(safe.tell(read(Some(over.clone()))), []);
    safe.at(115.0).tell(Input::Changed(Change::Look));
    assert_eq!(bid(&safe.tell(read(Some(over)))), Some(6));
}

/// The seat of another, as a store says that goes by its own clock, in milliseconds.
fn clocked(now: i64, renewed: i64, version: &str) -> Seat {
    let life = Life::Clock { now: StoreTime::from_millis(now), renewed: StoreTime::from_millis(renewed) };
    Seat { life, ..seat(Some(other()), 5, version) }
}

#[test]
fn the_clock_of_the_store_counts_only_where_ours_vouches_for_it() {
    let mut script = Script::new();
    // The first reading vouches for nothing, whatever the store says.
    assert_eq!(script.tell(read(Some(clocked(90_000, 0, "v5")))), []);
    // Renewed a second later; seen at 110 s. From 116.1 s on, our clock agrees that a lease has passed.
    script.at(110.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(clocked(100_000, 91_000, "v6")))), []);
    script.at(115.5).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(clocked(199_000, 91_000, "v6")))), []);
    script.at(116.1).tell(Input::Changed(Change::Look));
    assert_eq!(bid(&script.tell(read(Some(clocked(106_100, 91_000, "v6"))))), Some(6));
}

#[test]
fn a_renewal_that_was_under_way_during_a_look_is_vouched_for_by_the_look_before() {
    let mut script = Script::new();
    assert_eq!(script.tell(read(Some(clocked(90_000, 89_000, "v5")))), []);
    script.at(107.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(clocked(97_000, 92_000, "v6")))), []);
    // Timed before that look, and seen only after it.
    script.at(114.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(clocked(104_000, 96_990, "v7")))), []);
    // From the first look, 6.99 s and a lease; not a lease from when it was seen.
    script.at(122.3).tell(Input::Changed(Change::Look));
    assert_eq!(bid(&script.tell(read(Some(clocked(112_300, 96_990, "v7"))))), Some(6));
}

#[test]
fn an_unknown_bid_is_read_back_and_begun_by_a_renewal() {
    let mut script = Script::new();
    script.tell(read(None));
    assert_eq!(script.at(101.0).tell(UNKNOWN), [Action::Failing(Fault::Unknown), Action::Read]);
    let asked = script.at(101.1).tell(read(Some(seat(Some(me()), 1, "v1"))));
    assert!(renews(&asked));
    let began = script.at(101.2).tell(done("v2"));
    let hold = Durations::of(LEASE).check().unwrap().hold();
    assert_eq!(began, [Action::Recovered, Action::Began { token: Token::new(1), until: at(101.1) + hold }]);
}

#[test]
fn an_unknown_bid_that_did_not_land_is_made_again_with_another_number() {
    let mut script = Script::new();
    script.tell(read(None));
    script.tell(UNKNOWN);
    assert_eq!(bid(&script.tell(read(None))), Some(2));
}

#[test]
fn a_lost_bid_means_look() {
    let mut script = Script::new();
    script.tell(read(None));
    assert_eq!(script.tell(LOST), [Action::Read]);
    assert_eq!(script.tell(read(Some(seat(Some(other()), 1, "v1")))), []);
}

#[test]
fn a_seat_that_vanished_or_went_backwards_is_waited_out() {
    for after in [None, Some(seat(None, 4, "v4")), Some(seat(Some(candidate("third", 3)), 5, "v7"))] {
        let mut script = Script::with(|rules| rules.takeover = Takeover::Instant);
        script.tell(read(Some(seat(Some(other()), 5, "v5"))));
        // Even if the session of whom it names now is over.
        let after = after.map(|after| Seat { life: Life::Over, ..after });
        script.at(101.0).tell(Input::Changed(Change::Look));
        assert_eq!(script.tell(read(after.clone())), []);
        script.at(115.9).tell(Input::Changed(Change::Look));
        assert_eq!(script.tell(read(after.clone())), []);
        script.at(116.0).tell(Input::Changed(Change::Look));
        assert_eq!(bid(&script.tell(read(after))), Some(6));
    }
}

#[test]
fn a_seat_that_was_given_up_is_not_waited_out_because_the_stores_clock_was_set_back() {
    let clocked = |holder: Option<Candidate>, second: i64, version: &str| {
        let now = StoreTime::from_millis(second * 1000);
        Some(Seat { life: Life::Clock { now, renewed: now }, ..seat(holder, 5, version) })
    };
    let mut script = Script::new();
    script.tell(read(clocked(Some(other()), 90, "v5")));
    script.at(101.0).tell(Input::Changed(Change::Look));
    assert_eq!(bid(&script.tell(read(clocked(None, 80, "v6")))), Some(6));
}

#[test]
fn a_late_bid_of_its_own_does_not_end_stepping_aside() {
    let mut script = Script::leading(|_| {});
    script.tell(Input::StepDown);
    script.tell(Input::Drained(Token::new(1)));
    script.tell(done("v2"));
    // The seat is lost, and an old bid lands where it was: it is given up, not led.
    script.at(101.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(seat(Some(me()), 2, "v3")))), []);
    let told = script.at(116.0).tell(Input::Wake);
    assert!(releases(&told), "{told:?}");
}

#[test]
fn a_store_with_another_identity_is_waited_out() {
    let life = |name: &str| {
        let reading = Reading::of(Some(seat(None, 5, "v5")));
        Input::Read(Ok(Reading { identity: Some(Identity::new(name)), ..reading }))
    };
    let mut script = Script::with(|rules| rules.stands = false);
    script.tell(life("one"));
    script.at(101.0).tell(Input::Bid);
    assert_eq!(script.tell(life("two")), [Action::BidSettled(Bid::Taken)]);
    script.at(116.0).tell(Input::Bid);
    assert_eq!(bid(&script.tell(life("two"))), Some(6));
}

#[test]
fn a_bid_that_lands_after_another_was_seen_in_its_place_is_waited_out_and_not_led() {
    let mut script = Script::new();
    script.tell(read(None));
    script.tell(UNKNOWN);
    script.tell(read(Some(seat(Some(other()), 1, "v1"))));
    // The seat of the other was lost, and our old bid has landed where it was.
    script.at(101.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(seat(Some(me()), 2, "v2")))), []);
    script.at(116.0);
    assert_eq!(bid(&script.tell(Input::Wake)), Some(3));
}

#[test]
fn a_bid_that_landed_in_a_seat_gone_backwards_is_not_given_up_at_once() {
    let mut script = Script::with(|rules| rules.stands = false);
    script.tell(read(Some(seat(None, 1, "v1"))));
    script.tell(Input::Bid);
    script.tell(Input::Wake);
    script.tell(read(Some(seat(None, 1, "v1"))));
    script.tell(UNKNOWN);
    script.tell(read(Some(seat(Some(other()), 2, "v2"))));
    script.at(101.0).tell(Input::Changed(Change::Look));
    // Given up, it would look to a third like the end of the other's term.
    assert_eq!(script.tell(read(Some(seat(Some(me()), 2, "v3")))), []);
    script.at(116.0);
    assert!(releases(&script.tell(Input::Wake)));
}

#[test]
fn the_seat_is_released_only_after_the_work_has_returned() {
    let mut script = Script::leading(|_| {});
    let told = script.at(101.0).tell(Input::Release);
    assert!(matches!(told[..], [Action::Ending { why: EndReason::Released, .. }]));
    let told = script.at(101.5).tell(Input::Drained(Token::new(1)));
    assert!(ended(&told, EndReason::Released) && releases(&told));
}

#[test]
fn a_candidate_whose_work_overruns_neither_stands_nor_releases() {
    let mut script = Script::leading(|_| {});
    script.tell(Input::StepDown);
    assert!(ended(&script.sleep_until(103.0), EndReason::SteppedDown));
    assert_eq!(script.sleep_until(103.0), [Action::Overran { token: Token::new(1) }]);
    while script.sleep_until(200.0) == [Action::Read] {
        assert_eq!(script.tell(read(Some(seat(None, 1, "v3")))), []);
    }
    assert_eq!(script.tell(Input::Drained(Token::new(1))), [Action::Read]);
    assert_eq!(bid(&script.tell(read(Some(seat(None, 1, "v3"))))), Some(2));
}

#[test]
fn who_steps_down_holds_back_until_another_has_led() {
    let mut script = Script::leading(|_| {});
    script.tell(Input::StepDown);
    assert!(releases(&script.tell(Input::Drained(Token::new(1)))));
    script.tell(done("v2"));
    script.at(105.0).tell(Input::Changed(Change::Look));
    assert_eq!(script.tell(read(Some(seat(None, 1, "v2")))), []);
    script.at(106.0).tell(Input::Changed(Change::Look));
    script.tell(read(Some(seat(Some(other()), 2, "v3"))));
    script.at(107.0).tell(Input::Changed(Change::Look));
    assert_eq!(bid(&script.tell(read(Some(seat(None, 2, "v4"))))), Some(3));
}

#[test]
fn a_request_on_the_board_counts_for_its_own_term_only() {
    let mut script = Script::leading(|_| {});
    let request = |token| Input::Requests(vec![Request::StepDown { token: Token::new(token), to: None }]);
    assert_eq!(script.tell(request(7)), []);
    assert!(matches!(script.tell(request(1))[..], [Action::Ending { why: EndReason::SteppedDown, .. }]));
}

#[test]
fn a_stop_tells_the_end_gives_up_the_seat_and_stops() {
    let mut script = Script::leading(|_| {});
    assert!(matches!(script.tell(Input::Stop)[..], [Action::Ending { why: EndReason::Stopped, .. }]));
    let told = script.tell(Input::Drained(Token::new(1)));
    assert!(ended(&told, EndReason::Stopped) && releases(&told));
    assert_eq!(script.tell(done("v2")), [Action::Stopped(Stopped::Asked)]);
}

#[test]
fn a_refused_release_is_tried_again() {
    let mut script = Script::leading(|_| {});
    // A store with another identity first, as what is waited out must not keep us from leaving.
    script.tell(Input::Changed(Change::Look));
    let ours = Reading::of(Some(seat(Some(me()), 1, "v1")));
    script.tell(Input::Read(Ok(Reading { identity: Some(Identity::new("another")), ..ours })));
    script.tell(Input::StepDown);
    assert!(releases(&script.tell(Input::Drained(Token::new(1)))));
    script.tell(Input::Written(Err(Fault::Refused)));
    assert!(releases(&script.sleep_until(101.1)));
}

#[test]
fn a_candidate_gives_up_once_the_store_has_failed_for_so_long() {
    let mut script = Script::with(|rules| rules.timing = gives_up_after(15));
    script.tell(Input::Read(Err(Fault::Denied)));
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    // One call that succeeds begins the count anew.
    script.tell(read(Some(seat(Some(other()), 1, "v1"))));
    let mut began = None;
    for _ in 0..100 {
        if script.sleep_until(script.now.as_nanos() as f64 / 1e9 + 10.0) != [Action::Read] {
            continue;
        }
        let told = script.tell(Input::Read(Err(Fault::Denied)));
        let since = *began.get_or_insert(script.now);
        if let Some(Action::Stopped(Stopped::GaveUp { after })) = told.last() {
            assert_eq!(*after, script.now.since(since));
            assert!(*after >= LEASE && *after < LEASE * 2, "{after:?}");
            return;
        }
    }
    panic!("it never gave up");
}

/// The usual durations, and giving up after so many seconds.
fn gives_up_after(seconds: u64) -> Timing {
    Durations { give_up_after: Some(Duration::from_secs(seconds)), ..Durations::of(LEASE) }.check().unwrap()
}

/// Where a renewal leaves the version as it is, a release that is still on its way would find it, and vacate the seat under
/// its leader.
#[test]
fn a_seat_that_a_late_release_may_yet_vacate_is_bid_above_and_not_renewed() {
    let mut script = Script::with(|rules| (rules.stands, rules.held_by_session) = (false, true));
    let ours = || read(Some(Seat { life: Life::Held, ..seat(Some(me()), 1, "v1") }));
    script.tell(read(None));
    script.tell(Input::Bid);
    assert_eq!(bid(&script.tell(read(None))), Some(1));
    script.tell(Input::Written(Err(Fault::Unknown)));
    script.tell(Input::Read(Err(Fault::Unknown)));
    // The bid had landed, and nobody wants the seat any more.
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    assert!(releases(&script.tell(ours())));
    script.tell(Input::Bid);
    script.tell(Input::Written(Err(Fault::Unknown)));
    let mut asked = script.tell(ours());
    while asked.is_empty() {
        asked = script.sleep_until(130.0);
    }
    assert_eq!(bid(&asked), Some(2), "{asked:?}");
}

#[test]
fn a_manual_candidate_bids_only_when_asked() {
    let mut script = Script::with(|rules| rules.stands = false);
    assert_eq!(script.tell(read(None)), []);
    assert_eq!(script.tell(Input::Bid), [Action::Read]);
    assert_eq!(bid(&script.tell(read(None))), Some(1));
    let told = script.tell(done("v1"));
    assert!(matches!(told[..], [Action::Began { .. }, Action::BidSettled(Bid::Won(_))]));
}
