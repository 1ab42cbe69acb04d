use super::*;

const LEASE: Duration = Duration::from_secs(15);

type Action = PresenceAction<&'static str, u32>;

/// A process, its clock, and what it has asked for.
struct Process {
    presence: Presence<&'static str, u32>,
    now: Moment,
    asked: Vec<Action>,
    wake: Option<Moment>,
}

impl Process {
    fn new() -> Self {
        Self { presence: Presence::new(), now: Moment::from_nanos(1), asked: Vec::new(), wake: None }
    }

    /// One that is there, with what this candidate says on the board.
    fn standing(seat: &'static str, notice: u32) -> Self {
        let mut process = Self::new();
        process.announces(seat, LEASE, notice);
        assert_eq!(process.asked(), [say_present(LEASE)]);
        process.step(PresenceInput::Present(Ok(NoteState::Absent)));
        assert_eq!(process.asked(), [put(seat, notice)]);
        process.step(PresenceInput::Notification(seat, Ok(())));
        assert!(process.presence.is_settled());
        process
    }

    fn step(&mut self, input: PresenceInput<&'static str, u32>) {
        self.presence.step(self.now, input, &mut self.asked);
    }

    fn announces(&mut self, seat: &'static str, lease: Duration, notice: u32) {
        self.step(PresenceInput::Announce { seat, lease, fit: true, notice });
    }

    /// What it has asked for, but for wakes.
    fn asked(&mut self) -> Vec<Action> {
        self.asked_to_wake();
        std::mem::take(&mut self.asked)
    }

    fn asked_to_wake(&mut self) {
        self.asked.retain(|action| match action {
            PresenceAction::WakeAt(moment) => {
                self.wake = Some(*moment);
                false
            }
            _ => true,
        });
    }

    /// Waits for what it has asked to be woken for, and returns how long that took.
    fn wakes(&mut self) -> Duration {
        let before = self.now;
        self.asked_to_wake();
        self.now = self.now.max(self.wake.take().expect("it asked to be woken"));
        self.step(PresenceInput::Wake);
        self.now.since(before)
    }
}

fn say_present(lease: Duration) -> Action {
    PresenceAction::SayPresent { lifetime: lease * 2, within: lease / 3 }
}

fn put(seat: &'static str, notice: u32) -> Action {
    PresenceAction::Put { seat, notice, lifetime: LASTS, within: LEASE / 3 }
}

fn remove(seat: &'static str) -> Action {
    PresenceAction::Remove { seat, within: LEASE / 3 }
}

#[test]
fn a_process_says_once_a_lease_that_it_is_there_and_puts_nothing_again() {
    let mut process = Process::standing("jobs", 1);
    for _ in 0..5 {
        assert_eq!(process.wakes(), LEASE);
        assert_eq!(process.asked(), [say_present(LEASE)]);
        process.step(PresenceInput::Present(Ok(NoteState::Present)));
        assert_eq!(process.asked(), []);
    }
}

#[test]
fn what_the_store_has_lost_is_put_again() {
    let mut process = Process::standing("jobs", 1);
    process.wakes();
    process.asked();
    process.step(PresenceInput::Present(Ok(NoteState::Absent)));
    assert_eq!(process.asked(), [put("jobs", 1)]);
}

#[test]
fn a_call_that_fails_is_made_again_after_a_third_of_a_lease() {
    let mut process = Process::standing("jobs", 1);
    process.wakes();
    process.asked();
    process.step(PresenceInput::Present(Err(Fault::Refused)));
    assert_eq!((process.asked(), process.wakes()), (vec![], LEASE / 3));
    assert_eq!(process.asked(), [say_present(LEASE)]);
    // The same if it is not answered at all.
    assert_eq!(process.wakes(), LEASE / 3);
    assert_eq!(process.asked(), [say_present(LEASE)]);
}

#[test]
fn a_notice_that_could_not_be_put_is_put_later() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Change { seat: "jobs", fit: false, notice: 2 });
    assert_eq!(process.asked(), [put("jobs", 2)]);
    process.step(PresenceInput::Notification("jobs", Err(Fault::Unknown)));
    assert_eq!((process.asked(), process.wakes()), (vec![], LEASE / 3));
    assert_eq!(process.asked(), [say_present(LEASE)]);
    process.step(PresenceInput::Present(Ok(NoteState::Present)));
    assert_eq!(process.asked(), [put("jobs", 2)]);
}

#[test]
fn a_change_of_fitness_is_told_at_once_and_others_when_it_costs_nothing() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Change { seat: "jobs", fit: true, notice: 2 });
    process.step(PresenceInput::Change { seat: "jobs", fit: true, notice: 3 });
    assert_eq!((process.asked(), process.presence.says(&"jobs")), (vec![], Some(&3)));
    process.wakes();
    process.step(PresenceInput::Present(Ok(NoteState::Present)));
    assert_eq!(process.asked(), [say_present(LEASE), put("jobs", 3)]);
    // What changes while it is being put is put after that.
    process.step(PresenceInput::Change { seat: "jobs", fit: false, notice: 4 });
    assert_eq!(process.asked(), []);
    process.step(PresenceInput::Notification("jobs", Ok(())));
    assert_eq!(process.asked(), [put("jobs", 4)]);
}

#[test]
fn the_shortest_lease_counts() {
    let mut process = Process::standing("jobs", 1);
    process.announces("mail", LEASE * 2, 2);
    let within = LEASE * 2 / 3;
    assert_eq!(process.asked(), [PresenceAction::Put { seat: "mail", notice: 2, lifetime: LASTS, within }]);
    process.announces("news", LEASE / 3, 3);
    assert_eq!(process.asked()[0], say_present(LEASE / 3));
}

#[test]
fn a_candidate_that_leaves_is_struck_off_and_a_process_without_any_says_nothing() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Withdraw("jobs"));
    assert_eq!(process.asked(), [remove("jobs")]);
    assert!(!process.presence.is_settled());
    process.step(PresenceInput::Notification("jobs", Ok(())));
    assert!(process.presence.is_settled() && process.presence.notices.is_empty());
    process.wakes();
    assert_eq!((process.asked(), process.wake), (vec![], None));
    // Nor is anything asked of the store for one that was never there.
    process.announces("jobs", LEASE, 2);
    process.step(PresenceInput::Withdraw("jobs"));
    assert_eq!(process.asked(), [say_present(LEASE)]);
    process.step(PresenceInput::Present(Ok(NoteState::Absent)));
    assert_eq!(process.asked(), []);
}

/// Found by the simulator: the process was taken to be asking already, and never said again that it is there.
#[test]
fn a_removal_that_fails_when_nobody_stands_any_more_keeps_no_later_candidate_off_the_board() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Withdraw("jobs"));
    assert_eq!(process.asked(), [remove("jobs")]);
    process.wakes();
    process.step(PresenceInput::Notification("jobs", Err(Fault::Unknown)));
    assert_eq!((process.asked(), process.wake), (vec![], None));
    process.announces("jobs", LEASE, 2);
    assert_eq!(process.asked(), [say_present(LEASE)]);
    process.step(PresenceInput::Present(Ok(NoteState::Absent)));
    assert_eq!(process.asked(), [put("jobs", 2)]);
}

#[test]
fn a_notice_is_put_again_before_its_lifetime_is_over() {
    let mut process = Process::standing("jobs", 1);
    let (put_at, mut again) = (process.now, Vec::new());
    while again.is_empty() {
        process.wakes();
        assert_eq!(process.asked(), [say_present(LEASE)]);
        process.step(PresenceInput::Present(Ok(NoteState::Present)));
        again = process.asked();
    }
    assert_eq!(again, [put("jobs", 1)]);
    let age = process.now.since(put_at);
    assert!(age >= LASTS / 2 && age <= LASTS * 3 / 4, "{age:?}");
    // Leases of hours count instead of ten minutes.
    process.announces("archive", LASTS, 2);
    let within = LASTS / 3;
    let put = PresenceAction::Put { seat: "archive", notice: 2, lifetime: LASTS * 4, within };
    assert_eq!(process.asked(), [put]);
}
