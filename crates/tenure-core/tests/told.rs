//! What is logged and counted: one line for each change of state, and no more.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::layers::Traced;
use tenure_core::memory::Memory;
use tenure_core::{Elections, Fault, LifeKind, ManualClock};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Keeps every line of this project, as "LEVEL message field=value …".
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

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

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
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
        let mut fields = Fields(String::new(), String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(format!("{} {}{}", event.metadata().level(), fields.0, fields.1));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// In one test, as there is one subscriber for all threads of a process.
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
            "DEBUG store call call=\"read\" seat=jobs outcome=\"none\"",
            "DEBUG store call call=\"swap\" seat=jobs outcome=\"done\""
        ]
    );
    assert_eq!(
        changes(all),
        ["INFO leads election=jobs candidate=web-1 token=1", "INFO has a leader election=jobs leader=web-1 token=1"]
    );

    // Renewals change nothing, so nothing is said of them.
    clock.advance(Duration::from_secs(60));
    let all = lines.take();
    assert!(all.iter().any(|line| line.contains("call=\"renew\"") && line.contains("outcome=\"done\"")), "{all:?}");
    assert_eq!(changes(all), [""; 0]);

    // A store that fails three times is told once, and that it works again once.
    for _ in 0..3 {
        memory.fail_next(Fault::Refused);
    }
    clock.advance(Duration::from_secs(10));
    assert_eq!(
        changes(lines.take()),
        [
            "WARN the store fails election=jobs candidate=web-1 store=\"memory\" error=the memory was told to refuse this",
            "INFO the store works again election=jobs candidate=web-1"
        ]
    );

    election.stop();
    clock.settle();
    assert_eq!(
        changes(lines.take()),
        [
            "INFO stops leading election=jobs candidate=web-1 token=1 why=\"stopped\"",
            "INFO the term is over election=jobs candidate=web-1 token=1 why=\"stopped\"",
            "INFO has no leader election=jobs",
            "INFO has ended here election=jobs candidate=web-1 why=it was stopped"
        ]
    );
}
