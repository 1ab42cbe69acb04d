//! What is counted.
#![cfg(feature = "metrics")]

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tenure_core::layers::Measured;
use tenure_core::memory::Memory;
use tenure_core::{Elections, LifeKind, ManualClock};

#[test]
fn calls_terms_and_their_ends_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();

    let clock = ManualClock::new();
    let memory = Memory::of_kind(LifeKind::Clock, clock.clone());
    let elections = Elections::with_clock(Measured::new(memory.store()), clock.clone());
    let election = elections.election("jobs").start().unwrap();
    clock.advance(Duration::from_secs(12));
    memory.usurp("jobs");
    clock.settle();
    assert!(!election.is_leader());
    assert!(tenure_core::log::flush(Duration::from_secs(60)));

    let mut seen = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<String> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(value) => value.to_string(),
            DebugValue::Histogram(values) => format!("{} timed", values.len()),
        };
        seen.insert(format!("{}{{{}}}", key.key().name(), labels.join(",")), value);
    }
    let value = |name: &str| seen.get(name).map(String::as_str);
    assert_eq!(value("tenure_is_leader{election=jobs}"), Some("0"), "{seen:#?}");
    assert_eq!(value("tenure_terms_total{election=jobs}"), Some("1"), "{seen:#?}");
    assert_eq!(value("tenure_term_ends_total{election=jobs,why=seat_lost}"), Some("1"), "{seen:#?}");
    assert_eq!(value("tenure_store_calls_total{store=memory,call=swap,outcome=done}"), Some("1"), "{seen:#?}");
    // The first comes at a random time within five seconds, the others every five.
    let renewals = value("tenure_store_calls_total{store=memory,call=renew,outcome=done}").unwrap_or("0");
    assert!(matches!(renewals, "2" | "3"), "{seen:#?}");
    let timed = value("tenure_store_call_seconds{store=memory,call=renew}");
    assert_eq!(timed, Some(&*format!("{renewals} timed")), "{seen:#?}");
}
