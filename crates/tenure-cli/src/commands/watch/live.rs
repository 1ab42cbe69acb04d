//! The live view of `tenure watch`: the leader, the candidates and the last changes, updated in place.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant, SystemTime};

use tenure::{CandidateStatus, Elections, Error, EventKind, Events, Leader, Observer, SeatStatus};
use tokio::signal::unix::{SignalKind, signal};

use super::all::{self, LastLeaders, Lister};
use super::view::View;
use super::{Change, key};
use crate::commands::candidates::table;
use crate::commands::status::rows;
use crate::commands::{leader_words, printable};
use crate::failure::{Failure, error_words};
use crate::screen::{Paint, ago, span, timestamp, width};
use crate::setup::Setup;
use crate::table::cut;

/// How often to read the store, and to draw the times anew. Changes of the leader are shown at once.
const EVERY: Duration = Duration::from_secs(1);

/// How many of the last changes to show.
const CHANGES: usize = 8;

/// Shows one election.
pub(super) async fn run(setup: &Setup, election: &str) -> Result<u8, Failure> {
    let mut live = Live::start(setup, election).await?;
    let mut view = View::default();
    let mut reading = live.read_after(Duration::ZERO)?;
    let mut ticks = tokio::time::interval(EVERY);
    let mut resized = signal(SignalKind::window_change())?;
    loop {
        view.draw(live.lines(width(&std::io::stdout()), Paint::for_stream(&std::io::stdout())))?;
        tokio::select! {
            event = next(&mut live.source) => {
                if live.on_event(event) {
                    reading = live.read_after(Duration::ZERO)?;
                }
            }
            result = &mut reading => {
                live.on_reading(result);
                live.connect()?;
                reading = live.read_after(EVERY)?;
            }
            _ = resized.recv() => view.clear()?,
            _ = ticks.tick() => {}
        }
    }
}

/// Shows all elections of the store.
pub(super) async fn run_all(setup: &Setup) -> Result<u8, Failure> {
    let mut lister = Lister::new(setup)?;
    let mut listed = lister.list().await?;
    let (mut read_at, mut problem) = (Instant::now(), None);
    let (mut seen, mut changes) = (LastLeaders::default(), VecDeque::new());
    let mut view = View::default();
    let mut ticks = tokio::time::interval(EVERY);
    let mut resized = signal(SignalKind::window_change())?;
    loop {
        changes.extend(seen.update(&listed).into_iter().map(|change| (SystemTime::now(), change)));
        changes.drain(..changes.len().saturating_sub(CHANGES));
        let mut reading = pin!(async {
            tokio::time::sleep(all::EVERY).await;
            lister.list().await
        });
        let result = loop {
            let (width, paint) = (width(&std::io::stdout()), Paint::for_stream(&std::io::stdout()));
            let mut lines = head(setup, problem.as_deref(), read_at.elapsed(), width, paint);
            lines.push(String::new());
            match listed.is_empty() {
                true => lines.push(paint.yellow("no elections")),
                false => lines.extend(rows(&listed, SystemTime::now(), width, paint)),
            }
            lines.push(String::new());
            let changes = changes.iter().rev();
            lines.extend(changes.map(|(at, (name, change))| change.line(*at, Some(name), paint)));
            view.draw(lines)?;
            tokio::select! {
                result = &mut reading => break result,
                _ = resized.recv() => view.clear()?,
                _ = ticks.tick() => {}
            }
        };
        match result {
            Ok(now) => (listed, read_at, problem) = (now, Instant::now(), None),
            Err(failure) => problem = Some(failure.to_string()),
        }
    }
}

/// The seat and the candidates, as read at one moment.
type Snapshot = (SeatStatus, Vec<CandidateStatus>);

type PendingRead = Pin<Box<dyn Future<Output = Result<Snapshot, Error>>>>;

/// An election in the live view: its last reading, and the latest changes.
struct Live<'a> {
    setup: &'a Setup,
    election: &'a str,
    /// `None` while the database does not exist.
    source: Option<(Elections, Observer, Events)>,
    snapshot: Snapshot,
    read_at: Instant,
    last: Option<Leader>,
    changes: VecDeque<(SystemTime, Change)>,
    problem: Option<String>,
}

impl<'a> Live<'a> {
    /// Reads the election once. An error of this first read ends the command.
    async fn start(setup: &'a Setup, election: &'a str) -> Result<Self, Failure> {
        let snapshot = read(setup.elections_read_only()?, election.to_owned()).await?;
        let last = snapshot.0.leader.clone();
        let changes = VecDeque::from([(SystemTime::now(), Change::Leader(last.clone()))]);
        let read_at = Instant::now();
        let mut live = Self { setup, election, source: None, snapshot, read_at, last, changes, problem: None };
        live.connect()?;
        Ok(live)
    }

    /// Observes the election, once its database exists.
    fn connect(&mut self) -> Result<(), Failure> {
        if self.source.is_none() && self.setup.missing().is_none() {
            let elections = self.setup.elections_to_watch()?;
            let observer = elections.observe(self.election)?;
            let events = observer.events();
            self.source = Some((elections, observer, events));
        }
        Ok(())
    }

    fn read_after(&self, pause: Duration) -> Result<PendingRead, Failure> {
        let elections = match &self.source {
            Some((elections, ..)) => elections.clone(),
            None => self.setup.elections_read_only()?,
        };
        let election = self.election.to_owned();
        Ok(Box::pin(async move {
            tokio::time::sleep(pause).await;
            read(elections, election).await
        }))
    }

    fn on_reading(&mut self, result: Result<Snapshot, Error>) {
        match result {
            Ok(snapshot) => (self.snapshot, self.read_at, self.problem) = (snapshot, Instant::now(), None),
            Err(error) => self.problem = Some(error_words(&error)),
        }
    }

    /// Returns whether the leader has changed.
    fn on_event(&mut self, event: EventKind) -> bool {
        match event {
            EventKind::LeaderChanged { leader, .. } if key(leader.as_ref()) != key(self.last.as_ref()) => {
                self.add(Change::Leader(leader.clone()));
                self.last = leader;
                true
            }
            EventKind::LeaderCrashed { crash } => {
                self.add(Change::Crash(crash));
                true
            }
            EventKind::Error { error } => {
                self.problem = Some(error_words(&error));
                false
            }
            EventKind::Recovered => true,
            _ => false,
        }
    }

    fn add(&mut self, change: Change) {
        self.changes.push_back((SystemTime::now(), change));
        if self.changes.len() > CHANGES {
            self.changes.pop_front();
        }
    }

    /// Formats the view.
    fn lines(&self, width: Option<usize>, paint: Paint) -> Vec<String> {
        let (now, (seat, candidates)) = (SystemTime::now(), &self.snapshot);
        let age = self.read_at.elapsed();
        let mut lines = head(self.setup, self.problem.as_deref(), age, width, paint);
        lines.extend([leader_line(self.election, seat, age, now, width, paint), String::new()]);
        if candidates.is_empty() {
            lines.push(paint.yellow("no candidates"));
        } else {
            lines.extend(table(candidates, now, width, paint));
        }
        lines.push(String::new());
        lines.extend(self.changes.iter().rev().map(|(at, change)| change.line(*at, None, paint)));
        lines
    }
}

/// Formats the time, the store and its problem, if it has one.
fn head(setup: &Setup, problem: Option<&str>, age: Duration, width: Option<usize>, paint: Paint) -> Vec<String> {
    let mut lines = vec![paint.dim(cut(&format!("{}, {}", timestamp(SystemTime::now()), setup.shown()), width))];
    if let Some(problem) = problem {
        let problem = format!("store error, retrying: {problem}; last read {} ago", span(age));
        lines.push(paint.red(cut(&printable(&problem), width)));
    }
    lines
}

/// Formats the leader, its term, and when its lease expires. The seat was read `age` ago.
fn leader_line(
    election: &str,
    seat: &SeatStatus,
    age: Duration,
    now: SystemTime,
    width: Option<usize>,
    paint: Paint,
) -> String {
    let name = printable(election);
    let Some(leader) = &seat.leader else {
        let last = seat.token.get();
        let words = if last == 0 { "no candidate has led yet".to_owned() } else { format!("last term: {last}") };
        return paint.yellow(cut(&format!("{name} is vacant ({words})"), width));
    };
    let since = leader.since.map(|since| format!(", elected {} ago", span(ago(since, now)))).unwrap_or_default();
    let expires = match seat.expires_in {
        Some(left) => format!(", its lease expires in {}", span(left.saturating_sub(age))),
        None if seat.vouched => String::new(),
        None => " (as last recorded: the store does not know whether it is alive)".to_owned(),
    };
    paint.green(cut(&format!("{} leads {name}{since}{expires}", leader_words(leader)), width))
}

async fn read(elections: Elections, election: String) -> Result<Snapshot, Error> {
    Ok((elections.look(&election).await?, elections.candidates(&election).await?))
}

/// Returns the next event; waits forever while there is no source, and after its last event.
async fn next(source: &mut Option<(Elections, Observer, Events)>) -> EventKind {
    if let Some((_, _, events)) = source
        && let Some(event) = events.next().await
    {
        return event.kind;
    }
    std::future::pending().await
}
