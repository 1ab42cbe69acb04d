//! Exports the spans and metrics of elections to OpenTelemetry. This example keeps them in memory and prints them.
//! Pass the exporters of the crate `opentelemetry-otlp` to `install` to send them to a collector.

use std::collections::HashMap;
use std::error::Error;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanExporter};
use tenure::{Elections, MemoryStore};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (spans, metrics) = (InMemorySpanExporter::default(), InMemoryMetricExporter::default());
    let exporting = install(spans.clone(), metrics.clone())?;
    lead_once().await?;
    exporting.flush()?;
    for span in spans.get_finished_spans()? {
        println!("span {} {:?}", span.name, span.attributes);
    }
    for metric in metrics.get_finished_metrics()?.iter().flat_map(|all| all.scope_metrics()) {
        metric.metrics().for_each(|metric| println!("metric {} {:?}", metric.name(), metric.data()));
    }
    Ok(())
}

/// Leads an election for a moment.
pub(crate) async fn lead_once() -> Result<(), Box<dyn Error>> {
    let elections = Elections::new(MemoryStore::new());
    let election = elections.election("nightly-jobs").candidate("a").start()?;
    election.run_while_leader(async |term| println!("leading with token {}", term.token())).await?;
    election.stop();
    // Also waits until all spans are closed and all metrics are updated.
    election.stopped().await;
    Ok(())
}

/// The providers, which must live until the process ends.
pub(crate) struct Exporting {
    spans: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Exporting {
    pub(crate) fn flush(&self) -> Result<(), Box<dyn Error>> {
        self.spans.force_flush()?;
        self.metrics.force_flush()?;
        Ok(())
    }
}

/// Installs a subscriber and a recorder that export. Call it before the first election starts.
pub(crate) fn install(
    spans: impl SpanExporter + 'static,
    metrics: impl PushMetricExporter,
) -> Result<Exporting, Box<dyn Error>> {
    let spans = SdkTracerProvider::builder().with_batch_exporter(spans).build();
    let metrics = SdkMeterProvider::builder().with_periodic_exporter(metrics).build();
    tracing_subscriber::registry()
        // With INFO, only the spans of terms are exported.
        .with(Targets::new().with_target("tenure", LevelFilter::DEBUG))
        .with(tracing_opentelemetry::layer().with_tracer(spans.tracer("tenure")))
        .try_init()?;
    metrics::set_global_recorder(Bridge::new(metrics.meter("tenure")))?;
    Ok(Exporting { spans, metrics })
}

/// Passes the metrics of the facade `metrics` to OpenTelemetry.
struct Bridge {
    meter: Meter,
    counters: Kept<Counter>,
    gauges: Kept<Gauge>,
    histograms: Kept<Histogram>,
    units: Mutex<HashMap<KeyName, &'static str>>,
}

/// One instrument for each name and set of labels, which is created once and used for every update.
type Kept<T> = Mutex<HashMap<Key, T>>;

impl Bridge {
    fn new(meter: Meter) -> Self {
        Self {
            meter,
            counters: Kept::default(),
            gauges: Kept::default(),
            histograms: Kept::default(),
            units: Mutex::default(),
        }
    }

    fn describe(&self, name: KeyName, unit: Option<Unit>) {
        let unit = if unit == Some(Unit::Seconds) { "s" } else { "1" };
        self.units.lock().unwrap_or_else(PoisonError::into_inner).insert(name, unit);
    }

    fn unit(&self, key: &Key) -> &'static str {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.get(key.name()).copied().unwrap_or("1")
    }
}

impl Recorder for Bridge {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(name, unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(name, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        kept(&self.counters, key, || {
            let counter = self.meter.u64_counter(key.name().to_owned()).with_unit(self.unit(key)).build();
            Counter::from_arc(Arc::new(Instrument(attributes(key), counter)))
        })
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        kept(&self.gauges, key, || {
            let gauge = self.meter.f64_gauge(key.name().to_owned()).with_unit(self.unit(key)).build();
            Gauge::from_arc(Arc::new(Instrument(attributes(key), gauge)))
        })
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        kept(&self.histograms, key, || {
            let mut histogram = self.meter.f64_histogram(key.name().to_owned()).with_unit(self.unit(key));
            if let Some((_, bounds)) = tenure::telemetry::buckets().find(|(metric, _)| *metric == key.name()) {
                histogram = histogram.with_boundaries(bounds.to_vec());
            }
            Histogram::from_arc(Arc::new(Instrument(attributes(key), histogram.build())))
        })
    }
}

fn kept<K: Clone + Eq + Hash, T: Clone>(all: &Mutex<HashMap<K, T>>, key: &K, make: impl FnOnce() -> T) -> T {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    match all.get(key) {
        Some(instrument) => instrument.clone(),
        None => all.entry(key.clone()).or_insert_with(make).clone(),
    }
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned())).collect()
}

/// An instrument of OpenTelemetry, with the attributes of its updates.
struct Instrument<T>(Vec<KeyValue>, T);

impl metrics::CounterFn for Instrument<opentelemetry::metrics::Counter<u64>> {
    fn increment(&self, value: u64) {
        self.1.add(value, &self.0);
    }

    fn absolute(&self, _: u64) {
        // Tenure only increments.
    }
}

impl metrics::GaugeFn for Instrument<opentelemetry::metrics::Gauge<f64>> {
    fn increment(&self, _: f64) {
        // Tenure only sets.
    }

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.1.record(value, &self.0);
    }
}

impl metrics::HistogramFn for Instrument<opentelemetry::metrics::Histogram<f64>> {
    fn record(&self, value: f64) {
        self.1.record(value, &self.0);
    }
}
