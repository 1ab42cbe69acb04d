//! `tracing` events of stores and their drivers, forwarded from the engine's thread to the thread that logs.
//!
//! Stores and the drivers below them (hyper, h2, …) use the `tracing` macros as any program does. On the engine's
//! thread these reach a subscriber of our own, that thread's default: it copies the fields of an event and hands
//! them over with the event's own metadata, so level, target, file and field names are as written. Values
//! arrive as they were recorded, except for what was recorded by its `Debug`: that arrives as its text.
//!
//! Limits:
//! - Spans are switched off on that thread.
//! - For `tracing`, a default of a thread is a scoped subscriber: all threads of the process look for one of their
//!   own before they use the global one, which costs them a thread-local read for each event that is enabled.
//! - `tracing` asks each subscriber once per callsite whether it is interested (`register_callsite`), on the
//!   thread that reaches the callsite first. A subscriber that blocks in there can still block the engine. The
//!   engine's own lines avoid that, too, by running their macros on the thread that logs.
//! - The crate `log` has no default per thread: a logger of `log` is called by drivers that use it (tokio-postgres,
//!   rustls) on the thread that they run on.

use std::fmt::Debug;
use std::sync::OnceLock;

use tracing::dispatcher::{DefaultGuard, Dispatch, get_default, has_been_set, set_default};
use tracing::field::{Field, Value, Visit, display};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};

use super::QUEUE;

static FORWARDER: OnceLock<Dispatch> = OnceLock::new();

/// Makes the forwarder, if the process has a subscriber. Not on the engine's thread: this calls the subscriber.
///
/// Without one there is nothing to forward to, and the forwarder would count as one: `tracing` would stop to log
/// through the crate `log` in the whole process.
pub(crate) fn prepare() {
    if has_been_set() {
        FORWARDER.get_or_init(|| Dispatch::new(Forwarder));
    }
}

/// Forwards the events of this thread for as long as the guard lives, once the forwarder was made.
pub(crate) fn forward(guard: &mut Option<DefaultGuard>) {
    if guard.is_none() {
        *guard = FORWARDER.get().map(set_default);
    }
}

struct Forwarder;

impl Subscriber for Forwarder {
    /// Adds nothing to what the process's subscriber wants: a callsite that it switched off stays off, and on
    /// all others `enabled` is asked.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::never()
    }

    /// Nor does this raise the level of the process.
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

/// Hands an event to the process's subscriber, if that wants it.
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

/// As many as `tracing` has long allowed for.
const MOST_FIELDS: usize = 32;

/// The fields of an event, owned.
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
