//! The election of one candidate, as a function of inputs and time.
//!
//! ```text
//!   Start, Wake, Read, Written,          Read, Swap, Renew                 calls, one at a time
//!   Changed, Requests, Roster,  Machine  ReadBoard, ReadRoster, Ask        the board, beside them
//!   Health, Bid, StepDown,     ───────▶  Watch, WakeAt                     what to wait for
//!   Transfer, Release,          step()   Began, Extended, Ending, Ended,   what to tell
//!   Drained, Stop                        Overran, Leader, Fit, …
//!
//!             Done with time left                 time, loss, wish
//!   Following ──────────────────▶ Leading ──────────────────────────▶ Ending
//!       ▲                                                               │ drained, or out of time
//!       └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! A step first lets time take effect (`on_time`), so that no answer revives what time has ended;
//! then takes in the input, which changes what is known; then decides what to do next (`proceed`)
//! from what is known alone.
//!
//! - here: the stages, time, wishes
//! - `machine/term.rs`: how a term begins and ends
//! - `machine/answers.rs`: what the store's answers mean, done, lost, failed or unknown
//! - `machine/next.rs`: what to do next: look, bid, renew, give up the seat, stop
//! - `machine/precedence.rs`: whose turn it is: heirs and priorities
//! - `machine/fitness.rs`: whether it is well enough to lead
//! - `machine/outputs.rs`: who leads, what to watch, when to wake
//! - `observation.rs`: when the seat may be taken

mod answers;
mod fitness;
mod next;
mod outputs;
mod precedence;
mod term;

use self::fitness::Fitness;
use self::precedence::Turn;
use crate::observation::Observation;
use crate::{
    Action, Bid, Candidate, Change, Dice, EndReason, Fault, Identity, Incarnation, Input, Moment, Record, Rules,
    Stopped, Token, Version,
};

/// The election of one candidate. It neither waits nor reads a clock: see [`Machine::step`].
#[derive(Debug)]
pub struct Machine {
    me: Candidate,
    rules: Rules,
    dice: Dice,
    stage: Stage,
    observation: Observation,
    fitness: Fitness,
    turn: Turn,

    /// The one call to the store that is under way.
    call: Option<Call>,
    /// The seat names us, as far as we know, though no term of ours runs.
    ours: Option<Ours>,
    /// The outcome of a write of ours is not known before the seat was read.
    doubt: bool,
    /// The last write was a renewal, and was lost. Not one that writes the record anew: every store matches that by
    /// version.
    lost_renewal: bool,
    /// When a write that may name us was last sent.
    wrote_at: Moment,
    /// Since when nothing has kept us from leaving the seat: a stop tries for a lease from then on.
    leaving_since: Moment,
    /// The highest token that a term of ours has begun with.
    led: Token,
    /// Tokens up to this one begin no term any more: led before, in the seat before this election first read it, or
    /// doubtful since something was lost.
    used: Token,

    /// Work of a term that is over has not returned: until it has, we neither stand nor give up
    /// the seat.
    undrained: Option<Undrained>,
    /// The user has asked for one bid.
    bidding: bool,
    /// We stepped down: another goes first.
    held_back: Option<HeldBack>,
    stopping: Option<Stopped>,
    /// It has stopped for its users, and goes on only to give up a seat that would not lapse.
    leaving: bool,
    told_stopped: bool,

    /// When to look at the seat next; `None`: not decided yet.
    look_at: Option<Moment>,
    /// No calls before this.
    paused_until: Moment,
    /// Writes have failed more than once, and no pause was made since the last one.
    hurried: bool,
    /// Writes in a row that did not succeed, and calls in a row that failed.
    setbacks: u32,
    faults: u32,
    failing: Option<Fault>,
    /// When the first of these calls failed.
    failing_since: Option<Moment>,
    /// The last write failed. Readings that work do not make up for it.
    writes_fail: bool,
    /// The store was seen to match renewals by version, not by holder and term.
    by_version: bool,

    /// Nothing is heard from the store for now, so changes are looked for.
    deaf: bool,
    watched: Option<Watched>,
    /// The watch has told news, which were not looked at yet.
    news: bool,
    /// It tells nothing more before it is asked for again.
    spent: bool,
    watch_at: Moment,
    /// News that turn out to be none before this have the next watch wait.
    calm_at: Moment,
    board: Board,
    told_leader: Option<(Incarnation, Token)>,
    told_wake: Option<Moment>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Following,
    Leading(Hold),
    Ending(Hold, End),
    Stopped,
}

/// A term, and what it stands on.
#[derive(Clone, Debug)]
struct Hold {
    token: Token,
    version: Version,
    deadline: Moment,
    /// When it is to be renewed.
    renew_at: Moment,
    /// When this was last answered: a renewal that proves nothing newer is not asked again at once.
    kept_at: Moment,
}

#[derive(Clone, Copy, Debug)]
struct End {
    why: EndReason,
    by: Moment,
}

#[derive(Clone, Debug)]
struct Ours {
    token: Token,
    version: Version,
    over: bool,
    /// Its user wanted to let go of it, even if the candidate stands by itself.
    let_go: bool,
}

#[derive(Clone, Copy, Debug)]
struct Undrained {
    token: Token,
    since: Moment,
    told: bool,
}

#[derive(Clone, Copy, Debug)]
struct HeldBack {
    until: Moment,
    /// Seeing a term after this one ends it.
    after: Token,
}

#[derive(Debug)]
struct Call {
    kind: Kind,
    sent: Moment,
}

/// What is written is kept apart: there may be very many machines, and most wait.
#[derive(Debug)]
enum Kind {
    Read,
    Bid(Box<Record>),
    /// And whether the record is written anew, not just kept.
    Renew(Box<Record>, bool),
    Vacate(Box<Record>),
}

/// What a watch was asked for: the holder and term last seen, and whether requests matter.
#[derive(Debug, PartialEq, Eq)]
struct Watched {
    holder: Option<Incarnation>,
    token: Option<Token>,
    requests: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Board {
    Unread,
    SeatInterest,
    Reading,
    /// It is being read, and something came up that this may miss.
    ReadingAndWanted,
}

impl Machine {
    /// A machine for this candidate. Its randomness comes from the seed alone; candidates must not
    /// share one, as it tells their writes apart.
    pub fn new(me: Candidate, rules: Rules, seed: u64) -> Self {
        Self {
            observation: Observation::new(me.incarnation),
            led: Token::ZERO,
            used: Token::ZERO,
            me,
            rules,
            dice: Dice::new(seed),
            stage: Stage::Idle,
            fitness: Fitness::new(),
            turn: Turn::new(),
            call: None,
            ours: None,
            doubt: false,
            lost_renewal: false,
            wrote_at: Moment::ORIGIN,
            leaving_since: Moment::ORIGIN,
            undrained: None,
            bidding: false,
            held_back: None,
            stopping: None,
            leaving: false,
            told_stopped: false,
            look_at: None,
            paused_until: Moment::ORIGIN,
            hurried: false,
            setbacks: 0,
            faults: 0,
            failing: None,
            failing_since: None,
            writes_fail: false,
            by_version: false,
            deaf: false,
            watched: None,
            news: false,
            spent: false,
            watch_at: Moment::ORIGIN,
            calm_at: Moment::ORIGIN,
            board: Board::Unread,
            told_leader: None,
            told_wake: None,
        }
    }

    /// Takes in what happened, as of `now`, and appends what is to be done to `out`.
    ///
    /// `now` must not go back. The moment at which a call is asked for counts as its sending, the
    /// moment at which its answer comes in as its receipt: both err on the safe side.
    pub fn step(&mut self, now: Moment, input: Input, out: &mut Vec<Action>) {
        if matches!(self.stage, Stage::Stopped) {
            return;
        }
        let (told_stopped, before) = (self.told_stopped, out.len());
        self.on_time(now, out);
        let looked = self.take_in(now, input, out);
        self.on_time(now, out);
        self.proceed(now, looked, out);
        self.tell(now, out);
        if told_stopped {
            // Its users were told that nothing more will come.
            let asked = out.split_off(before);
            let is_for_store = |a: &Action| matches!(a, Action::Read | Action::Swap { .. } | Action::WakeAt(_));
            out.extend(asked.into_iter().filter(is_for_store));
        }
    }

    /// Whether there is nothing left for it to do. Not always when it says [`Action::Stopped`]: it may have a seat
    /// to give up, which it does as soon as the store answers.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Stopped)
    }

    /// The identity of the data that the seat was last read from.
    pub fn identity(&self) -> Option<&Identity> {
        self.observation.identity()
    }

    /// How this candidate behaves.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The term that may be counted on at this moment.
    pub fn term(&self, now: Moment) -> Option<Token> {
        match &self.stage {
            Stage::Leading(hold) if now < hold.deadline => Some(hold.token),
            _ => None,
        }
    }

    fn on_time(&mut self, now: Moment, out: &mut Vec<Action>) {
        let drain = self.rules.timing.drain();
        if let Stage::Leading(hold) = &self.stage
            && now >= hold.deadline - drain
        {
            let by = hold.deadline;
            self.end(EndReason::NotRenewed, by, out);
        }
        if let Stage::Ending(hold, end) = &self.stage
            && now >= end.by.min(hold.deadline)
        {
            self.finish(now, false, out);
        }
        let slack = self.rules.timing.overrun_slack();
        if let Some(undrained) = &mut self.undrained
            && !undrained.told
            && now >= undrained.since + slack
        {
            undrained.told = true;
            out.push(Action::Overran { token: undrained.token });
        }
        if self.held_back.is_some_and(|held| now >= held.until) {
            self.held_back = None;
        }
        self.let_recover(now, out);
    }

    /// Returns whether the seat was looked at just now: only then may it be bid for.
    fn take_in(&mut self, now: Moment, input: Input, out: &mut Vec<Action>) -> bool {
        match input {
            Input::Start => {
                if matches!(self.stage, Stage::Idle) {
                    self.stage = Stage::Following;
                    self.turn.unsettle(now);
                    self.look_at = Some(now);
                }
            }
            Input::Wake => self.told_wake = None,
            Input::Read(answer) => return self.on_read(now, answer, out),
            Input::Written(answer) => self.on_written(now, answer, out),
            Input::Changed(change) => {
                self.news = true;
                if change != Change::Request {
                    self.look_at = Some(now);
                }
                if change == Change::SessionOver {
                    self.end_at_once(now, EndReason::SessionOver, out);
                } else if matches!(self.stage, Stage::Leading(_)) {
                    self.want_board();
                }
            }
            Input::Hears(hears) => {
                if std::mem::replace(&mut self.deaf, !hears) == hears && !self.holds() && self.call.is_none() {
                    // When to look next depends on it.
                    self.look_at = self.look_at.filter(|at| now >= *at);
                }
            }
            Input::Requests(requests) => {
                match self.board {
                    Board::ReadingAndWanted if matches!(self.stage, Stage::Leading(_)) => {
                        self.board = Board::SeatInterest
                    }
                    Board::Reading | Board::ReadingAndWanted => self.board = Board::Unread,
                    Board::Unread | Board::SeatInterest => {}
                }
                requests.into_iter().for_each(|request| self.on_request(now, request, out));
            }
            Input::Roster(roster) => self.on_roster(now, &roster),
            Input::Health(score) => self.on_health(now, score, out),
            Input::Bid => self.on_bid(now, out),
            Input::Release => self.end_on_request(now, EndReason::Released, out),
            Input::StepDown => self.hand_over(now, None, out),
            Input::Transfer(heir) => self.hand_over(now, Some(heir), out),
            Input::Drained(token) => match &self.stage {
                Stage::Ending(hold, _) if hold.token == token => self.finish(now, true, out),
                _ => {
                    if self.undrained.is_some_and(|undrained| undrained.token == token) {
                        self.undrained = None;
                        self.leaving_since = now;
                        self.look_at = Some(now);
                    }
                }
            },
            Input::Stop => {
                if self.stopping.is_none() {
                    self.stopping = Some(Stopped::Asked);
                    self.leaving_since = now;
                    self.settle_bid(Bid::Taken, out);
                    self.end_on_request(now, EndReason::Stopped, out);
                }
            }
        }
        false
    }

    fn on_bid(&mut self, now: Moment, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Leading(hold) if now < hold.deadline => out.push(Action::BidSettled(Bid::Won(hold.token))),
            Stage::Following if self.may_stand() => {
                self.bidding = true;
                self.look_at = Some(now);
            }
            _ => out.push(Action::BidSettled(Bid::Taken)),
        }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
