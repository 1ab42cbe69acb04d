//! The election of one candidate, as a function of inputs and time.
//!
//! ```text
//!   Start, Wake, Read, Written,          Read, Swap, Renew                 calls, one at a time
//!   Changed, Requests, Roster,  Machine  ReadBoard, ReadRoster, Ask        the board, independently
//!   Health, Bid, StepDown,     ───────▶  Watch, WakeAt                     what to wait for
//!   Transfer, Release,          step()   Began, Extended, Ending, Ended,   reports
//!   Drained, Stop                        Overran, Leader, Fit, …
//!
//!             Done with time left               time, loss, request
//!   Following ──────────────────▶ Leading ──────────────────────────▶ Ending
//!       ▲                                                               │ drained, or out of time
//!       └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! A step has three parts. First, time takes effect (`on_time`), so that no answer revives a term that time has
//! ended. Then the step takes in the input, which changes what the machine knows. Last, it decides what to do next
//! (`proceed`), from what the machine knows alone.
//!
//! - this file: the stages, time, requests of the user
//! - `machine/term.rs`: how a term begins and ends
//! - `machine/answers.rs`: what the answers of the store mean: done, lost, failed or unknown
//! - `machine/next.rs`: the next action: look, bid, renew, release the seat, or stop
//! - `machine/precedence.rs`: which candidate goes first: heirs and priorities
//! - `machine/claims.rs`: occasions that one candidate claims for all
//! - `machine/fitness.rs`: whether the candidate is healthy enough to lead
//! - `machine/outputs.rs`: reports of the leader, watches and wakes
//! - `observation.rs`: when the seat may be taken

mod answers;
mod claims;
mod fitness;
mod next;
mod outputs;
mod precedence;
mod term;

use std::sync::Arc;
use std::time::Duration;

use self::claims::Claims;
use self::fitness::Fitness;
use self::precedence::Precedence;
use crate::observation::Observation;
use crate::{
    Action, Bid, Candidate, Change, DataIdentity, Dice, EndReason, Fault, Incarnation, Input, Moment, Record, Rules,
    Stopped, Token, Version,
};

/// The election of one candidate. It never waits and never reads a clock: the caller drives it with
/// [`Machine::step`].
#[derive(Debug)]
pub struct Machine {
    me: Candidate,
    /// Shared by all machines with the same rules, because a process can have very many.
    rules: Arc<Rules>,
    dice: Dice,
    stage: Stage,
    observation: Observation,
    fitness: Fitness,
    precedence: Precedence,

    /// The one call to the store that is in flight.
    call: Option<Call>,
    /// The seat names this candidate, as far as is known, although it has no term.
    ours: Option<Ours>,
    /// The outcome of a write is unknown until the seat has been read.
    doubt: bool,
    /// The last write was a renewal, and its condition did not hold. Rewrites of the record do not count: every
    /// store matches them by version.
    lost_renewal: bool,
    /// When a write that may name this candidate was last sent.
    wrote_at: Moment,
    /// When the last obstacle to releasing the seat went away. A stop tries to release it for a lease from then
    /// on.
    leaving_since: Moment,
    /// The highest token with which a term of this machine has begun.
    led: Token,
    /// No term begins with a token up to this one: it was led before, was in the seat when this election first
    /// read it, or became doubtful when the store lost data.
    used: Token,

    /// The occasion that this candidate claims, and what it knows about claims.
    claims: Claims,
    /// The work of a term that is over has not returned. Until it has, the candidate neither stands nor
    /// releases the seat.
    undrained: Option<Undrained>,
    /// The user has asked for one bid.
    bidding: bool,
    /// The candidate stepped down, so another candidate goes first.
    held_back: Option<HeldBack>,
    stopping: Option<Stopped>,
    /// The election has stopped for its users. It goes on only to release a seat that would not lapse.
    leaving: bool,
    reported_stopped: bool,

    /// When to look at the seat next. `None`: not decided yet.
    look_at: Option<Moment>,
    /// No call is made before this moment.
    paused_until: Moment,
    /// Writes have failed more than once, and the pause after the last one is still due.
    pause_due: bool,
    /// Writes in a row that did not succeed, and calls in a row that failed.
    setbacks: u32,
    faults: u32,
    failing: Option<Fault>,
    /// When the first of these calls failed.
    failing_since: Option<Moment>,
    /// The last write failed. Reads that succeed do not change that.
    writes_fail: bool,
    /// The store has been seen to match renewals by version, not by holder and term.
    by_version: bool,

    /// Pushes do not arrive at present, so the candidate looks for changes itself.
    push_down: bool,
    watched: Option<Watched>,
    /// The watch has reported a change that has not been looked at yet.
    news: bool,
    /// The watch has fired, and reports nothing until it is requested again.
    spent: bool,
    watch_at: Moment,
    /// The spurious notifications so far, each soon after the one before; one after this moment is the first again.
    spurious: u32,
    spurious_until: Moment,
    board: BoardRead,
    reported_leader: Option<(Incarnation, Token)>,
    /// The token of the last crash that was reported, or was history at the first read.
    reported_crash: Option<Token>,
    reported_wake: Option<Moment>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Following,
    Leading(Hold),
    Ending(Hold, End),
    Stopped,
}

/// A term, and the write that it rests on.
#[derive(Clone, Debug)]
struct Hold {
    token: Token,
    version: Version,
    deadline: Moment,
    /// When the next renewal is due.
    renew_at: Moment,
    /// When the last renewal was answered. It keeps a renewal that proves nothing newer from being repeated at
    /// once.
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
    /// The user released the seat, so it is released even if the candidate stands on its own.
    let_go: bool,
}

#[derive(Clone, Copy, Debug)]
struct Undrained {
    token: Token,
    since: Moment,
    reported: bool,
}

#[derive(Clone, Copy, Debug)]
struct HeldBack {
    until: Moment,
    /// A term with a higher token ends the hold-back.
    after: Token,
}

#[derive(Debug)]
struct Call {
    kind: Kind,
    sent: Moment,
}

/// Records are boxed because a process can have very many machines, most of which have no call in flight.
#[derive(Debug)]
enum Kind {
    Read,
    Bid(Box<Record>),
    /// The flag is set if the whole record is rewritten, not just kept.
    Renew(Box<Record>, bool),
    Vacate(Box<Record>),
}

/// The subject of the current watch: the holder and term last seen, and whether requests matter.
#[derive(Debug, PartialEq, Eq)]
struct Watched {
    holder: Option<Incarnation>,
    token: Option<Token>,
    requests: bool,
}

/// Whether the requests on the board must be read.
#[derive(Debug, PartialEq, Eq)]
enum BoardRead {
    Unread,
    Wanted,
    Reading,
    /// A read is in flight, and a later request that it may miss needs another read.
    ReadingAndWanted,
}

impl Machine {
    /// Creates the machine of one candidate. All its randomness comes from `seed`. Candidates must not share a
    /// seed, because the random nonces tell their writes apart.
    pub fn new(me: Candidate, rules: impl Into<Arc<Rules>>, seed: u64) -> Self {
        Self {
            observation: Observation::new(me.incarnation),
            led: Token::ZERO,
            used: Token::ZERO,
            me,
            rules: rules.into(),
            dice: Dice::new(seed),
            stage: Stage::Idle,
            fitness: Fitness::new(),
            precedence: Precedence::new(),
            call: None,
            ours: None,
            doubt: false,
            lost_renewal: false,
            wrote_at: Moment::ORIGIN,
            leaving_since: Moment::ORIGIN,
            claims: Claims::default(),
            undrained: None,
            bidding: false,
            held_back: None,
            stopping: None,
            leaving: false,
            reported_stopped: false,
            look_at: None,
            paused_until: Moment::ORIGIN,
            pause_due: false,
            setbacks: 0,
            faults: 0,
            failing: None,
            failing_since: None,
            writes_fail: false,
            by_version: false,
            push_down: false,
            watched: None,
            news: false,
            spent: false,
            watch_at: Moment::ORIGIN,
            spurious: 0,
            spurious_until: Moment::ORIGIN,
            board: BoardRead::Unread,
            reported_leader: None,
            reported_crash: None,
            reported_wake: None,
        }
    }

    /// Takes in one input at the time `now`, and appends the resulting actions to `out`.
    ///
    /// `now` must not go back. The moment at which a step returns a call counts as its send, and the moment at
    /// which a step takes in the answer counts as its receipt. The real send is later and the real receipt
    /// earlier, so both err on the safe side.
    ///
    /// # Panics
    /// If an answer arrives that was not asked for: the caller has a bug.
    pub fn step(&mut self, now: Moment, input: Input, out: &mut Vec<Action>) {
        if matches!(self.stage, Stage::Stopped) {
            return;
        }
        let (reported_stopped, before) = (self.reported_stopped, out.len());
        self.on_time(now, out);
        let looked = self.take_in(now, input, out);
        self.on_time(now, out);
        self.proceed(now, looked, out);
        self.report(now, out);
        if reported_stopped {
            // The users have been notified of the stop, so only actions for the store remain.
            let asked = out.split_off(before);
            let is_for_store = |a: &Action| matches!(a, Action::Read | Action::Swap { .. } | Action::WakeAt(_));
            out.extend(asked.into_iter().filter(is_for_store));
        }
    }

    /// Returns whether the machine has nothing left to do. That can be later than [`Action::Stopped`]: a
    /// machine whose seat does not lapse goes on until the store has answered its release.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Stopped)
    }

    /// Returns the identity of the data that the seat was last read from.
    pub fn identity(&self) -> Option<&DataIdentity> {
        self.observation.identity()
    }

    /// Returns the rules by which this candidate takes part in the election.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the token of the term that this candidate leads at `now`, if it leads. It reads no answer and
    /// waits for nothing: only the deadline counts.
    pub fn term(&self, now: Moment) -> Option<Token> {
        match &self.stage {
            Stage::Leading(hold) if now < hold.deadline => Some(hold.token),
            _ => None,
        }
    }

    /// Returns how long this candidate still leaves the seat to others, because it has stepped down.
    pub fn held_back_for(&self, now: Moment) -> Option<Duration> {
        self.held_back.map(|held| held.until.since(now))
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
            && !undrained.reported
            && now >= undrained.since + slack
        {
            undrained.reported = true;
            out.push(Action::Overran { token: undrained.token });
        }
        if self.held_back.is_some_and(|held| now >= held.until) {
            self.held_back = None;
        }
        self.recover_fitness(now, out);
    }

    /// Returns whether the input shows the seat as it is: a successful read, a release that was pushed, or the end of the
    /// holder's session. Only right after that may the candidate bid.
    fn take_in(&mut self, now: Moment, input: Input, out: &mut Vec<Action>) -> bool {
        match input {
            Input::Start => {
                if matches!(self.stage, Stage::Idle) {
                    self.stage = Stage::Following;
                    self.precedence.unsettle(now);
                    self.look_at = Some(now);
                }
            }
            Input::Wake => self.reported_wake = None,
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
            Input::Released(release) => {
                return self.on_pushed(now, |observation| observation.released(now, &release));
            }
            Input::HolderOver => return self.on_pushed(now, |observation| observation.holder_over(now)),
            Input::Listening(listening) => {
                if std::mem::replace(&mut self.push_down, !listening) == listening
                    && !self.holds()
                    && self.call.is_none()
                {
                    // The next look depends on whether pushes arrive.
                    self.look_at = self.look_at.filter(|at| now >= *at);
                }
            }
            Input::Requests(requests) => {
                match self.board {
                    BoardRead::ReadingAndWanted if matches!(self.stage, Stage::Leading(_)) => {
                        self.board = BoardRead::Wanted
                    }
                    BoardRead::Reading | BoardRead::ReadingAndWanted => self.board = BoardRead::Unread,
                    BoardRead::Unread | BoardRead::Wanted => {}
                }
                requests.into_iter().for_each(|request| self.on_request(now, request, out));
            }
            Input::Roster(roster) => self.on_roster(now, &roster),
            Input::Health(score) => self.on_health(now, score, out),
            Input::Bid => self.on_bid(now, out),
            Input::Release => self.end_on_request(now, EndReason::Released, out),
            Input::Yield => {
                self.claims.done = self.term(now).or(self.claims.done);
                self.end_on_request(now, EndReason::Yielded, out);
            }
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

    /// Takes in a push that can replace a read. Returns whether it does; if not, the seat is read next.
    fn on_pushed(&mut self, now: Moment, take_in: impl FnOnce(&mut Observation) -> bool) -> bool {
        self.news = true;
        let is_idle = matches!(self.stage, Stage::Following) && self.call.is_none();
        let is_certain = !self.doubt && !self.pause_due && now >= self.paused_until;
        let replaces_a_read = is_idle && is_certain && take_in(&mut self.observation);
        self.look_at = (!replaces_a_read).then_some(now);
        replaces_a_read
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
