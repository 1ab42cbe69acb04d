//! A machine together with its subscriptions, as the engine runs them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::*;

const LEASE: Duration = Duration::from_secs(15);

/// One election over a store that never loses a push silently.
struct World {
    machine: Machine,
    subscriptions: Subscriptions<u8, u8>,
    now: Moment,
    /// The calls that the machine has asked for.
    asked: Vec<&'static str>,
}

fn candidate(number: u128) -> Candidate {
    Candidate { id: format!("candidate {number}").into(), incarnation: Incarnation::from_bits(number) }
}

fn held(by: u128, token: u64, version: &str) -> Seat {
    let record = Record::new(Some(candidate(by)), Token::new(token), LEASE);
    Seat { record, version: Version::new(version), life: Life::Observe }
}

fn vacant(token: u64, version: &str) -> Seat {
    let mut seat = held(2, token, version);
    seat.record.holder = None;
    seat
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Rules)) -> Self {
        let mut rules = Rules::new(Durations::of(LEASE).check().unwrap());
        rules.push = Push::Proven;
        change(&mut rules);
        let mut world = Self {
            machine: Machine::new(candidate(1), rules, 7),
            subscriptions: Subscriptions::new(),
            now: Moment::from_nanos(100_000_000_000),
            asked: Vec::new(),
        };
        world.push(|subscriptions, out| subscriptions.listening(None, out));
        world.push(|subscriptions, out| subscriptions.begin(1, 0, out));
        world.step(Input::Start);
        world
    }

    fn step(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut actions = Vec::new();
            self.machine.step(self.now, input, &mut actions);
            for action in actions {
                match action {
                    Action::Read => {
                        self.subscriptions.read_sent(1);
                        self.asked.push("read");
                    }
                    Action::ReadBoard => self.subscriptions.board_sent(1),
                    Action::Swap { .. } => self.asked.push("swap"),
                    Action::Watch { seat, requests } => {
                        let mut notified = Vec::new();
                        self.subscriptions.watch(1, watching(seat.as_ref(), requests), &mut notified);
                        inputs.extend(notified.into_iter().map(|(_, one)| one.into_input()));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Lets the store push something, and returns the notifications that the election gets.
    fn push(
        &mut self,
        push: impl FnOnce(&mut Subscriptions<u8, u8>, &mut Vec<(u8, Notification)>),
    ) -> Vec<Notification> {
        let mut notified = Vec::new();
        push(&mut self.subscriptions, &mut notified);
        let notified: Vec<_> = notified.into_iter().map(|(_, one)| one).collect();
        notified.iter().for_each(|one| self.step(one.into_input()));
        notified
    }

    fn read(&mut self, seat: Option<Seat>) {
        self.subscriptions.read_answered(1);
        self.step(Input::Read(Ok(Reading::of(seat))));
    }

    fn done(&mut self, version: &str) {
        self.step(Input::Written(Ok(Swap::Done { version: Version::new(version), since: None, granted: None })));
    }

    fn later(&mut self, seconds: f64) {
        self.now = self.now + Duration::from_secs_f64(seconds);
        self.step(Input::Wake);
    }

    fn leads(&self) -> bool {
        self.machine.term(self.now).is_some()
    }
}

fn watching(seat: Option<&Seat>, requests: bool) -> Watching {
    let record = seat.map(|seat| &seat.record);
    Watching {
        names: record.map(|record| (record.holder.as_ref().map(|holder| holder.incarnation), record.token)),
        nonce: record.map(|record| record.nonce),
        requests,
        session: seat.filter(|seat| !seat.record.is_vacant()).map(|seat| SessionId::new(seat.version.as_str())),
        own: record.is_some_and(|record| record.is_held_by(candidate(1).incarnation)),
    }
}

#[test]
fn a_look_that_was_in_flight_when_listening_began_is_repeated() {
    let mut world = World::new();
    world.read(Some(held(2, 5, "a")));
    world.asked.clear();
    // The regular look, once per lease.
    world.later(14.99);
    assert_eq!(world.asked, ["read"]);
    world.push(|subscriptions, out| subscriptions.gap(None, out));
    world.push(|subscriptions, out| subscriptions.listening(None, out));
    world.asked.clear();
    world.read(Some(held(2, 5, "a")));
    assert_eq!(world.asked, ["read"], "a change between that read and the start of listening would be missed");
}

#[test]
fn a_leader_that_handed_over_is_notified_of_requests_in_its_next_term() {
    let mut world = World::new();
    world.read(None);
    world.done("v1");
    let token = world.machine.term(world.now).unwrap();
    // The second one arrives while the board is being read for the first one.
    for _ in 0..2 {
        assert_eq!(
            world.push(|subscriptions, out| {
                subscriptions.request(&0, out);
            }),
            [Notification::Request]
        );
    }
    world.step(Input::Requests(vec![Request::StepDown { token, to: None }]));
    world.step(Input::Drained(token));
    world.done("v2");
    // Another candidate leads, and releases the seat.
    for seat in [held(2, 9, "x"), vacant(9, "y")] {
        world.push(|subscriptions, out| {
            subscriptions.holder(&0, PushDetail::Nothing, out);
        });
        world.later(2.0);
        world.read(Some(seat));
    }
    world.done("z");
    assert!(world.leads());
    world.later(0.1);
    assert_eq!(
        world.push(|subscriptions, out| {
            subscriptions.request(&0, out);
        }),
        [Notification::Request]
    );
}

#[test]
fn the_end_of_its_own_session_is_reported_at_once_even_right_after_spurious_notifications() {
    let mut world = World::new();
    world.read(Some(held(2, 5, "a")));
    for _ in 0..5 {
        world.push(|subscriptions, out| {
            subscriptions.holder(&0, PushDetail::Nothing, out);
        });
        world.later(0.001);
        world.read(Some(held(2, 5, "a")));
    }
    world.step(Input::Bid);
    world.later(0.001);
    world.read(Some(vacant(5, "b")));
    world.later(0.001);
    world.done("mine");
    assert!(world.leads());
    world.push(|subscriptions, out| subscriptions.sessions_over(&[SessionId::new("mine")].into(), out));
    assert!(!world.leads(), "it leads on a session that is known to have ended");
}

/// A candidate that does not bid, for example an observer, or one that waits for a lease with `takeover=safe`.
#[test]
fn the_end_of_a_session_is_reported_once_and_does_not_delay_the_regular_look() {
    let mut world = World::with(|rules| (rules.stands, rules.takeover) = (false, Takeover::Instant));
    world.read(Some(held(2, 5, "theirs")));
    world.asked.clear();
    let ended = world.push(|subscriptions, out| subscriptions.sessions_over(&[SessionId::new("theirs")].into(), out));
    assert_eq!(ended, [Notification::HolderOver]);
    for _ in 0..150 {
        world.later(0.1);
    }
    assert_eq!(world.asked, ["read"], "the regular look, once per lease");
}
