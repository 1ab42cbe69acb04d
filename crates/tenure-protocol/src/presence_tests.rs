use super::*;

const LEASE: Duration = Duration::from_secs(15);

type Action = PresenceAction<&'static str, u32>;

/// A process, its clock, and the actions that it has asked for.
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

    /// A process whose notes are in the store, with this notice on the board of `seat`.
    fn standing(seat: &'static str, notice: u32) -> Self {
        let mut process = Self::new();
        process.announces(seat, LEASE, notice);
        assert_eq!(process.asked(), [say_present(LEASE)]);
        process.step(PresenceInput::Present(Ok(NoteState::Absent)));
        assert_eq!(process.asked(), [put(seat, notice)]);
        process.step(PresenceInput::NoticeWritten(seat, Ok(())));
        assert!(process.presence.is_settled());
        process
    }

    fn step(&mut self, input: PresenceInput<&'static str, u32>) {
        self.presence.step(self.now, input, &mut self.asked);
    }

    fn announces(&mut self, seat: &'static str, lease: Duration, notice: u32) {
        self.step(PresenceInput::Announce { seat, lease, fit: true, notice });
    }

    /// Returns the actions since the last call, without wakes.
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

    /// Moves the clock to the wake that it asked for, and returns how long that took.
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
    PresenceAction::Put { seat, notice, lifetime: NOTICE_LIFETIME, within: LEASE / 3 }
}

fn remove(seat: &'static str) -> Action {
    PresenceAction::Remove { seat, within: LEASE / 3 }
}

#[test]
fn a_process_reports_itself_once_per_lease_and_repeats_no_notice() {
    let mut process = Process::standing("jobs", 1);
    for _ in 0..5 {
        assert_eq!(process.wakes(), LEASE);
        assert_eq!(process.asked(), [say_present(LEASE)]);
        process.step(PresenceInput::Present(Ok(NoteState::Present)));
        assert_eq!(process.asked(), []);
    }
}

#[test]
fn notices_that_the_store_has_lost_are_written_again() {
    let mut process = Process::standing("jobs", 1);
    process.wakes();
    process.asked();
    process.step(PresenceInput::Present(Ok(NoteState::Absent)));
    assert_eq!(process.asked(), [put("jobs", 1)]);
}

#[test]
fn a_failed_report_is_repeated_after_a_third_of_a_lease() {
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
fn a_notice_that_could_not_be_written_is_written_later() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Change { seat: "jobs", fit: false, notice: 2 });
    assert_eq!(process.asked(), [put("jobs", 2)]);
    process.step(PresenceInput::NoticeWritten("jobs", Err(Fault::Unknown)));
    assert_eq!((process.asked(), process.wakes()), (vec![], LEASE / 3));
    assert_eq!(process.asked(), [say_present(LEASE)]);
    process.step(PresenceInput::Present(Ok(NoteState::Present)));
    assert_eq!(process.asked(), [put("jobs", 2)]);
}

#[test]
fn a_change_of_fitness_is_written_at_once_and_other_changes_with_the_next_report() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Change { seat: "jobs", fit: true, notice: 2 });
    process.step(PresenceInput::Change { seat: "jobs", fit: true, notice: 3 });
    assert_eq!((process.asked(), process.presence.says(&"jobs")), (vec![], Some(&3)));
    process.wakes();
    process.step(PresenceInput::Present(Ok(NoteState::Present)));
    assert_eq!(process.asked(), [say_present(LEASE), put("jobs", 3)]);
    // A change that arrives while a notice is in flight is written afterwards.
    process.step(PresenceInput::Change { seat: "jobs", fit: false, notice: 4 });
    assert_eq!(process.asked(), []);
    process.step(PresenceInput::NoticeWritten("jobs", Ok(())));
    assert_eq!(process.asked(), [put("jobs", 4)]);
}

#[test]
fn the_shortest_lease_sets_the_interval_of_reports() {
    let mut process = Process::standing("jobs", 1);
    process.announces("mail", LEASE * 2, 2);
    let within = LEASE * 2 / 3;
    assert_eq!(process.asked(), [PresenceAction::Put { seat: "mail", notice: 2, lifetime: NOTICE_LIFETIME, within }]);
    process.announces("news", LEASE / 3, 3);
    assert_eq!(process.asked()[0], say_present(LEASE / 3));
}

#[test]
fn a_candidate_that_withdraws_is_removed_and_a_process_without_candidates_reports_nothing() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Withdraw("jobs"));
    assert_eq!(process.asked(), [remove("jobs")]);
    assert!(!process.presence.is_settled());
    process.step(PresenceInput::NoticeWritten("jobs", Ok(())));
    assert!(process.presence.is_settled() && process.presence.notices.is_empty());
    process.wakes();
    assert_eq!((process.asked(), process.wake), (vec![], None));
    // Nor is anything written for a candidate that was never announced to the store.
    process.announces("jobs", LEASE, 2);
    process.step(PresenceInput::Withdraw("jobs"));
    assert_eq!(process.asked(), [say_present(LEASE)]);
    process.step(PresenceInput::Present(Ok(NoteState::Absent)));
    assert_eq!(process.asked(), []);
}

/// Found by the simulator: the process waited for an answer that it had not asked for, and was never reported
/// again.
#[test]
fn a_removal_that_fails_after_the_last_candidate_left_does_not_block_later_candidates() {
    let mut process = Process::standing("jobs", 1);
    process.step(PresenceInput::Withdraw("jobs"));
    assert_eq!(process.asked(), [remove("jobs")]);
    process.wakes();
    process.step(PresenceInput::NoticeWritten("jobs", Err(Fault::Unknown)));
    assert_eq!((process.asked(), process.wake), (vec![], None));
    process.announces("jobs", LEASE, 2);
    assert_eq!(process.asked(), [say_present(LEASE)]);
    process.step(PresenceInput::Present(Ok(NoteState::Absent)));
    assert_eq!(process.asked(), [put("jobs", 2)]);
}

#[test]
fn a_notice_is_written_again_before_its_lifetime_is_over() {
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
    assert!(age >= NOTICE_LIFETIME / 2 && age <= NOTICE_LIFETIME * 3 / 4, "{age:?}");
    // With leases of hours, notices last for four leases instead of ten minutes.
    process.announces("archive", NOTICE_LIFETIME, 2);
    let within = NOTICE_LIFETIME / 3;
    let put = PresenceAction::Put { seat: "archive", notice: 2, lifetime: NOTICE_LIFETIME * 4, within };
    assert_eq!(process.asked(), [put]);
}
