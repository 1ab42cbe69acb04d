use super::*;

const JOBS: &str = "jobs";
const MAIL: &str = "mail";

/// Two elections for one seat, and one election for another seat.
struct Fixture {
    subscriptions: Subscriptions<&'static str, u32>,
    notified: Vec<(u32, Notification)>,
}

impl Fixture {
    fn open() -> Self {
        let mut fixture = Self { subscriptions: Subscriptions::new(), notified: Vec::new() };
        for (election, seat) in [(1, JOBS), (2, JOBS), (3, MAIL)] {
            fixture.subscriptions.begin(election, seat, &mut fixture.notified);
        }
        assert_eq!(
            fixture.notified(),
            [
                (1, Notification::Listening(false)),
                (2, Notification::Listening(false)),
                (3, Notification::Listening(false))
            ]
        );
        fixture
    }

    /// A store that listens for all seats before the first read.
    fn listening() -> Self {
        let mut fixture = Self::open();
        fixture.listen(None);
        assert_eq!(
            fixture.notified(),
            [
                (1, Notification::Listening(true)),
                (2, Notification::Listening(true)),
                (3, Notification::Listening(true))
            ]
        );
        fixture
    }

    fn notified(&mut self) -> Vec<(u32, Notification)> {
        std::mem::take(&mut self.notified)
    }

    fn listen(&mut self, seat: Option<&'static str>) {
        self.subscriptions.listening(seat.as_ref(), &mut self.notified);
    }

    fn gap(&mut self, seat: Option<&'static str>) {
        self.subscriptions.gap(seat.as_ref(), &mut self.notified);
    }

    fn read(&mut self, election: u32) {
        self.subscriptions.read_sent(election);
        self.subscriptions.read_answered(election);
    }

    fn watch(&mut self, election: u32) {
        self.watch_as(election, Watching::default());
    }

    fn watch_as(&mut self, election: u32, watching: Watching) {
        self.subscriptions.watch(election, watching, &mut self.notified);
    }

    fn push_holder(&mut self, pushed: PushDetail) {
        self.subscriptions.holder(&JOBS, pushed, &mut self.notified);
    }

    fn push_request(&mut self) {
        self.subscriptions.request(&JOBS, &mut self.notified);
    }
}

#[test]
fn a_push_wakes_the_elections_of_its_seat_once_until_they_watch_again() {
    let mut fixture = Fixture::listening();
    for election in [1, 2, 3] {
        fixture.read(election);
        fixture.watch(election);
    }
    fixture.push_holder(PushDetail::Nothing);
    assert_eq!(fixture.notified(), [(1, Notification::Holder), (2, Notification::Holder)]);
    fixture.push_holder(PushDetail::Nothing);
    assert_eq!(fixture.notified(), []);
    fixture.read(1);
    fixture.watch(1);
    assert_eq!(fixture.notified(), []);
    fixture.push_holder(PushDetail::Nothing);
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
}

#[test]
fn only_a_read_sent_after_the_store_listens_counts_as_the_look() {
    let mut fixture = Fixture::open();
    fixture.subscriptions.read_sent(1);
    fixture.listen(Some(JOBS));
    assert_eq!(fixture.notified(), [(1, Notification::Listening(true)), (2, Notification::Listening(true))]);
    fixture.subscriptions.read_answered(1);
    fixture.watch(1);
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
    fixture.read(1);
    fixture.watch(1);
    assert_eq!(fixture.notified(), []);
}

#[test]
fn a_push_during_a_read_leads_to_another_look() {
    let mut fixture = Fixture::listening();
    fixture.subscriptions.read_sent(1);
    fixture.push_holder(PushDetail::Nothing);
    fixture.subscriptions.read_answered(1);
    fixture.watch(1);
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
}

#[test]
fn a_gap_is_reported_and_followed_by_a_look_once_it_is_over() {
    let mut fixture = Fixture::listening();
    fixture.read(1);
    fixture.watch(1);
    fixture.gap(None);
    assert_eq!(
        fixture.notified(),
        [(1, Notification::Listening(false)), (2, Notification::Listening(false)), (3, Notification::Listening(false))]
    );
    fixture.listen(Some(JOBS));
    assert_eq!(
        fixture.notified(),
        [(1, Notification::Listening(true)), (1, Notification::Holder), (2, Notification::Listening(true))]
    );
    // A short gap whose start and end arrive together.
    fixture.read(1);
    fixture.watch(1);
    fixture.gap(Some(JOBS));
    fixture.listen(Some(JOBS));
    let notified = fixture.notified();
    assert_eq!(notified.iter().filter(|notified| **notified == (1, Notification::Holder)).count(), 1, "{notified:?}");
}

#[test]
fn a_gap_of_one_seat_is_reported_to_its_elections_only() {
    let mut fixture = Fixture::listening();
    for again in [Some(JOBS), None] {
        fixture.read(1);
        fixture.watch(1);
        fixture.gap(Some(JOBS));
        assert_eq!(fixture.notified(), [(1, Notification::Listening(false)), (2, Notification::Listening(false))]);
        fixture.listen(again);
        assert_eq!(
            fixture.notified(),
            [(1, Notification::Listening(true)), (1, Notification::Holder), (2, Notification::Listening(true))]
        );
        fixture.listen(again);
        assert_eq!(fixture.notified(), []);
    }
}

#[test]
fn no_election_is_woken_by_a_record_that_it_has_seen() {
    let mut fixture = Fixture::listening();
    let of = |bits| Some((Some(Incarnation::from_bits(bits)), Token::new(7)));
    let watching = Watching { names: of(1), nonce: Some(11), ..Watching::default() };
    // The push arrives before the answer to its own bid, and again after it.
    fixture.read(1);
    fixture.push_holder(PushDetail::Nonce(11));
    fixture.watch_as(1, watching.clone());
    fixture.push_holder(PushDetail::Names(of(1)));
    assert_eq!(fixture.notified(), []);
    fixture.push_holder(PushDetail::Names(of(2)));
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
    fixture.watch_as(1, watching);
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
}

#[test]
fn a_leader_is_notified_of_requests_and_of_gaps_in_which_it_may_have_missed_one() {
    let mut fixture = Fixture::listening();
    let leads = Watching { requests: true, ..Watching::default() };
    fixture.read(1);
    fixture.read(2);
    fixture.watch(2);
    // The store starts to listen only after the election has begun.
    fixture.watch_as(1, leads.clone());
    assert_eq!(fixture.notified(), [(1, Notification::Request)]);
    fixture.subscriptions.board_sent(1);
    fixture.watch_as(1, leads.clone());
    assert_eq!(fixture.notified(), []);
    fixture.push_request();
    assert_eq!(fixture.notified(), [(1, Notification::Request)]);
    fixture.push_request();
    assert_eq!(fixture.notified(), [], "it was notified, and has not read the board yet");
    // The push arrives while the board is being read.
    fixture.subscriptions.board_sent(1);
    fixture.push_request();
    assert_eq!(fixture.notified(), [(1, Notification::Request)]);
    // Meanwhile it keeps watching its seat.
    assert!(fixture.subscriptions.wants_requests(&JOBS));
    fixture.push_holder(PushDetail::Nothing);
    assert_eq!(fixture.notified(), [(1, Notification::Holder), (2, Notification::Holder)]);
    assert!(!fixture.subscriptions.wants_requests(&JOBS));
    // An election that begins later has missed no request.
    fixture.subscriptions.begin(4, JOBS, &mut fixture.notified);
    fixture.read(4);
    fixture.watch_as(4, leads);
    assert_eq!(fixture.notified(), [(4, Notification::Listening(true))]);
    assert!(fixture.subscriptions.wants_requests(&JOBS));
}

#[test]
fn the_end_of_a_session_is_reported_to_its_leader_and_to_elections_that_wait_for_it() {
    let mut fixture = Fixture::listening();
    let on = |name: &str, own| Watching { session: Some(SessionId::new(name)), own, ..Watching::default() };
    for election in [1, 2, 3] {
        fixture.read(election);
    }
    fixture.watch_as(1, on("ours", true));
    fixture.watch_as(2, on("ours", false));
    fixture.watch_as(3, on("theirs", false));
    // Even if the election does not watch at present.
    fixture.push_holder(PushDetail::Nothing);
    assert_eq!(fixture.notified(), [(1, Notification::Holder), (2, Notification::Holder)]);
    fixture.subscriptions.sessions_over(&[SessionId::new("nobody's")].into(), &mut fixture.notified);
    assert_eq!(fixture.notified(), []);
    fixture.subscriptions.sessions_over(&[SessionId::new("ours")].into(), &mut fixture.notified);
    fixture.subscriptions.sessions_over(&[SessionId::new("theirs")].into(), &mut fixture.notified);
    assert_eq!(fixture.notified(), [(1, Notification::SessionOver), (3, Notification::HolderOver)]);
}

#[test]
fn a_change_of_the_holder_says_more_than_the_end_of_the_former_session() {
    let mut fixture = Fixture::listening();
    fixture.read(1);
    fixture.watch_as(1, Watching { session: Some(SessionId::new("theirs")), ..Watching::default() });
    fixture.subscriptions.read_sent(1);
    fixture.subscriptions.sessions_over(&[SessionId::new("theirs")].into(), &mut fixture.notified);
    assert_eq!(fixture.notified(), [(1, Notification::HolderOver)]);
    fixture.push_holder(PushDetail::Nothing);
    fixture.notified();
    fixture.watch_as(1, Watching { session: Some(SessionId::new("theirs")), ..Watching::default() });
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
}

#[test]
fn the_end_of_a_session_that_arrived_before_the_watch_is_reported_with_the_watch() {
    let mut fixture = Fixture::listening();
    let on = |name: &str, own| Watching { session: Some(SessionId::new(name)), own, ..Watching::default() };
    let (ours, theirs) = (SessionId::new("ours"), SessionId::new("theirs"));
    // Both reads were sent while the sessions were alive.
    fixture.subscriptions.read_sent(1);
    fixture.subscriptions.read_sent(2);
    for session in [&ours, &theirs] {
        assert!(!fixture.subscriptions.is_over(session));
        fixture.subscriptions.sessions_over(&[session.clone()].into(), &mut fixture.notified);
    }
    assert!(fixture.subscriptions.is_over(&ours) && fixture.subscriptions.is_over(&theirs));
    fixture.subscriptions.read_answered(1);
    fixture.subscriptions.read_answered(2);
    fixture.watch_as(1, on("ours", true));
    fixture.watch_as(2, on("theirs", false));
    assert_eq!(fixture.notified(), [(1, Notification::SessionOver), (2, Notification::HolderOver)]);
    // A later read is the word of the store itself.
    fixture.read(2);
    fixture.watch_as(2, on("theirs", false));
    assert_eq!(fixture.notified(), []);
}

#[test]
fn only_the_most_recent_ended_sessions_are_remembered() {
    let mut fixture = Fixture::listening();
    let name = |number: usize| SessionId::new(number.to_string());
    for number in 0..=MAX_ENDED {
        fixture.subscriptions.sessions_over(&[name(number)].into(), &mut fixture.notified);
    }
    assert!(!fixture.subscriptions.is_over(&name(0)) && fixture.subscriptions.is_over(&name(1)));
    assert_eq!(fixture.subscriptions.over.len(), MAX_ENDED);
}

#[test]
fn nothing_is_kept_of_elections_that_have_ended() {
    let mut fixture = Fixture::listening();
    assert_eq!(fixture.subscriptions.end(1), None);
    assert_eq!(fixture.subscriptions.end(2), Some(JOBS));
    assert!(!fixture.subscriptions.holder(&JOBS, PushDetail::Nothing, &mut fixture.notified));
    assert!(!fixture.subscriptions.request(&JOBS, &mut fixture.notified));
    assert_eq!((fixture.subscriptions.seats.len(), fixture.subscriptions.elections.len()), (1, 1));
}

#[test]
fn the_push_of_a_write_of_our_own_that_overtakes_its_answer_is_not_news() {
    let names = (None, Token::new(7));
    for pushed in [PushDetail::Nonce(5), PushDetail::Names(Some(names))] {
        let mut fixture = Fixture::listening();
        fixture.read(1);
        fixture.watch(1);
        fixture.subscriptions.write_sent(1, 5, names);
        fixture.subscriptions.holder(&JOBS, pushed, &mut fixture.notified);
        assert_eq!(fixture.notified(), []);
        // A read was sent since, so the write had no answer, and may have taken effect after that read.
        fixture.read(1);
        fixture.watch(1);
        fixture.subscriptions.holder(&JOBS, pushed, &mut fixture.notified);
        assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
    }
}

#[test]
fn the_push_of_another_write_during_our_own_is_news() {
    let mut fixture = Fixture::listening();
    fixture.read(1);
    fixture.watch(1);
    fixture.subscriptions.write_sent(1, 5, (None, Token::new(7)));
    fixture.subscriptions.holder(&JOBS, PushDetail::Nonce(6), &mut fixture.notified);
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
}

#[test]
fn a_push_from_before_a_write_of_our_own_is_not_news_once_we_watch_what_it_wrote() {
    let mut fixture = Fixture::listening();
    let names = (None, Token::new(7));
    let after_the_write = Watching { nonce: Some(5), names: Some(names), ..Watching::default() };
    fixture.read(1);
    // Such as the push of the bid that won the seat, which is then released.
    fixture.subscriptions.holder(&JOBS, PushDetail::Nonce(4), &mut fixture.notified);
    fixture.subscriptions.write_sent(1, 5, names);
    fixture.watch_as(1, after_the_write.clone());
    assert_eq!(fixture.notified(), []);
    fixture.subscriptions.holder(&JOBS, PushDetail::Nonce(6), &mut fixture.notified);
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
    // A push during the write is news, whatever it was.
    fixture.read(1);
    fixture.subscriptions.write_sent(1, 5, names);
    fixture.subscriptions.holder(&JOBS, PushDetail::Nonce(8), &mut fixture.notified);
    fixture.watch_as(1, after_the_write);
    assert_eq!(fixture.notified(), [(1, Notification::Holder)]);
}
