//! The election of one candidate, as a function of inputs and time.
//!
//! ```text
//!   Start, Wake, Read, Written,          Read, Swap, Renew, ReadBoard      calls, one at a time
//!   Changed, Requests, Bid,     Machine  Watch, WakeAt                     what to wait for
//!   StepDown, Release,         ───────▶  Began, Extended, Ending, Ended,   what to tell
//!   Drained, Stop               step()   Overran, Leader, BidSettled, …
//!
//!             Done with time left                 time, loss, wish
//!   Following ──────────────────▶ Leading ──────────────────────────▶ Ending
//!       ▲                                                               │ drained, or out of time
//!       └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! A step first lets time take effect (`on_time`), so that no answer revives what time has ended;
//! then takes in the input, which changes what is known; then decides what to do next (`proceed`)
//! from what is known alone. When the seat may be taken is decided in `sight.rs`.

use crate::sight::{Free, Sight};
use crate::{
    Action, Bid, Candidate, Change, Dice, Fault, Input, Leader, Life, Moment, Push, Reading, Record, Request, Rules,
    Seat, Stopped, Swap, Token, Version, Why,
};

/// The election of one candidate. It neither waits nor reads a clock: see [`Machine::step`].
#[derive(Debug)]
pub struct Machine {
    me: Candidate,
    rules: Rules,
    dice: Dice,
    stage: Stage,
    sight: Sight,

    /// The one call to the store that is under way.
    call: Option<Call>,
    /// The seat names us, as far as we know, though no term of ours runs.
    ours: Option<Ours>,
    /// The outcome of a write of ours is not known before the seat was read.
    doubt: bool,
    /// When a write that may name us was last sent.
    wrote_at: Moment,
    /// The highest token that a term of ours has begun with.
    led: Token,

    /// Work of a term that is over has not returned: until it has, we neither stand nor give up
    /// the seat.
    undrained: Option<Undrained>,
    /// The user has asked for one bid.
    bidding: bool,
    /// We stepped down: another goes first.
    held_back: Option<HeldBack>,
    stopping: Option<Stopped>,

    /// When to look at the seat next; `None`: not decided yet.
    look_at: Option<Moment>,
    /// No calls before this.
    paused_until: Moment,
    /// Writes in a row that did not succeed, and calls in a row that failed.
    setbacks: u32,
    faults: u32,
    failing: Option<Fault>,

    watched: Option<Watched>,
    /// The watch has told news and is spent.
    news: bool,
    watch_at: Moment,
    board: Board,
    told_leader: Option<(Candidate, Token)>,
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
    /// The moment that the deadline counts from.
    since: Moment,
    deadline: Moment,
    /// False once the seat was found missing.
    renewing: bool,
}

#[derive(Clone, Copy, Debug)]
struct End {
    why: Why,
    by: Moment,
}

#[derive(Clone, Debug)]
struct Ours {
    token: Token,
    version: Version,
    over: bool,
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

#[derive(Debug)]
enum Kind {
    Read,
    Bid(Record),
    Renew(Record),
    Vacate(Record),
}

/// What a watch was asked for: the holder and term last seen, and whether requests matter.
#[derive(Debug, PartialEq, Eq)]
struct Watched {
    holder: Option<Candidate>,
    token: Option<Token>,
    requests: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Board {
    Unread,
    Wanted,
    Reading,
}

impl Machine {
    /// A machine for this candidate. Its randomness comes from the seed alone; candidates must not
    /// share one, as it tells their writes apart.
    pub fn new(me: Candidate, rules: Rules, seed: u64) -> Self {
        Self {
            me,
            rules,
            dice: Dice::new(seed),
            stage: Stage::Idle,
            sight: Sight::new(),
            call: None,
            ours: None,
            doubt: false,
            wrote_at: Moment::ORIGIN,
            led: Token::ZERO,
            undrained: None,
            bidding: false,
            held_back: None,
            stopping: None,
            look_at: None,
            paused_until: Moment::ORIGIN,
            setbacks: 0,
            faults: 0,
            failing: None,
            watched: None,
            news: false,
            watch_at: Moment::ORIGIN,
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
        self.on_time(now, out);
        let looked = self.take_in(now, input, out);
        self.on_time(now, out);
        self.proceed(now, looked, out);
        self.tell(now, out);
    }

    /// The term that may be counted on at this moment.
    pub fn term(&self, now: Moment) -> Option<Token> {
        match &self.stage {
            Stage::Leading(hold) if now < hold.deadline => Some(hold.token),
            _ => None,
        }
    }

    // ---------------------------------------------------------------------------------------
    // Time

    fn on_time(&mut self, now: Moment, out: &mut Vec<Action>) {
        let drain = self.rules.timing.drain();
        if let Stage::Leading(hold) = &self.stage
            && now >= hold.deadline - drain
        {
            let by = hold.deadline;
            self.end(Why::NotRenewed, by, out);
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
    }

    // ---------------------------------------------------------------------------------------
    // Input. Returns whether the seat was looked at just now: only then may it be bid for.

    fn take_in(&mut self, now: Moment, input: Input, out: &mut Vec<Action>) -> bool {
        match input {
            Input::Start => {
                if matches!(self.stage, Stage::Idle) {
                    self.stage = Stage::Following;
                    self.look_at = Some(now);
                }
            }
            Input::Wake => self.told_wake = None,
            Input::Read(answer) => return self.on_read(now, answer, out),
            Input::Written(answer) => self.on_written(now, answer, out),
            Input::Changed(change) => {
                self.news = true;
                self.look_at = Some(now);
                if change == Change::SessionOver {
                    self.end_at_once(now, Why::SessionOver, out);
                } else if matches!(self.stage, Stage::Leading(_)) {
                    self.want_board();
                }
            }
            Input::Requests(requests) => {
                if self.board == Board::Reading {
                    self.board = Board::Unread;
                }
                for Request::StepDown { token } in requests {
                    if self.term(now) == Some(token) {
                        self.end_on_request(now, Why::SteppedDown, out);
                    }
                }
            }
            Input::Bid => self.on_bid(now, out),
            Input::Release => self.end_on_request(now, Why::Released, out),
            Input::StepDown => self.end_on_request(now, Why::SteppedDown, out),
            Input::Drained(token) => match &self.stage {
                Stage::Ending(hold, _) if hold.token == token => self.finish(now, true, out),
                _ => {
                    if self.undrained.is_some_and(|undrained| undrained.token == token) {
                        self.undrained = None;
                        self.look_at = Some(now);
                    }
                }
            },
            Input::Stop => {
                if self.stopping.is_none() {
                    self.stopping = Some(Stopped::Asked);
                    self.settle_bid(Bid::Taken, out);
                    self.end_on_request(now, Why::Stopped, out);
                }
            }
        }
        false
    }

    fn on_bid(&mut self, now: Moment, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Leading(hold) if now < hold.deadline => out.push(Action::BidSettled(Bid::Won(hold.token))),
            Stage::Following if self.stopping.is_none() && self.undrained.is_none() && self.held_back.is_none() => {
                self.bidding = true;
                self.look_at = Some(now);
            }
            _ => out.push(Action::BidSettled(Bid::Taken)),
        }
    }

    fn on_read(&mut self, now: Moment, answer: Result<Reading, Fault>, out: &mut Vec<Action>) -> bool {
        let Some(Call { kind: Kind::Read, sent }) = self.call.take() else {
            unreachable!("a reading came in that was not asked for");
        };
        let reading = match answer {
            Ok(reading) => reading,
            Err(fault) => {
                self.on_fault(now, fault, true, out);
                self.settle_bid(Bid::Failed(fault), out);
                if let Stage::Leading(hold) | Stage::Ending(hold, _) = &self.stage
                    && hold.renewing
                {
                    // The next renewal asks the same question.
                    self.doubt = false;
                    self.look_at = None;
                } else {
                    self.look_at = Some(now);
                }
                return false;
            }
        };
        self.on_answer(out);
        self.doubt = false;
        self.look_at = None;
        self.sight.read(sent, now, reading, &self.rules.timing);

        let seat = self.sight.seat();
        if self.held_back.is_some_and(|held| seat.is_some_and(|seat| seat.record.token > held.after)) {
            self.held_back = None;
        }
        match &mut self.stage {
            Stage::Leading(hold) | Stage::Ending(hold, _) => match seat {
                Some(seat) if seat.record.is_held_by(self.me.incarnation) && seat.record.token == hold.token => {
                    // A reading never extends the hold: it only tells which version to renew.
                    hold.version = seat.version.clone();
                    if seat.life == Life::Over {
                        self.end_at_once(now, Why::SessionOver, out);
                    }
                }
                Some(_) => self.end_at_once(now, Why::SeatLost, out),
                None => hold.renewing = false,
            },
            Stage::Following => {
                self.ours = seat.filter(|seat| seat.record.is_held_by(self.me.incarnation)).map(|seat| Ours {
                    token: seat.record.token,
                    version: seat.version.clone(),
                    over: seat.life == Life::Over,
                });
            }
            Stage::Idle | Stage::Stopped => {}
        }
        true
    }

    fn on_written(&mut self, now: Moment, answer: Result<Swap, Fault>, out: &mut Vec<Action>) {
        let Some(Call { kind, sent }) = self.call.take() else {
            unreachable!("an answer came in to a write that was not asked for");
        };
        match answer {
            Ok(Swap::Done { version, since, granted }) => {
                self.on_answer(out);
                self.setbacks = 0;
                let lease = granted.map_or(self.rules.timing.lease(), |granted| granted.min(self.rules.timing.lease()));
                // Counted from the send, or from the send of the heartbeat that the seat stands on.
                let since = since.map_or(sent, |since| since.min(sent));
                let deadline = since + self.rules.timing.hold_of(lease);
                match kind {
                    Kind::Bid(record) | Kind::Renew(record) => {
                        self.on_kept(now, record, version, since, deadline, out);
                    }
                    Kind::Vacate(record) => {
                        self.ours = None;
                        self.look_at = None;
                        self.sight.wrote(now, Seat { record, version, life: Life::Observe });
                    }
                    Kind::Read => unreachable!("a read was answered as a write"),
                }
            }
            Ok(Swap::Lost) => {
                self.on_answer(out);
                self.on_setback(now);
                if matches!(kind, Kind::Bid(_)) {
                    self.settle_bid(Bid::Taken, out);
                }
            }
            Err(Fault::Unknown) => {
                self.on_setback(now);
                self.on_fault(now, Fault::Unknown, false, out);
            }
            Err(fault) => {
                self.on_fault(now, fault, true, out);
                self.settle_bid(Bid::Failed(fault), out);
                if matches!(kind, Kind::Bid(_)) {
                    self.look_at = Some(now);
                }
            }
        }
    }

    /// A write of ours was lost or may have been: look before anything else.
    fn on_setback(&mut self, now: Moment) {
        self.doubt = true;
        self.ours = None;
        self.look_at = Some(now);
        self.setbacks += 1;
        if self.setbacks > 1 {
            self.pause(now);
        }
    }

    /// The seat names us and this term, counted from `since`.
    fn on_kept(
        &mut self,
        now: Moment,
        record: Record,
        version: Version,
        since: Moment,
        deadline: Moment,
        out: &mut Vec<Action>,
    ) {
        let token = record.token;
        self.sight.wrote(now, Seat { record, version: version.clone(), life: Life::Observe });
        match &mut self.stage {
            Stage::Leading(hold) if hold.token == token => {
                *hold = Hold { token, version, since, deadline, renewing: true };
                out.push(Action::Extended { token, until: deadline });
                if self.rules.push != Push::Proven {
                    self.want_board();
                }
            }
            Stage::Ending(hold, end) if hold.token == token => {
                hold.version = version;
                // A late renewal never revives a term, nor does it prolong one that time is ending.
                if end.why.is_voluntary() {
                    (hold.since, hold.deadline) = (since, deadline);
                    out.push(Action::Extended { token, until: deadline.min(end.by) });
                }
            }
            _ => {
                self.ours = None;
                if token > self.led && self.wants_to_stand() && deadline > now + self.rules.timing.drain() {
                    self.begin(Hold { token, version, since, deadline, renewing: true }, out);
                } else {
                    // Won on a session that is about to end, or no longer wanted, or won a second
                    // time after its term was over: `proceed` knows what to do with it.
                    if token > self.led {
                        self.pause(now);
                    }
                    self.ours = Some(Ours { token, version, over: false });
                }
            }
        }
    }

    // ---------------------------------------------------------------------------------------
    // Beginning and ending

    fn begin(&mut self, hold: Hold, out: &mut Vec<Action>) {
        let (token, until) = (hold.token, hold.deadline);
        self.led = token;
        self.look_at = None;
        self.board = Board::Unread;
        self.stage = Stage::Leading(hold);
        out.push(Action::Began { token, until });
        self.settle_bid(Bid::Won(token), out);
    }

    /// The end that a user or another candidate has asked for: the seat is kept while work wraps up.
    fn end_on_request(&mut self, now: Moment, why: Why, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Leading(_) => self.end(why, now + self.rules.timing.stop_grace(), out),
            Stage::Ending(hold, _) if why == Why::SteppedDown => self.held_back = Some(self.hold_back(now, hold.token)),
            _ => {}
        }
    }

    /// The end that another has brought about: there is no time left to wrap up in.
    fn end_at_once(&mut self, now: Moment, why: Why, out: &mut Vec<Action>) {
        match &mut self.stage {
            Stage::Leading(_) => self.end(why, now, out),
            Stage::Ending(_, end) => *end = End { why, by: now },
            _ => {}
        }
    }

    fn end(&mut self, why: Why, by: Moment, out: &mut Vec<Action>) {
        let Stage::Leading(hold) = &self.stage else { return };
        let hold = hold.clone();
        out.push(Action::Ending { token: hold.token, why, by: by.min(hold.deadline) });
        self.stage = Stage::Ending(hold, End { why, by });
    }

    fn finish(&mut self, now: Moment, drained: bool, out: &mut Vec<Action>) {
        let Stage::Ending(hold, end) = &self.stage else { return };
        let (hold, why) = (hold.clone(), end.why);
        self.stage = Stage::Following;
        if !drained {
            self.undrained = Some(Undrained { token: hold.token, since: now, told: false });
        }
        if why == Why::SteppedDown {
            self.held_back = Some(self.hold_back(now, hold.token));
        }
        if self.board == Board::Wanted {
            self.board = Board::Unread;
        }
        // What is certain about the seat can be acted on at once; otherwise we look first.
        if why.is_voluntary() && hold.renewing && !self.doubt {
            self.ours = Some(Ours { token: hold.token, version: hold.version, over: false });
        } else {
            self.doubt |= why == Why::NotRenewed;
            self.look_at = Some(now);
        }
        out.push(Action::Ended { token: hold.token, why });
    }

    fn hold_back(&self, now: Moment, token: Token) -> HeldBack {
        HeldBack { until: now + self.rules.timing.lease() * 2, after: token }
    }

    // ---------------------------------------------------------------------------------------
    // Deciding what to do next

    fn proceed(&mut self, now: Moment, looked: bool, out: &mut Vec<Action>) {
        match &self.stage {
            Stage::Following => self.proceed_following(now, looked, out),
            Stage::Leading(hold) | Stage::Ending(hold, _) if self.call.is_none() && now >= self.paused_until => {
                let renews = self.is_kept();
                if renews && !self.doubt && now >= self.renewal_due(hold) {
                    let (token, version) = (hold.token, hold.version.clone());
                    self.renew(now, token, version, out);
                } else if (renews || !self.is_ending()) && (self.doubt || self.look_at.is_some_and(|at| now >= at)) {
                    self.read(now, out);
                }
            }
            Stage::Idle if self.stopping.is_some() => self.stop(out),
            _ => {}
        }
    }

    fn proceed_following(&mut self, now: Moment, looked: bool, out: &mut Vec<Action>) {
        if self.rules.give_up_after.is_some_and(|most| self.faults >= most) && self.stopping.is_none() {
            self.stopping = Some(Stopped::GaveUp { errors: self.faults });
        }
        if self.may_stop(now) {
            return self.stop(out);
        }
        if self.call.is_some() || now < self.paused_until {
            return;
        }
        if let Some(ours) = self.ours.clone().filter(|_| self.undrained.is_none()) {
            if !self.wants_to_stand() {
                return self.vacate(now, &ours, out);
            }
            if now >= self.sight.waited_out_at() {
                if ours.token > self.led && !ours.over {
                    return self.renew(now, ours.token, ours.version, out);
                }
                return self.bid(now, out);
            }
        } else if looked
            && self.wants_to_stand()
            && now >= self.sight.waited_out_at()
            && self.sight.free(&self.rules) == Free::Now
        {
            return self.bid(now, out);
        }
        if looked {
            self.settle_bid(Bid::Taken, out);
        }
        let look_at = match self.look_at {
            Some(at) => at,
            None => self.next_look(now),
        };
        self.look_at = Some(look_at);
        if self.doubt || now >= look_at {
            self.read(now, out);
        }
    }

    /// When a follower looks again: when the seat may be free, and every so often regardless, as
    /// pushes can be lost.
    fn next_look(&mut self, now: Moment) -> Moment {
        let timing = &self.rules.timing;
        let every = if self.rules.push == Push::Proven { timing.lease() } else { timing.lease() / 3 };
        // A little sooner each time, so that a fleet does not look in step.
        let mut at = now + every - self.dice.jitter(every / 10);
        if let Free::At(free) = self.sight.free(&self.rules) {
            at = at.min(free);
        }
        for obstacle in [Some(self.sight.waited_out_at()), self.held_back.map(|held| held.until)].into_iter().flatten()
        {
            if obstacle > now {
                at = at.min(obstacle);
            }
        }
        at
    }

    /// Whether it would take the seat if it could.
    fn wants_to_stand(&self) -> bool {
        (self.rules.stands || self.bidding)
            && self.stopping.is_none()
            && self.undrained.is_none()
            && self.held_back.is_none()
    }

    /// Whether nothing of ours is left, or nothing can be done about it any more.
    fn may_stop(&self, now: Moment) -> bool {
        match self.stopping {
            None => false,
            Some(_) if self.undrained.is_some() => false,
            Some(Stopped::GaveUp { .. }) => true,
            Some(Stopped::Asked) => {
                let writing = self.call.as_ref().is_some_and(|call| !matches!(call.kind, Kind::Read));
                let settled = self.ours.is_none() && !self.doubt && !writing;
                // By then what we may have written has lapsed.
                let lapsed = now >= self.wrote_at + self.rules.timing.lease();
                settled || lapsed || (!self.rules.release_on_stop && !writing)
            }
        }
    }

    fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Ending(..))
    }

    /// Whether the seat is to be renewed: also while work wraps up, if the end is voluntary.
    fn is_kept(&self) -> bool {
        match &self.stage {
            Stage::Leading(hold) => hold.renewing,
            Stage::Ending(hold, end) => hold.renewing && end.why.is_voluntary(),
            _ => false,
        }
    }

    fn renewal_due(&self, hold: &Hold) -> Moment {
        (hold.since + self.rules.timing.renew_every()).max(self.paused_until)
    }

    // ---------------------------------------------------------------------------------------
    // Calls

    fn read(&mut self, now: Moment, out: &mut Vec<Action>) {
        self.call = Some(Call { kind: Kind::Read, sent: now });
        out.push(Action::Read);
    }

    fn bid(&mut self, now: Moment, out: &mut Vec<Action>) {
        let Some(token) = self.sight.next_token() else {
            // Somebody has written the highest number there is. Nobody can lead after that.
            self.on_fault(now, Fault::Denied, true, out);
            self.look_at = Some(now);
            return self.settle_bid(Bid::Failed(Fault::Denied), out);
        };
        let record = self.record(token, true);
        self.ours = None;
        self.wrote_at = now;
        self.call = Some(Call { kind: Kind::Bid(record.clone()), sent: now });
        let expected = self.sight.seat().map(|seat| seat.version.clone());
        out.push(Action::Swap { expected, record });
    }

    fn renew(&mut self, now: Moment, token: Token, held: Version, out: &mut Vec<Action>) {
        let record = self.record(token, true);
        self.wrote_at = now;
        self.call = Some(Call { kind: Kind::Renew(record.clone()), sent: now });
        out.push(Action::Renew { held, record });
    }

    fn vacate(&mut self, now: Moment, ours: &Ours, out: &mut Vec<Action>) {
        let record = self.record(ours.token, false);
        self.call = Some(Call { kind: Kind::Vacate(record.clone()), sent: now });
        out.push(Action::Swap { expected: Some(ours.version.clone()), record });
    }

    fn record(&mut self, token: Token, held: bool) -> Record {
        Record {
            holder: held.then(|| self.me.clone()),
            token,
            lease: self.rules.timing.lease(),
            since_ms: None,
            heir: None,
            metadata: if held { self.rules.metadata.clone() } else { Default::default() },
            nonce: self.dice.roll(),
            unknown: self.sight.seat().map(|seat| seat.record.unknown.clone()).unwrap_or_default(),
        }
    }

    // ---------------------------------------------------------------------------------------
    // Faults

    fn on_fault(&mut self, now: Moment, fault: Fault, pause: bool, out: &mut Vec<Action>) {
        self.faults = self.faults.saturating_add(1);
        if self.failing != Some(fault) {
            self.failing = Some(fault);
            out.push(Action::Failing(fault));
        }
        if pause {
            self.pause(now);
        }
    }

    fn on_answer(&mut self, out: &mut Vec<Action>) {
        self.faults = 0;
        if self.failing.take().is_some() {
            out.push(Action::Recovered);
        }
    }

    /// Waits before the next call: a holder never longer than its budget allows for, a follower
    /// longer and longer while the store fails, but not past the moment the seat may be free.
    fn pause(&mut self, now: Moment) {
        let timing = &self.rules.timing;
        let follows = matches!(self.stage, Stage::Following) && self.ours.is_none() && !self.doubt;
        let longest = if !follows {
            timing.retry_every()
        } else if self.failing == Some(Fault::Denied) {
            timing.retry_max()
        } else {
            let doublings = self.faults.saturating_sub(1).min(16);
            timing.retry_every().saturating_mul(1 << doublings).min(timing.retry_max())
        };
        let mut until = now + self.dice.jitter(longest);
        if follows
            && let Free::At(free) = self.sight.free(&self.rules)
            && free > now
        {
            until = until.min(free);
        }
        self.paused_until = until;
    }

    // ---------------------------------------------------------------------------------------
    // Telling

    fn stop(&mut self, out: &mut Vec<Action>) {
        let Some(why) = self.stopping else { return };
        self.settle_bid(Bid::Taken, out);
        self.stage = Stage::Stopped;
        out.push(Action::Stopped(why));
    }

    fn settle_bid(&mut self, bid: Bid, out: &mut Vec<Action>) {
        if std::mem::take(&mut self.bidding) {
            out.push(Action::BidSettled(bid));
        }
    }

    fn want_board(&mut self) {
        if self.board == Board::Unread {
            self.board = Board::Wanted;
        }
    }

    fn tell(&mut self, now: Moment, out: &mut Vec<Action>) {
        let leader = self.leader();
        let key = leader.as_ref().map(|leader| (leader.candidate.clone(), leader.token));
        if key != self.told_leader {
            self.told_leader = key;
            out.push(Action::Leader(leader));
        }
        if matches!(self.stage, Stage::Stopped) {
            return;
        }
        if self.board == Board::Wanted && matches!(self.stage, Stage::Leading(_)) {
            self.board = Board::Reading;
            out.push(Action::ReadBoard);
        }
        self.tell_watch(now, out);
        let wake = self.next_wake(now);
        if wake != self.told_wake {
            self.told_wake = wake;
            out.extend(wake.map(Action::WakeAt));
        }
    }

    fn leader(&self) -> Option<Leader> {
        match &self.stage {
            Stage::Leading(hold) | Stage::Ending(hold, _) => Some(Leader {
                candidate: self.me.clone(),
                token: hold.token,
                since_ms: None,
                metadata: self.rules.metadata.clone(),
            }),
            Stage::Following if self.sight.free(&self.rules) != Free::Now => {
                let record = &self.sight.seat()?.record;
                Some(Leader {
                    candidate: record.holder.clone().filter(|holder| holder.incarnation != self.me.incarnation)?,
                    token: record.token,
                    since_ms: record.since_ms,
                    metadata: record.metadata.clone(),
                })
            }
            _ => None,
        }
    }

    /// Watches from what was last seen; not while there is something to look at anyway.
    fn tell_watch(&mut self, now: Moment, out: &mut Vec<Action>) {
        let looking = self.doubt
            || self.look_at.is_some_and(|at| now >= at)
            || self.call.as_ref().is_some_and(|call| matches!(call.kind, Kind::Read | Kind::Bid(_)))
            || self.board != Board::Unread;
        if looking || !self.sight.has_looked() {
            return;
        }
        let seat = self.sight.seat();
        let watch = Watched {
            holder: seat.and_then(|seat| seat.record.holder.clone()),
            token: seat.map(|seat| seat.record.token),
            requests: matches!(self.stage, Stage::Leading(_)),
        };
        if std::mem::take(&mut self.news) && self.watched.take().as_ref() == Some(&watch) {
            // Nothing was new. Watched again at once, a store that cries wolf would keep us running.
            self.watch_at = now + self.dice.jitter(self.rules.timing.retry_every());
        }
        if self.watched.as_ref() != Some(&watch) && now >= self.watch_at {
            out.push(Action::Watch { seat: seat.cloned(), requests: watch.requests });
            self.watched = Some(watch);
        }
    }

    fn next_wake(&self, now: Moment) -> Option<Moment> {
        let mut wakes = [None; 5];
        let may_call = self.call.is_none();
        match &self.stage {
            Stage::Leading(hold) => {
                wakes[0] = Some(hold.deadline - self.rules.timing.drain());
                wakes[1] = (may_call && self.is_kept()).then(|| self.renewal_due(hold));
                wakes[2] = self.look_at.filter(|_| may_call).map(|at| at.max(self.paused_until));
            }
            Stage::Ending(hold, end) => {
                wakes[0] = Some(end.by.min(hold.deadline));
                wakes[1] = (may_call && self.is_kept()).then(|| self.renewal_due(hold));
            }
            Stage::Following => {
                let at = if self.ours.is_some() && self.undrained.is_none() && now >= self.sight.waited_out_at() {
                    Some(self.paused_until)
                } else {
                    self.look_at.map(|at| at.max(self.paused_until))
                };
                wakes[0] = at.filter(|_| may_call);
                wakes[1] = self.stopping.map(|_| self.wrote_at + self.rules.timing.lease());
            }
            Stage::Idle | Stage::Stopped => return None,
        }
        wakes[3] = self
            .undrained
            .filter(|undrained| !undrained.told)
            .map(|undrained| undrained.since + self.rules.timing.overrun_slack());
        wakes[4] = (self.watched.is_none() && self.watch_at > now).then_some(self.watch_at);
        wakes.into_iter().flatten().min()
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
