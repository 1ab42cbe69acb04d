//! The engine's thread: the only loop that awaits.
//!
//! ```text
//!  commands from users ─┐                        ┌▶ calls to the store, each under a time-out
//!  answers, news ───────┼─▶ Machine::step(now) ──┼▶ one alarm for the earliest wake
//!  the alarm ───────────┘                        └▶ publish.rs: terms, events, handlers
//! ```
//!
//! - `commands.rs`: the commands that users send to the engine
//! - `calls.rs`: calls to the store, in the order of `Admission`; `answers.rs`: their answers; `notes.rs`: the same for
//!   notes; `requests.rs`: requests to the leader, and the list of candidates; `list.rs`: the list of elections
//! - `watch.rs`: the one watch of the store
//! - `roster.rs`: what this process announces; `checks.rs`: the health checks of its candidates
//! - `telemetry.rs`: spans and metrics
//!
//! The driver decides nothing: every branch on an answer is in the machine. All elections of an `Elections` share one
//! thread, one alarm and one set of pending calls.

mod answers;
mod calls;
mod checks;
mod commands;
mod list;
#[cfg(test)]
mod memory_tests;
mod misbehaviour;
mod notes;
mod publish;
mod requests;
mod roster;
mod telemetry;
mod watch;
mod will;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure_protocol::{
    Action, Admission, DataIdentity, EndReason, Incarnation, Input, Machine, Moment, Score, Subscriptions,
};
use tokio::sync::{mpsc, oneshot};
use tracing::{Level, error};

use self::calls::{Answer, Answered, Ask, Asked, Calling, Pending, Underway};
pub(crate) use self::checks::Check;
use self::checks::{CheckThread, Checking};
pub(crate) use self::commands::{Command, EngineHandle, Start, start};
use self::misbehaviour::Misbehaviours;
use self::notes::NoteCalls;
use self::roster::Roster;
use self::telemetry::Telemetry;
use crate::clock::Alarm;
use crate::election::Shared;
use crate::handlers::HandlerLine;
use crate::layers::GIVEN_UP;
use crate::options::OnOverrun;
use crate::term::TermState;
use crate::{Call, Clock, DynStore, Ended, Error, Interest, Metadata, SeatName, StoreError, Term, log};

/// Identifies an election within an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ElectionId(pub(crate) u64);

/// The id for calls on behalf of the process and not of an election.
const NOBODY: ElectionId = ElectionId(u64::MAX);

/// The engine's state of one election.
struct Entry {
    machine: Machine,
    shared: Arc<Shared>,
    handlers: Option<Box<HandlerLine>>,
    on_overrun: OnOverrun,
    call: Option<Asked>,
    /// The outcome of the last write is unknown, and the seat was not read since then.
    unsettled: bool,
    /// Boxed, like all fields that are often empty, because there can be very many elections.
    board: Option<Box<Underway>>,
    roster: Option<Box<Underway>>,
    heirs: Vec<Underway>,
    checking: Option<Box<Checking>>,
    announces: bool,
    /// Kept to be dropped with the election.
    _stop_on: Option<Box<Underway>>,
    wake: Option<Timer>,
    bids: Vec<oneshot::Sender<Result<Option<Term>, Error>>>,
    /// The last error of the store, for the event that reports its failure.
    last_error: Option<Arc<StoreError>>,
    /// When the last bid was sent, by the wall clock.
    since_ms: Option<u64>,
    telemetry: Telemetry,
}

/// The moment at which an action is due, and a number that makes the key unique.
type Timer = (Moment, u64);

enum Due {
    Wake(ElectionId),
    /// The time-out of a call, by the number of the ask.
    TimeOut((ElectionId, u64)),
    Check(ElectionId),
    CheckLate(ElectionId),
    AnnounceProcess,
    WatchAgain,
    /// The store should listen to the watch with this number by now.
    ShouldListen(u64),
    Sleeper(oneshot::Sender<()>),
}

struct Driver {
    store: Arc<dyn DynStore>,
    misbehaviours: Misbehaviours,
    clock: Clock,
    handle: EngineHandle,
    /// Boxed, because the map reserves room for many more entries than it has.
    entries: BTreeMap<ElectionId, Box<Entry>>,
    due: BTreeMap<Timer, Due>,
    pending: FuturesUnordered<Pending>,
    /// Reads and writes of elections that wait for their call.
    admission: Admission<Ask>,
    /// The calls to the store that are in flight.
    calling: BTreeMap<u64, Calling>,
    /// The answers of the store, seat by seat.
    inbox: mpsc::UnboundedReceiver<Answered>,
    answered: mpsc::UnboundedSender<Answered>,
    /// The seats that the store watches for this engine, and the elections that its notifications concern.
    interest: Interest,
    subscriptions: Subscriptions<SeatName, ElectionId>,
    watching: Option<Underway>,
    watch_pause: Duration,
    /// The moment at which the current watch began to listen.
    listens_since: Option<Moment>,
    /// Asks that have timed out.
    late: Vec<(ElectionId, u64)>,
    checks: Option<CheckThread>,
    roster: Roster,
    notes: NoteCalls,
    /// Elections that have ended for their users, and still have a seat to release.
    leaving: BTreeMap<SeatName, ElectionId>,
    /// The identity of the store in the last reading.
    identity: Option<DataIdentity>,
    numbers: u64,
    shutting_down: bool,
}

impl Driver {
    fn new(
        store: Arc<dyn DynStore>,
        interest: Interest,
        clock: Clock,
        handle: EngineHandle,
        process: Incarnation,
    ) -> Self {
        let promises = store.promises();
        let (answered, inbox) = mpsc::unbounded_channel();
        Self {
            store,
            misbehaviours: Misbehaviours::new(promises.store),
            clock,
            handle,
            entries: BTreeMap::new(),
            due: BTreeMap::new(),
            pending: FuturesUnordered::new(),
            admission: Admission::new(promises.reads, promises.writes),
            calling: BTreeMap::new(),
            inbox,
            answered,
            interest,
            subscriptions: Subscriptions::new(),
            watching: None,
            watch_pause: Duration::ZERO,
            listens_since: None,
            late: Vec::new(),
            checks: None,
            roster: Roster::new(process),
            notes: NoteCalls::new(promises.reads, promises.writes),
            leaving: BTreeMap::new(),
            identity: None,
            numbers: 0,
            shutting_down: false,
        }
    }

    async fn run(mut self, commands: &mut mpsc::UnboundedReceiver<Command>, mut alarm: Alarm) {
        let (mut forwarding, interest) = (None, self.interest.clone());
        while !(self.shutting_down && self.entries.is_empty() && self.roster.is_settled()) {
            log::forward(&mut forwarding);
            let generation = alarm.generation();
            // Timers go first, so that no input delays a deadline.
            self.on_time();
            self.on_news();
            self.on_late().await;
            self.call_waiting();
            self.call_about_notes();
            self.roster.reply_if_settled();
            let next = self.due.first_key_value().map(|((moment, _), _)| *moment);
            tokio::select! {
                biased;
                Some(command) = commands.recv() => {
                    self.guarded(|driver| driver.on_command(command));
                    // Answers take turns with commands, so that a flood of commands cannot starve them.
                    self.on_answers(1);
                }
                Some(answer) = self.pending.next() => {
                    self.on_answered();
                    self.guarded(|driver| driver.on_answer(answer));
                    self.on_answers(64);
                }
                // The next two come from pending futures, so they are polled after those.
                Some(answered) = self.inbox.recv() => {
                    self.guarded(|driver| driver.on_answer_for(answered));
                    self.on_answers(64);
                }
                () = interest.arrived() => {}
                () = alarm.wait(next, generation) => {}
            }
        }
    }

    /// Runs a step, and ends all elections if it panics: a bug must not leave a candidate leading or a caller waiting
    /// forever.
    fn guarded(&mut self, act: impl FnOnce(&mut Self)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| act(self))) {
            log_panic(&*panic);
            self.abandon();
        }
    }

    fn abandon(&mut self) {
        self.shutting_down = true;
        if !self.entries.is_empty() {
            // Dropping the store could free its locks, which means that all work has ended. After a panic that is
            // unknown.
            std::mem::forget(self.store.clone());
        }
        for entry in std::mem::take(&mut self.entries).into_values() {
            entry.abandon();
        }
    }

    fn on_time(&mut self) {
        loop {
            let now = self.clock.now();
            let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) else { return };
            match first.remove() {
                Due::Wake(election) => {
                    if let Some(entry) = self.entries.get_mut(&election) {
                        entry.wake = None;
                    }
                    self.guarded(|driver| driver.step(election, Input::Wake));
                }
                Due::TimeOut(call) => self.late.push(call),
                Due::Check(election) => self.guarded(|driver| driver.check(election)),
                Due::CheckLate(election) => self.guarded(|driver| driver.on_check_late(election)),
                Due::AnnounceProcess => self.guarded(Self::announce_process),
                Due::WatchAgain => self.guarded(Self::watch_again),
                Due::ShouldListen(watch) => self.on_should_listen(watch),
                Due::Sleeper(reply) => drop(reply.send(())),
            }
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Start(start) => self.on_start(start),
            Command::Bid { election, reply } => {
                if let Some(entry) = self.entries.get_mut(&election) {
                    entry.bids.push(reply);
                    if entry.bids.len() == 1 {
                        self.step(election, Input::Bid);
                    }
                }
            }
            Command::Dropped { election, token } => {
                // Another caller can have received the term after the last handle was dropped.
                let let_go = |term: &Arc<TermState>| term.token() == token && !term.is_held();
                let runs = |entry: &Entry| entry.shared.state().term.as_ref().is_some_and(let_go);
                if self.entries.get(&election).is_some_and(|entry| runs(entry)) {
                    self.step(election, Input::Release);
                }
            }
            Command::Release { election } => self.step(election, Input::Release),
            Command::Yield { election, token } => {
                // The term can have ended in the meantime, and the next one begun.
                let term = self.entries.get(&election).and_then(|entry| entry.shared.state().term.clone());
                if term.is_some_and(|term| term.token() == token) {
                    self.step(election, Input::Yield);
                }
            }
            Command::StepDown { election } => self.step(election, Input::StepDown),
            Command::RequestStepDown { election, reply } => self.request_step_down(election, reply),
            Command::Transfer { election, to, reply } => self.transfer(election, to, reply),
            Command::Report { election, score, metadata } => self.on_report(election, score, metadata),
            Command::Checked { election, report } => self.on_checked(election, report),
            Command::Candidates { seat, reply } => self.candidates(seat, reply),
            Command::Drained { election, token } => {
                if let Some(entry) = self.entries.get(&election) {
                    let overran = &mut entry.shared.state().overran;
                    *overran = overran.filter(|overran| *overran != token);
                }
                self.step(election, Input::Drained(token));
            }
            Command::Stop { election } => self.step(election, Input::Stop),
            Command::Look { seat, reply } => self.look(seat, reply),
            Command::List { reply } => self.list(reply),
            Command::ExecuteWill { seat, will, lease, within, reply } => {
                self.execute_will(seat, *will, Call { lease, within }, reply);
            }
            Command::Forget { seat, reply } => self.forget(seat, reply),
            Command::Sleep { until, reply } => {
                self.at(until, Due::Sleeper(reply));
            }
            Command::OnSignal { reply } => calls::spawn_signal_listener(reply),
            Command::Settle { reply } => self.roster.settling.push(reply),
            #[cfg(test)]
            Command::Sizes { reply } => drop(reply.send(self.sizes())),
            Command::Flush { reply } => drop(tokio::spawn(async move {
                log::flushed().await;
                let _ = reply.send(());
            })),
            Command::Shutdown => {
                self.shutting_down = true;
                let running: Vec<_> = self.entries.keys().copied().collect();
                for election in running {
                    self.step(election, Input::Stop);
                }
            }
        }
    }

    fn on_start(&mut self, start: Start) {
        let Start { shared, rules, seed, handlers, stop_on, on_overrun, check, announces } = start;
        let election = shared.id;
        // The new election takes over the seat of an old one that is still being released. An observer does not,
        // because it writes nothing.
        let candidacy = shared.candidate.incarnation == self.roster.process;
        if let Some(former) = self.leaving.get(&shared.name).copied().filter(|_| candidacy) {
            self.remove(former);
        }
        let machine = Machine::new(shared.candidate.clone(), rules, seed);
        let stop_on = stop_on.map(|token| {
            self.call(election, async move {
                token.cancelled().await;
                Answer::StopAsked
            })
        });
        let entry = Entry {
            machine,
            shared,
            handlers,
            on_overrun,
            call: None,
            unsettled: false,
            board: None,
            roster: None,
            heirs: Vec::new(),
            checking: None,
            announces,
            _stop_on: stop_on.map(Box::new),
            wake: None,
            bids: Vec::new(),
            last_error: None,
            since_ms: None,
            telemetry: Telemetry::new(candidacy),
        };
        entry.measure_start();
        self.entries.insert(election, Box::new(entry));
        self.subscribe(election);
        match check {
            Some(check) => self.start_checks(election, *check),
            None => {
                self.announce(election, Score::FULL, Metadata::default());
                self.step(election, Input::Start);
            }
        }
    }

    /// Steps the machine and performs its actions, until no input is left.
    fn step(&mut self, election: ElectionId, input: Input) {
        if input == Input::Stop {
            // Other candidates must not wait for a candidate that leaves.
            self.withdraw_election(election);
        }
        let mut inputs = VecDeque::from([input]);
        let mut actions = Vec::new();
        while let Some(input) = inputs.pop_front() {
            let Some(entry) = self.entries.get_mut(&election) else { return };
            entry.machine.step(self.clock.now(), input, &mut actions);
            for action in actions.drain(..) {
                self.perform(election, action, &mut inputs);
            }
        }
        let Some(entry) = self.entries.get(&election) else { return };
        // When the engine shuts down, dropping the store ends its session, which frees the seat.
        let leaves = self.leaving.get(&entry.shared.name) == Some(&election);
        if entry.machine.is_over() || (self.shutting_down && leaves) {
            self.remove(election);
        }
    }

    /// Removes an election that has ended.
    fn remove(&mut self, election: ElectionId) {
        let Some(mut entry) = self.entries.remove(&election) else { return };
        entry.trace_written(GIVEN_UP);
        // An observer has another incarnation, and has never led.
        if entry.shared.candidate.incarnation == self.roster.process {
            self.leaving.remove(&entry.shared.name);
        }
        self.unsubscribe(election);
        if let Some(timer) = entry.wake {
            self.due.remove(&timer);
        }
        if let Some(asked) = &entry.call {
            self.cancel_ask(asked);
        }
    }

    fn perform(&mut self, election: ElectionId, action: Action, inputs: &mut VecDeque<Input>) {
        match action {
            Action::Read => self.read(election),
            Action::Swap { expected, record } => self.swap(election, expected, record),
            Action::Renew { held, record } => self.renew(election, held, record),
            Action::Watch { seat, requests } => self.watch(election, seat, requests, inputs),
            Action::ReadBoard => self.read_board(election, inputs),
            Action::ReadRoster => self.read_roster(election, inputs),
            Action::Ask(request) => self.ask(election, &request),
            Action::WakeAt(moment) => {
                let timer = self.at(moment, Due::Wake(election));
                let entry = self.entries.get_mut(&election).expect("it is being stepped");
                if let Some(earlier) = entry.wake.replace(timer) {
                    self.due.remove(&earlier);
                }
            }
            Action::Stopped(stopped) => {
                self.withdraw_election(election);
                let entry = self.entries.get_mut(&election).expect("it is being stepped");
                entry.publish_stopped(Ended::of(stopped, entry.machine.last_claim()));
                entry.handlers = None;
                if entry.shared.candidate.incarnation == self.roster.process {
                    self.leaving.insert(entry.shared.name.clone(), election);
                }
                if let Some(checking) = entry.checking.take() {
                    self.end_checks(election, &checking);
                }
            }
            action => {
                if let Action::Fit(fit) = action
                    && self.entries[&election].announces
                {
                    let seat = self.entries[&election].shared.name.clone();
                    self.change_notice(&seat, |standing| standing.fit = fit);
                }
                if matches!(action, Action::Ended { why: EndReason::SteppedDown, .. }) {
                    self.announce_hold_back(election);
                }
                let entry = self.entries.get_mut(&election).expect("it is being stepped");
                entry.publish(action, &self.handle, inputs);
            }
        }
    }

    fn at(&mut self, moment: Moment, due: Due) -> Timer {
        self.numbers += 1;
        let timer = (moment, self.numbers);
        self.due.insert(timer, due);
        timer
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Elections are left only after a panic.
        self.abandon();
    }
}

fn log_panic(panic: &(dyn std::any::Any + Send)) {
    let message = crate::handlers::panic_message(panic).to_owned();
    log::emit(Level::ERROR, move || error!(message, "the engine panicked: this is a bug"));
}
