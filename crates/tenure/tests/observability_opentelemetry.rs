//! The example that exports to OpenTelemetry: the spans and metrics of a term arrive with their fields.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;

use ::opentelemetry::KeyValue;
use ::opentelemetry::trace::SpanId;
use opentelemetry_sdk::metrics::InMemoryMetricExporter;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};

#[path = "../examples/opentelemetry.rs"]
#[allow(dead_code, reason = "its main is not called")]
mod example;

fn shown<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|pair| (pair.key.to_string(), pair.value.to_string())).collect()
}

#[tokio::test]
async fn the_spans_and_metrics_of_a_term_arrive_with_their_fields() {
    let (spans, metrics) = (InMemorySpanExporter::default(), InMemoryMetricExporter::default());
    let exporting = example::install(spans.clone(), metrics.clone()).unwrap();
    example::lead_once().await.unwrap();
    exporting.flush().unwrap();

    // On a slow machine there can be a renewal.
    let is_renewal = |span: &SpanData| span.name == "tenure.renew";
    let spans: Vec<_> = spans.get_finished_spans().unwrap().into_iter().filter(|span| !is_renewal(span)).collect();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
    assert_eq!(names, ["tenure.acquire", "tenure.term", "tenure.release"]);
    for (span, outcome) in spans.iter().zip(["done", "stopped", "done"]) {
        let fields = shown(&span.attributes);
        let of = |name: &str| fields.get(name).map(String::as_str);
        assert_eq!((of("election"), of("candidate")), (Some("nightly-jobs"), Some("a")), "{fields:?}");
        assert_eq!((of("token"), of("outcome")), (Some("1"), Some(outcome)), "{fields:?}");
        assert!(span.attributes.contains(&KeyValue::new("token", 1_i64)), "a number stays one");
        assert_eq!(span.parent_span_id, SpanId::INVALID);
    }
    let lines: Vec<_> = spans[1].events.iter().map(|event| event.name.as_ref()).collect();
    assert_eq!(
        lines,
        ["this candidate leads", "the election has a new leader", "this candidate stops leading", "the term is over"]
    );

    let all = metrics.get_finished_metrics().unwrap();
    let of = |name: &str| {
        let metrics = all.iter().flat_map(|all| all.scope_metrics()).flat_map(|scope| scope.metrics());
        metrics.filter(|metric| metric.name() == name).last().unwrap_or_else(|| panic!("{name} is missing"))
    };
    let labels = BTreeMap::from(
        [("election", "nightly-jobs"), ("candidate", "a"), ("store", "memory")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    let AggregatedMetrics::F64(MetricData::Gauge(leads)) = of("tenure_is_leader").data() else { panic!("no gauge") };
    let leads: Vec<_> = leads.data_points().map(|point| (shown(point.attributes()), point.value())).collect();
    assert_eq!(leads, [(labels.clone(), 0.0)]);
    let AggregatedMetrics::U64(MetricData::Sum(terms)) = of("tenure_terms_total").data() else { panic!("no counter") };
    let terms: Vec<_> = terms.data_points().map(|point| (shown(point.attributes()), point.value())).collect();
    assert_eq!(terms, [(labels, 1)]);
    let length = of("tenure_term_seconds");
    assert_eq!(length.unit(), "s");
    let AggregatedMetrics::F64(MetricData::Histogram(length)) = length.data() else { panic!("no histogram") };
    let length = length.data_points().next().unwrap();
    assert_eq!((length.count(), length.bounds().last()), (1, Some(7_776_000.0)));
}
