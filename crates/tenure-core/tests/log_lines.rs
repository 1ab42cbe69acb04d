//! Log lines and spans: one line for each change of state and no more, and one span for each term and each write.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::layers::Traced;
use tenure_core::memory::Memory;
use tenure_core::{Elections, Fault, LifeKind, ManualClock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Records all lines of this project, as "LEVEL message field=value …", and the events of its spans.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>, Arc<Mutex<Spans>>);

#[derive(Default)]
struct Spans {
    /// All events in order, including lines: "+span", "span: line", "-span".
    story: Vec<String>,
    /// The fields and the parent of each span, by its id.
    opened: Vec<String>,
    entered: Vec<u64>,
    closed: Vec<u64>,
}

impl Spans {
    fn name(&self, id: u64) -> &str {
        self.opened[id as usize - 1].split(' ').next().unwrap_or_default()
    }
}

/// The fields of a span or line, and its message separately.
#[derive(Default)]
struct Fields(String, String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        } else if field.name() != "took" {
            write!(self.1, " {}={value:?}", field.name()).unwrap();
        }
    }
}

impl Lines {
    fn take(&self) -> Vec<String> {
        assert!(tenure_core::log::flush(Duration::from_secs(60)));
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure")
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        assert_eq!(std::thread::current().name(), Some("tenure-log"));
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut spans = self.1.lock().unwrap();
        let parent = attributes.parent().map_or("", |parent| spans.name(parent.into_u64()));
        let parent = if parent.is_empty() { String::new() } else { format!(" in {parent}") };
        let metadata = attributes.metadata();
        spans.opened.push(format!("{} {}{parent}{}", metadata.name(), metadata.level(), fields.1));
        spans.story.push(format!("+{}", metadata.name()));
        span::Id::from_u64(spans.opened.len() as u64)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.1.lock().unwrap().opened[id.into_u64() as usize - 1].push_str(&fields.1);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut spans = self.1.lock().unwrap();
        if *event.metadata().level() <= Level::INFO {
            let within = spans.entered.last().map_or("", |id| spans.name(*id));
            let line = format!("{within}: {}", fields.0);
            spans.story.push(line);
        }
        drop(spans);
        self.0.lock().unwrap().push(format!("{} {}{}", event.metadata().level(), fields.0, fields.1));
    }

    fn enter(&self, id: &span::Id) {
        self.1.lock().unwrap().entered.push(id.into_u64());
    }

    fn exit(&self, id: &span::Id) {
        assert_eq!(self.1.lock().unwrap().entered.pop(), Some(id.into_u64()));
    }

    fn try_close(&self, id: span::Id) -> bool {
        let mut spans = self.1.lock().unwrap();
        let line = format!("-{}", spans.name(id.into_u64()));
        spans.story.push(line);
        spans.closed.push(id.into_u64());
        true
    }
}

/// All in one test, because a process has one subscriber for all threads.
#[test]
fn every_change_of_state_is_one_line_and_every_call_one_more_if_asked_for() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let elections = Elections::with_clock(Traced::new(memory.store()), clock.clone());
    let changes = |all: Vec<String>| -> Vec<String> {
        all.into_iter().filter(|line| !line.starts_with(Level::DEBUG.as_str())).collect()
    };

    let election = elections.election("jobs").candidate("web-1").start().unwrap();
    clock.settle();
    let all = lines.take();
    assert_eq!(
        all[..2],
        [
            "DEBUG the store was called call=\"read\" seat=jobs outcome=\"none\"",
            "DEBUG the store was called call=\"swap\" seat=jobs outcome=\"done\""
        ]
    );
    assert_eq!(
        changes(all),
        [
            "INFO this candidate leads election=jobs candidate=web-1 token=1",
            "INFO the election has a new leader election=jobs leader=web-1 token=1"
        ]
    );

    // Renewals change no state, so they are not logged.
    clock.advance(Duration::from_secs(60));
    let all = lines.take();
    assert!(all.iter().any(|line| line.contains("call=\"renew\"") && line.contains("outcome=\"done\"")), "{all:?}");
    assert_eq!(changes(all), [""; 0]);

    // Three failures of the store are logged once, and its recovery once.
    for _ in 0..3 {
        memory.fail_next(Fault::Refused);
    }
    clock.advance(Duration::from_secs(10));
    assert_eq!(
        changes(lines.take()),
        [
            "WARN the store fails election=jobs candidate=web-1 store=\"memory\" error=the memory store refuses this call on purpose",
            "INFO the store works again election=jobs candidate=web-1"
        ]
    );

    election.stop();
    clock.settle();
    assert_eq!(
        changes(lines.take()),
        [
            "INFO this candidate stops leading election=jobs candidate=web-1 token=1 why=\"stopped\"",
            "INFO the term is over election=jobs candidate=web-1 token=1 why=\"stopped\"",
            "INFO the election has no leader election=jobs",
            "INFO the election has ended in this process election=jobs candidate=web-1 why=it was stopped"
        ]
    );

    let mut spans = lines.1.lock().unwrap();
    assert!(spans.entered.is_empty());
    let mut closed = std::mem::take(&mut spans.closed);
    closed.sort_unstable();
    assert!(closed.iter().copied().eq(1..=spans.opened.len() as u64), "each is closed once: {closed:?}");
    let of = "election=jobs candidate=web-1 token=1";
    assert_eq!(
        spans.opened[..2],
        [format!("tenure.acquire DEBUG {of} outcome=\"done\""), format!("tenure.term INFO {of} outcome=\"stopped\""),]
    );
    assert_eq!(spans.opened.last(), Some(&format!("tenure.release DEBUG {of} outcome=\"done\"")));
    let renewals = &spans.opened[2..spans.opened.len() - 1];
    let renewed = |outcome: &str| {
        let expected = format!("tenure.renew DEBUG in tenure.term {of} outcome={outcome:?}");
        renewals.iter().filter(|span| **span == expected).count()
    };
    assert_eq!((renewed("done") + renewed("refused"), renewed("refused")), (renewals.len(), 3), "{renewals:#?}");
    spans.story.retain(|entry| !entry.contains("tenure.renew"));
    assert_eq!(
        spans.story,
        [
            "+tenure.acquire",
            "-tenure.acquire",
            "+tenure.term",
            "tenure.term: this candidate leads",
            "tenure.term: the election has a new leader",
            "tenure.term: the store fails",
            "tenure.term: the store works again",
            "tenure.term: this candidate stops leading",
            "tenure.term: the term is over",
            "-tenure.term",
            "+tenure.release",
            ": the election has no leader",
            "-tenure.release",
            ": the election has ended in this process",
        ]
    );
}
