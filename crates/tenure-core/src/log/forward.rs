//! Forwards `tracing` events of stores and their drivers from the engine's thread to the thread that logs.
//!
//! Stores and their drivers (hyper, h2, …) use the `tracing` macros. On the engine's thread these reach the forwarder,
//! which is the default subscriber of that thread. It copies the fields of an event and queues them with the metadata
//! of the event, so level, target, file and field names are preserved. Values are preserved as well, except that a
//! value recorded by its `Debug` arrives as text.
//!
//! Limits:
//! - Spans are disabled on that thread.
//! - For `tracing`, the default of a thread is a scoped subscriber. As soon as one exists, all threads of the process
//!   check for their own before they use the global one, which costs a thread-local read for each enabled event.
//! - `tracing` asks each subscriber once per callsite whether it is interested (`register_callsite`), on the thread
//!   that reaches the callsite first. A subscriber that blocks there can still block the engine. The engine's own
//!   lines avoid this, because their macros run on the thread that logs.
//! - The crate `log` has no default per thread: drivers that use it (tokio-postgres, rustls) call the logger on the
//!   thread on which they run.

use std::fmt::Debug;
use std::sync::OnceLock;

use tracing::dispatcher::{DefaultGuard, Dispatch, get_default, has_been_set, set_default};
use tracing::field::{Field, Value, Visit, display};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};

use super::QUEUE;

static FORWARDER: OnceLock<Dispatch> = OnceLock::new();

/// Creates the forwarder if the process has a subscriber. Do not call it on the engine's thread, because it calls the
/// subscriber.
///
/// Without a subscriber the forwarder is not created: it would count as a subscriber itself, and `tracing` would stop
/// logging through the crate `log` in the whole process.
pub(crate) fn prepare() {
    if has_been_set() {
        FORWARDER.get_or_init(|| Dispatch::new(Forwarder));
    }
}

/// Forwards the events of this thread while the guard exists, if the forwarder was created.
pub(crate) fn forward(guard: &mut Option<DefaultGuard>) {
    if guard.is_none() {
        *guard = FORWARDER.get().map(set_default);
    }
}

struct Forwarder;

impl Subscriber for Forwarder {
    /// Adds no interest of its own: a callsite that the process's subscriber has disabled stays disabled, and for all
    /// others `enabled` is called.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::never()
    }

    /// Does not raise the level of the process.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        QUEUE.push_and_run(Box::new(move || emit(metadata, &fields.0)));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Emits an event to the process's subscriber, if it is enabled there.
fn emit(metadata: &'static Metadata<'static>, fields: &[(Field, Box<dyn Value + Send>)]) {
    let Some((first, _)) = fields.first() else { return };
    let mut values: [(&Field, Option<&dyn Value>); MOST_FIELDS] = [(first, None); MOST_FIELDS];
    for (slot, (field, value)) in values.iter_mut().zip(fields) {
        *slot = (field, Some(&**value));
    }
    get_default(|subscriber| {
        if subscriber.enabled(metadata) {
            subscriber.event(&Event::new(metadata, &metadata.fields().value_set(&values)));
        }
    });
}

/// The largest number of fields of an event in `tracing`.
const MOST_FIELDS: usize = 32;

/// The copied fields of an event.
struct Fields(Vec<(Field, Box<dyn Value + Send>)>);

impl Fields {
    fn keep(&mut self, field: &Field, value: impl Value + Send + 'static) {
        self.0.push((field.clone(), Box::new(value)));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.keep(field, display(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.keep(field, value.to_owned());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.keep(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.keep(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.keep(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.keep(field, value);
    }
}
