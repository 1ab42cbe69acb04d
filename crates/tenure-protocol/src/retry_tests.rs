//! How many terms are lost when calls time out, and how often a store that fails is called.

use super::*;

/// One machine and a store with one seat, some of whose calls time out.
struct Lossy {
    script: Script,
    dice: Dice,
    kept: Option<Seat>,
    writes: u64,
    /// How many calls in a thousand time out.
    per_mille: u64,
    /// Renewals are matched by holder and term, not by version.
    by_holder: bool,
    lost: u32,
}

impl Lossy {
    fn new(per_mille: u64, by_holder: bool) -> Self {
        let script = Script::leading(|_| {});
        let kept = Some(seat(Some(me()), 1, "v1"));
        Self { script, dice: Dice::new(99), kept, writes: 1, per_mille, by_holder, lost: 0 }
    }

    /// Runs until this hour on the machine's clock.
    fn run(&mut self, hours: u64) {
        let end = at(hours as f64 * 3600.0);
        let mut actions = Vec::new();
        while self.script.now < end {
            self.lost += actions.iter().filter(|action| matches!(action, Action::Ended { .. })).count() as u32;
            let ended = actions.iter().find_map(|action| match action {
                Action::Ending { token, .. } => Some(*token),
                _ => None,
            });
            let call = actions.iter().find(|a| matches!(a, Action::Read | Action::Renew { .. } | Action::Swap { .. }));
            actions = match (ended, call.cloned()) {
                (Some(token), None) => self.script.step(Input::Drained(token)),
                (_, Some(call)) => self.answer(&call),
                (None, None) => self.script.sleep_until(hours as f64 * 3600.0),
            };
        }
    }

    fn answer(&mut self, call: &Action) -> Vec<Action> {
        let times_out = self.dice.chance(self.per_mille);
        let (expected, record) = match call {
            Action::Renew { held, record } => (Some(held), record),
            Action::Swap { expected, record } => (expected.as_ref(), record),
            _ if times_out => return self.after(1.0, Input::Read(Err(Fault::Unknown))),
            _ => return self.after(0.002, read(self.kept.clone())),
        };
        // The call is lost on its way to the store, or its answer is lost on the way back.
        let lands = !times_out || self.dice.chance(500);
        let kept = self.kept.as_ref();
        let ours = kept.is_some_and(|kept| kept.record.holder == record.holder && kept.record.token == record.token);
        let by_holder = self.by_holder && matches!(call, Action::Renew { .. });
        let fits = if by_holder { ours } else { kept.map(|kept| &kept.version) == expected };
        if lands && fits {
            self.writes += 1;
            let version = Version::new(format!("v{}", self.writes));
            self.kept = Some(Seat { record: record.clone(), version, life: Life::Observe });
        }
        match (&self.kept, times_out) {
            (_, true) => self.after(1.0, UNKNOWN),
            (Some(kept), false) if fits => {
                let version = kept.version.clone();
                self.after(0.002, Input::Written(Ok(Swap::Done { version, since: None, granted: None })))
            }
            _ => self.after(0.002, LOST),
        }
    }

    /// Delivers an answer after `seconds`. Until then, the machine is woken when it asked to be.
    fn after(&mut self, seconds: f64, answer: Input) -> Vec<Action> {
        let then = self.script.now + Duration::from_secs_f64(seconds);
        let mut actions = Vec::new();
        while let Some(wake) = self.script.wake.filter(|wake| *wake <= then) {
            self.script.wake = None;
            self.script.now = self.script.now.max(wake);
            actions.extend(self.script.step(Input::Wake));
        }
        self.script.now = then;
        actions.extend(self.script.step(answer));
        actions
    }
}

#[test]
fn few_terms_are_lost_when_a_fifth_of_all_calls_time_out() {
    // How many terms may be lost in a thousand hours. CHANGELOG.md promises 0.001 and 0.12 an hour, which chance can exceed.
    for (by_holder, most) in [(true, 3), (false, 140)] {
        let mut lossy = Lossy::new(200, by_holder);
        lossy.run(1000);
        assert!(lossy.lost <= most, "{} terms were lost in 1000 hours (by holder: {by_holder})", lossy.lost);
    }
}

/// Runs a candidate for `leases` leases that reads a vacant seat and whose writes all fail with `fault`.
/// Returns the number of its bids, and its reports about the store.
fn writes_fail(fault: Fault, leases: u32) -> (Script, u32, Vec<Action>) {
    writes_answered(&Input::Written(Err(fault)), leases)
}

fn writes_answered(answer: &Input, leases: u32) -> (Script, u32, Vec<Action>) {
    let mut script = Script::new();
    let (mut bids, mut said) = (0, Vec::new());
    let mut asked = script.step(read(None));
    let end = at(100.0 + f64::from(leases) * 15.0);
    while script.now < end {
        let calls = |action: &Action| matches!(action, Action::Read | Action::Swap { .. });
        let call = asked.iter().find(|action| calls(action)).cloned();
        said.extend(asked.into_iter().filter(|action| !calls(action)));
        asked = match call {
            Some(Action::Read) => script.step(read(None)),
            Some(_) => {
                bids += 1;
                script.step(answer.clone())
            }
            None => script.sleep_until(100.0 + f64::from(leases) * 15.0),
        };
    }
    (script, bids, said)
}

#[test]
fn a_candidate_backs_off_when_reads_work_and_writes_fail() {
    for fault in [Fault::Refused, Fault::Denied, Fault::Unknown] {
        let (_, bids, said) = writes_fail(fault, 10);
        assert!((20..=100).contains(&bids), "{fault:?}: {bids} bids in ten leases");
        assert_eq!(said, [Action::Failing(fault)]);
    }
}

#[test]
fn a_candidate_backs_off_when_its_bids_are_lost_though_the_seat_does_not_change() {
    let (_, bids, said) = writes_answered(&LOST, 10);
    assert!((20..=100).contains(&bids), "{bids} bids in ten leases");
    assert_eq!(said, []);
}

/// As after a 429 of Kubernetes with `Retry-After`: after each bid that fails, one read is refused as well.
#[test]
fn a_candidate_backs_off_and_gives_up_when_writes_fail_and_some_reads_do_too() {
    for fault in [Fault::Refused, Fault::Unknown] {
        let mut script = Script::with(|rules| rules.timing = gives_up_after(150));
        let (mut bids, mut refuse, mut said) = (0, false, Vec::new());
        let mut asked = script.step(read(None));
        while script.now < at(400.0) && !script.machine.is_over() {
            let call = asked.iter().rev().find(|a| matches!(a, Action::Read | Action::Swap { .. })).cloned();
            said.extend(asked.into_iter().filter(|a| !matches!(a, Action::Read | Action::Swap { .. })));
            asked = match call {
                Some(Action::Read) if std::mem::take(&mut refuse) => script.step(Input::Read(Err(fault))),
                Some(Action::Read) => script.step(read(None)),
                Some(_) => {
                    (bids, refuse) = (bids + 1, true);
                    script.step(Input::Written(Err(Fault::Refused)))
                }
                None => script.sleep_until(400.0),
            };
        }
        assert!((20..=100).contains(&bids), "{fault:?}: {bids} bids until it gave up");
        assert!(asked.iter().any(|a| matches!(a, Action::Stopped(Stopped::GaveUp { .. }))), "{said:?}, {asked:?}");
        assert!(!said.contains(&Action::Recovered), "{said:?}");
    }
}

#[test]
fn a_candidate_gives_up_when_reads_work_and_writes_fail() {
    let mut script = Script::with(|rules| rules.timing = gives_up_after(30));
    let mut asked = script.step(read(None));
    for _ in 0..100 {
        if asked.iter().any(|action| matches!(action, Action::Stopped(Stopped::GaveUp { .. }))) {
            return;
        }
        asked = match asked.last() {
            Some(Action::Read) => script.step(read(None)),
            Some(Action::Swap { .. }) => script.step(Input::Written(Err(Fault::Refused))),
            _ => script.sleep_until(1000.0),
        };
    }
    panic!("the candidate never gave up");
}

#[test]
fn another_candidate_that_leads_shows_that_writes_work() {
    let (mut script, ..) = writes_fail(Fault::Refused, 2);
    let mut asked = script.sleep_until(200.0);
    while asked != [Action::Read] {
        asked = script.sleep_until(200.0);
    }
    assert_eq!(script.step(read(Some(seat(Some(other()), 50, "w1")))), [Action::Recovered]);
}

#[test]
fn a_candidate_that_was_denied_everything_recovers_when_it_can_read_again() {
    let mut script = Script::new();
    script.step(read(None));
    assert_eq!(script.step(Input::Written(Err(Fault::Denied))), [Action::Failing(Fault::Denied)]);
    assert_eq!(script.sleep_until(120.0), [Action::Read]);
    assert_eq!(script.step(Input::Read(Err(Fault::Denied))), []);
    assert_eq!(script.sleep_until(140.0), [Action::Read]);
    assert_eq!(script.step(read(Some(seat(Some(other()), 50, "w1")))), [Action::Recovered]);
}

/// Runs a preemptor whose bids all fail, against a leader that gives way to every request. Returns the number
/// of its requests.
fn unseats(fault: Fault, leases: u32) -> u32 {
    let mut script = Script::with(|rules| (rules.priority, rules.preempt) = (1, true));
    let (mut asks, mut token, mut vacant_until) = (0, 1, Moment::ORIGIN);
    let mut asked = vec![Action::Read];
    while script.now < at(100.0 + f64::from(leases) * 15.0) {
        if asked.iter().any(|action| matches!(action, Action::Ask(Request::Preempt { .. }))) {
            // The leader steps down, and another candidate takes over half a lease later.
            (asks, token, vacant_until) = (asks + 1, token + 1, script.now + LEASE / 2);
        }
        let vacant = script.now < vacant_until;
        let mut now = seat((!vacant).then(other), token, &format!("{token}-{vacant}-{}", script.now.as_nanos()));
        now.record.ranked = true;
        asked = match asked.iter().rev().find(|a| matches!(a, Action::Read | Action::Swap { .. } | Action::ReadRoster))
        {
            Some(Action::Read) => script.step(read(Some(now))),
            Some(Action::ReadRoster) => script.step(Input::Roster(Vec::new())),
            Some(_) => script.step(Input::Written(Err(fault))),
            None => script.sleep_until(100.0 + f64::from(leases) * 15.0),
        };
    }
    asks
}

#[test]
fn a_preemptor_whose_bids_fail_unseats_the_leader_less_and_less_often() {
    for fault in [Fault::Refused, Fault::Denied, Fault::Unknown] {
        let asks = unseats(fault, 400);
        assert!((2..=12).contains(&asks), "{fault:?}: it unseated the leader {asks} times in 400 leases");
    }
}

/// Runs a stopped candidate for ten leases whose releases of the seat all get this answer. Returns the number
/// of its writes.
fn vacates(answer: &Input) -> u32 {
    let mut script = Script::leading(|rules| rules.held_by_session = true);
    script.step(Input::Stop);
    let mut asked = script.step(Input::Drained(Token::new(1)));
    let mut vacates = 0;
    while script.now < at(250.0) {
        asked = match asked.iter().rev().find(|a| matches!(a, Action::Read | Action::Swap { .. })) {
            Some(Action::Read) => script.step(read(Some(seat(Some(me()), 1, "v1")))),
            Some(_) => {
                vacates += 1;
                script.step(answer.clone())
            }
            None => script.sleep_until(250.0),
        };
    }
    vacates
}

#[test]
fn a_release_that_keeps_failing_is_retried_less_and_less_often() {
    for answer in [LOST, UNKNOWN, Input::Written(Err(Fault::Refused)), Input::Written(Err(Fault::Denied))] {
        let vacates = vacates(&answer);
        assert!((20..=100).contains(&vacates), "{answer:?}: {vacates} times in ten leases");
    }
}

#[test]
fn after_two_bids_of_unknown_outcome_the_seat_is_soon_looked_at_again() {
    let mut script = Script::with(|rules| rules.push = Push::Proven);
    script.step(read(None));
    script.step(UNKNOWN);
    assert_eq!(bid(&script.step(read(None))), Some(2));
    script.step(UNKNOWN);
    assert_eq!(script.step(read(None)), []);
    // The store works again.
    assert_eq!(script.sleep_until(110.0), [Action::Read]);
    assert!(script.now < at(103.0), "{:?}", script.now);
    assert_eq!(bid(&script.step(read(None))), Some(3));
}

#[test]
fn an_election_that_stops_during_an_outage_releases_a_held_seat_as_soon_as_the_store_answers() {
    let mut script = Script::leading(|rules| rules.held_by_session = true);
    script.step(Input::Stop);
    let mut asked = script.step(Input::Drained(Token::new(1)));
    let mut stopped = false;
    while script.now < at(200.0) {
        stopped |= asked.contains(&Action::Stopped(Stopped::Asked));
        asked = match asked.iter().rev().find(|a| matches!(a, Action::Read | Action::Swap { .. })) {
            Some(Action::Read) => script.step(Input::Read(Err(Fault::Unknown))),
            Some(_) => script.step(UNKNOWN),
            None => script.sleep_until(200.0),
        };
    }
    assert!(stopped, "its users have waited for a lease");
    assert!(!script.machine.is_over());
    while asked != [Action::Read] {
        asked = script.sleep_until(220.0);
    }
    assert!(releases(&script.step(read(Some(seat(Some(me()), 1, "v1"))))));
    assert_eq!(script.step(done("v2")), []);
    assert!(script.machine.is_over());
}

#[test]
fn after_the_highest_token_a_removed_seat_is_bid_for_with_a_low_one() {
    let mut script = Script::new();
    let highest = || read(Some(seat(None, Token::MAX.get(), "v1")));
    assert_eq!(script.step(highest()), [Action::Failing(Fault::Denied)]);
    // It is not reported again and again.
    for _ in 0..3 {
        assert_eq!(script.sleep_until(200.0), [Action::Read]);
        assert_eq!(script.step(highest()), []);
    }
    let now = script.now + LEASE;
    script.now = now;
    script.step(Input::Changed(Change::Look));
    script.step(read(None));
    // The loss of the seat is waited out first.
    script.now = now + LEASE * 11 / 10;
    script.step(Input::Changed(Change::Look));
    assert_eq!(bid(&script.step(read(None))), Some(1));
    assert!(script.step(done("v1")).iter().any(|action| matches!(action, Action::Began { .. })));
}

#[test]
fn a_seat_that_names_us_before_our_first_bid_is_bid_above_and_not_renewed() {
    let mut script = Script::new();
    assert_eq!(bid(&script.step(read(Some(seat(Some(me()), 7, "v1"))))), Some(8));
}

/// Found by the simulator: no call was in flight and the bid had been refused, so the machine believed that it
/// had left the seat.
#[test]
fn a_stop_after_a_refused_bid_over_our_own_seat_releases_that_seat() {
    let mut script = Script::with(|rules| rules.held_by_session = true);
    let ours = || read(Some(seat(Some(me()), 7, "v1")));
    assert_eq!(bid(&script.step(ours())), Some(8));
    script.step(Input::Written(Err(Fault::Refused)));
    let mut asked = script.step(Input::Stop);
    assert!(!asked.contains(&Action::Stopped(Stopped::Asked)), "the seat names us: {asked:?}");
    while asked != [Action::Read] {
        asked = script.sleep_until(110.0);
    }
    assert!(releases(&script.step(ours())));
    assert!(script.step(done("v2")).contains(&Action::Stopped(Stopped::Asked)));
    assert!(script.machine.is_over());
}
