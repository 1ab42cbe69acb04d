use super::*;

const JOBS: &str = "jobs";
const MAIL: &str = "mail";

/// Two elections about one seat, and one about another.
struct Office {
    subscriptions: Subscriptions<&'static str, u32>,
    told: Vec<(u32, Notification)>,
}

impl Office {
    fn open() -> Self {
        let mut office = Self { subscriptions: Subscriptions::new(), told: Vec::new() };
        for (election, seat) in [(1, JOBS), (2, JOBS), (3, MAIL)] {
            office.subscriptions.begin(election, seat, &mut office.told);
        }
        assert_eq!(
            office.told(),
            [(1, Notification::Hears(false)), (2, Notification::Hears(false)), (3, Notification::Hears(false))]
        );
        office
    }

    /// One that listens to everything before anybody has read.
    fn listening() -> Self {
        let mut office = Self::open();
        office.listens(None);
        assert_eq!(
            office.told(),
            [(1, Notification::Hears(true)), (2, Notification::Hears(true)), (3, Notification::Hears(true))]
        );
        office
    }

    fn told(&mut self) -> Vec<(u32, Notification)> {
        std::mem::take(&mut self.told)
    }

    fn listens(&mut self, seat: Option<&'static str>) {
        self.subscriptions.listening(seat.as_ref(), &mut self.told);
    }

    fn misses(&mut self, seat: Option<&'static str>) {
        self.subscriptions.gap(seat.as_ref(), &mut self.told);
    }

    fn reads(&mut self, election: u32) {
        self.subscriptions.read_sent(election);
        self.subscriptions.read_answered(election);
    }

    fn watches(&mut self, election: u32) {
        self.watches_as(election, Watching::default());
    }

    fn watches_as(&mut self, election: u32, watching: Watching) {
        self.subscriptions.watch(election, watching, &mut self.told);
    }

    fn hears(&mut self, said: PushDetail) {
        self.subscriptions.holder(&JOBS, said, &mut self.told);
    }

    fn hears_of_a_request(&mut self) {
        self.subscriptions.request(&JOBS, &mut self.told);
    }
}

#[test]
fn a_push_wakes_those_of_its_seat_once_until_they_watch_again() {
    let mut office = Office::listening();
    for election in [1, 2, 3] {
        office.reads(election);
        office.watches(election);
    }
    office.hears(PushDetail::Nothing);
    assert_eq!(office.told(), [(1, Notification::Holder), (2, Notification::Holder)]);
    office.hears(PushDetail::Nothing);
    assert_eq!(office.told(), []);
    office.reads(1);
    office.watches(1);
    assert_eq!(office.told(), []);
    office.hears(PushDetail::Nothing);
    assert_eq!(office.told(), [(1, Notification::Holder)]);
}

#[test]
fn only_a_read_sent_after_the_store_listens_is_the_look() {
    let mut office = Office::open();
    office.subscriptions.read_sent(1);
    office.listens(Some(JOBS));
    assert_eq!(office.told(), [(1, Notification::Hears(true)), (2, Notification::Hears(true))]);
    office.subscriptions.read_answered(1);
    office.watches(1);
    assert_eq!(office.told(), [(1, Notification::Holder)]);
    office.reads(1);
    office.watches(1);
    assert_eq!(office.told(), []);
}

#[test]
fn what_is_heard_while_a_read_is_on_its_way_is_looked_for_again() {
    let mut office = Office::listening();
    office.subscriptions.read_sent(1);
    office.hears(PushDetail::Nothing);
    office.subscriptions.read_answered(1);
    office.watches(1);
    assert_eq!(office.told(), [(1, Notification::Holder)]);
}

#[test]
fn a_gap_is_told_and_what_may_have_been_missed_is_looked_for_once_it_is_over() {
    let mut office = Office::listening();
    office.reads(1);
    office.watches(1);
    office.misses(None);
    assert_eq!(
        office.told(),
        [(1, Notification::Hears(false)), (2, Notification::Hears(false)), (3, Notification::Hears(false))]
    );
    office.listens(Some(JOBS));
    assert_eq!(
        office.told(),
        [(1, Notification::Hears(true)), (1, Notification::Holder), (2, Notification::Hears(true))]
    );
    // A short gap, of which both ends are heard at once.
    office.reads(1);
    office.watches(1);
    office.misses(Some(JOBS));
    office.listens(Some(JOBS));
    let told = office.told();
    assert_eq!(told.iter().filter(|told| **told == (1, Notification::Holder)).count(), 1, "{told:?}");
}

#[test]
fn a_gap_of_one_seat_is_told_to_its_elections_alone_though_all_seats_are_listened_to() {
    let mut office = Office::listening();
    for again in [Some(JOBS), None] {
        office.reads(1);
        office.watches(1);
        office.misses(Some(JOBS));
        assert_eq!(office.told(), [(1, Notification::Hears(false)), (2, Notification::Hears(false))]);
        office.listens(again);
        assert_eq!(
            office.told(),
            [(1, Notification::Hears(true)), (1, Notification::Holder), (2, Notification::Hears(true))]
        );
        office.listens(again);
        assert_eq!(office.told(), []);
    }
}

#[test]
fn nobody_is_woken_by_what_it_has_seen() {
    let mut office = Office::listening();
    let of = |bits| Some((Some(Incarnation::from_bits(bits)), Token::new(7)));
    let watching = Watching { names: of(1), nonce: Some(11), ..Watching::default() };
    // Heard before the answer to its own bid, and after it.
    office.reads(1);
    office.hears(PushDetail::Nonce(11));
    office.watches_as(1, watching.clone());
    office.hears(PushDetail::Names(of(1)));
    assert_eq!(office.told(), []);
    office.hears(PushDetail::Names(of(2)));
    assert_eq!(office.told(), [(1, Notification::Holder)]);
    office.watches_as(1, watching);
    assert_eq!(office.told(), [(1, Notification::Holder)]);
}

#[test]
fn a_leader_is_told_of_requests_and_looks_for_them_where_it_may_have_missed_one() {
    let mut office = Office::listening();
    let leads = Watching { requests: true, ..Watching::default() };
    office.reads(1);
    office.reads(2);
    office.watches(2);
    // Listened to only after it had begun.
    office.watches_as(1, leads.clone());
    assert_eq!(office.told(), [(1, Notification::Request)]);
    office.subscriptions.board_sent(1);
    office.watches_as(1, leads.clone());
    assert_eq!(office.told(), []);
    office.hears_of_a_request();
    assert_eq!(office.told(), [(1, Notification::Request)]);
    office.hears_of_a_request();
    assert_eq!(office.told(), [], "it was told, and has not read them yet");
    // Heard while the board was being read.
    office.subscriptions.board_sent(1);
    office.hears_of_a_request();
    assert_eq!(office.told(), [(1, Notification::Request)]);
    // It goes on watching its seat meanwhile.
    assert!(office.subscriptions.wants_requests(&JOBS));
    office.hears(PushDetail::Nothing);
    assert_eq!(office.told(), [(1, Notification::Holder), (2, Notification::Holder)]);
    assert!(!office.subscriptions.wants_requests(&JOBS));
    // One that has begun later has missed none.
    office.subscriptions.begin(4, JOBS, &mut office.told);
    office.reads(4);
    office.watches_as(4, leads);
    assert_eq!(office.told(), [(4, Notification::Hears(true))]);
    assert!(office.subscriptions.wants_requests(&JOBS));
}

#[test]
fn the_end_of_a_session_is_told_to_who_leads_on_it_and_to_who_waits_for_it() {
    let mut office = Office::listening();
    let on = |name: &str, own| Watching { session: Some(SessionId::new(name)), own, ..Watching::default() };
    for election in [1, 2, 3] {
        office.reads(election);
    }
    office.watches_as(1, on("ours", true));
    office.watches_as(2, on("ours", false));
    office.watches_as(3, on("theirs", false));
    // Even if it does not watch just now.
    office.hears(PushDetail::Nothing);
    assert_eq!(office.told(), [(1, Notification::Holder), (2, Notification::Holder)]);
    office.subscriptions.session_over(&SessionId::new("nobody's"), &mut office.told);
    assert_eq!(office.told(), []);
    office.subscriptions.session_over(&SessionId::new("ours"), &mut office.told);
    office.subscriptions.session_over(&SessionId::new("theirs"), &mut office.told);
    assert_eq!(office.told(), [(1, Notification::SessionOver), (3, Notification::Holder)]);
}

#[test]
fn the_end_of_a_session_that_was_heard_before_it_is_watched_is_told_then() {
    let mut office = Office::listening();
    let on = |name: &str, own| Watching { session: Some(SessionId::new(name)), own, ..Watching::default() };
    let (ours, theirs) = (SessionId::new("ours"), SessionId::new("theirs"));
    // Both reads were sent while the sessions lived.
    office.subscriptions.read_sent(1);
    office.subscriptions.read_sent(2);
    for session in [&ours, &theirs] {
        assert!(!office.subscriptions.is_over(session));
        office.subscriptions.session_over(session, &mut office.told);
    }
    assert!(office.subscriptions.is_over(&ours) && office.subscriptions.is_over(&theirs));
    office.subscriptions.read_answered(1);
    office.subscriptions.read_answered(2);
    office.watches_as(1, on("ours", true));
    office.watches_as(2, on("theirs", false));
    assert_eq!(office.told(), [(1, Notification::SessionOver), (2, Notification::Holder)]);
    // What is read after that is the store's own word.
    office.reads(2);
    office.watches_as(2, on("theirs", false));
    assert_eq!(office.told(), []);
}

#[test]
fn not_all_sessions_that_have_ever_ended_are_remembered() {
    let mut office = Office::listening();
    let name = |number: usize| SessionId::new(number.to_string());
    for number in 0..=REMEMBERED {
        office.subscriptions.session_over(&name(number), &mut office.told);
    }
    assert!(!office.subscriptions.is_over(&name(0)) && office.subscriptions.is_over(&name(1)));
    assert_eq!(office.subscriptions.over.len(), REMEMBERED);
}

#[test]
fn nothing_is_kept_of_elections_that_have_ended() {
    let mut office = Office::listening();
    assert_eq!(office.subscriptions.end(1), None);
    assert_eq!(office.subscriptions.end(2), Some(JOBS));
    assert!(!office.subscriptions.holder(&JOBS, PushDetail::Nothing, &mut office.told));
    assert!(!office.subscriptions.request(&JOBS, &mut office.told));
    assert_eq!((office.subscriptions.seats.len(), office.subscriptions.elections.len()), (1, 1));
}
