//! Captures log lines for tests.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tracing::field::Field;
use tracing::{Event, Metadata, Subscriber, span};

/// A `tracing` subscriber that keeps each line of this project as "LEVEL message field=value …". Clones share their
/// lines.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Returns all lines so far that contain this text.
    pub fn with(&self, text: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.iter().filter(|line| line.contains(text)).cloned().collect()
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
        let (mut message, mut fields) = (String::new(), String::new());
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            let _ = match field.name() {
                "message" => write!(message, "{value:?}"),
                name => write!(fields, " {name}={value:?}"),
            };
        });
        let line = format!("{} {message}{fields}", event.metadata().level());
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
