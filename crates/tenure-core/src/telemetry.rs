//! Metrics of elections and stores, through the facade of the crate `metrics`.
//!
//! Install a recorder before the first election starts. The engine updates the metrics of elections. The layer
//! [`Measured`](crate::layers::Measured) counts and times calls to a store. All updates run on the thread that logs,
//! so a slow recorder delays no renewal.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `tenure_is_leader` | gauge: 1 while this candidate leads, otherwise 0 | E |
//! | `tenure_term_deadline_timestamp_seconds` | gauge: when the term ends unless it is renewed, as a Unix time; 0 without a term | E |
//! | `tenure_store_failing` | gauge: 1 from the first failed call until one succeeds, otherwise 0 | E |
//! | `tenure_terms_total` | counter: terms that began | E |
//! | `tenure_term_ends_total` | counter: terms that ended, by [`EndReason::label`](crate::EndReason::label) | E, `why` |
//! | `tenure_lost_bids_total` | counter: bids that came too late | E |
//! | `tenure_store_errors_total` | counter: changes from working to failing, or to another kind of failure | E |
//! | `tenure_handler_failures_total` | counter: handlers that panicked or returned an error | E |
//! | `tenure_leader_crashes_total` | counter: leaders that this candidate saw crash, and whose last will freed the seat | E |
//! | `tenure_overruns_total` | counter: terms whose work was still running after their end | E |
//! | `tenure_term_seconds` | histogram: from the beginning of a term to its end | E |
//! | `tenure_renewal_seconds` | histogram: from the request to renew the seat to the answer | E, `outcome` |
//! | `tenure_hand_over_seconds` | histogram: from another leader's end to the beginning of this candidate's term | E |
//! | `tenure_store_calls_total` | counter: calls to the store, for each seat in them | `store`, `call`, `outcome` |
//! | `tenure_store_call_seconds` | histogram: the same | `store`, `call` |
//!
//! E stands for `election`, `candidate` and `store`. Observers have no metrics. `docs/observability.md` defines each
//! metric exactly, and has alert rules.

use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::election::Shared;
use crate::{Error, EventKind, Moment, log};

pub(crate) const STORE_CALLS: &str = "tenure_store_calls_total";
pub(crate) const STORE_CALL: &str = "tenure_store_call_seconds";

const IS_LEADER: &str = "tenure_is_leader";
const DEADLINE: &str = "tenure_term_deadline_timestamp_seconds";
const FAILING: &str = "tenure_store_failing";
const TERMS: &str = "tenure_terms_total";
const TERM_ENDS: &str = "tenure_term_ends_total";
const LOST_BIDS: &str = "tenure_lost_bids_total";
const STORE_ERRORS: &str = "tenure_store_errors_total";
const HANDLER_FAILURES: &str = "tenure_handler_failures_total";
const LEADER_CRASHES: &str = "tenure_leader_crashes_total";
const OVERRUNS: &str = "tenure_overruns_total";
const TERM: &str = "tenure_term_seconds";
const RENEWAL: &str = "tenure_renewal_seconds";
const HAND_OVER: &str = "tenure_hand_over_seconds";

/// Buckets for calls, from a store in memory to a call that nearly times out.
const CALL_BUCKETS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Buckets for hand-overs, from a push over a local network to a store that was unreachable for minutes.
const HAND_OVER_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Buckets for terms: 1 s, 5 s, 15 s, 1 min, 5 min, 15 min, 1 h, 4 h, 1 d, 7 d, 30 d, 90 d.
const TERM_BUCKETS: &[f64] =
    &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0, 2_592_000.0, 7_776_000.0];

/// Returns the recommended upper bounds of the buckets of each histogram, in seconds.
///
/// Terms last from seconds to months, and renewals take milliseconds. So no single set of buckets fits both, and the
/// default of an exporter fits neither. For `metrics-exporter-prometheus`:
///
/// ```text
/// let mut prometheus = PrometheusBuilder::new();
/// for (metric, buckets) in tenure::telemetry::buckets() {
///     prometheus = prometheus.set_buckets_for_metric(Matcher::Full(metric.to_owned()), buckets)?;
/// }
/// prometheus.install()?;
/// ```
pub fn buckets() -> impl Iterator<Item = (&'static str, &'static [f64])> {
    [(TERM, TERM_BUCKETS), (RENEWAL, CALL_BUCKETS), (HAND_OVER, HAND_OVER_BUCKETS), (STORE_CALL, CALL_BUCKETS)]
        .into_iter()
}

/// Sends the unit and the description of each metric to the recorder.
///
/// The engine does this when the first election of the process starts. Call it if you install a recorder later than
/// that. Values are recorded in both cases.
pub fn describe() {
    describe_gauge!(IS_LEADER, Unit::Count, "1 while this candidate leads, otherwise 0");
    let deadline = "When the term ends unless it is renewed, as a Unix time; 0 without a term";
    describe_gauge!(DEADLINE, Unit::Seconds, deadline);
    describe_gauge!(FAILING, Unit::Count, "1 while calls to the store fail, otherwise 0");
    describe_counter!(TERMS, Unit::Count, "Terms of this candidate that began");
    describe_counter!(TERM_ENDS, Unit::Count, "Terms of this candidate that ended, by reason");
    describe_counter!(LOST_BIDS, Unit::Count, "Bids for a free seat that another candidate won");
    describe_counter!(STORE_ERRORS, Unit::Count, "Changes of the store from working to failing, or to another failure");
    describe_counter!(HANDLER_FAILURES, Unit::Count, "Handlers that panicked or returned an error");
    describe_counter!(LEADER_CRASHES, Unit::Count, "Leaders whose process died, and whose last will freed the seat");
    describe_counter!(OVERRUNS, Unit::Count, "Terms whose work was still running after their end");
    describe_histogram!(TERM, Unit::Seconds, "From the beginning of a term to its end");
    describe_histogram!(RENEWAL, Unit::Seconds, "From the request to renew the seat to the answer");
    describe_histogram!(
        HAND_OVER,
        Unit::Seconds,
        "From another leader's end to the beginning of this candidate's term"
    );
    describe_counter!(STORE_CALLS, Unit::Count, "Calls to the store, for each seat in them");
    describe_histogram!(STORE_CALL, Unit::Seconds, "How long a call to the store took, for each seat in it");
}

/// Describes all metrics once, and sets the metrics of this election to 0: a counter that first appears with its first
/// increment hides that increment from Prometheus' `increase()`.
pub(crate) fn started(shared: &Arc<Shared>) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| log::update(describe));
    update(shared, |shared| {
        for name in [IS_LEADER, DEADLINE, FAILING] {
            gauge!(name, labels(shared)).set(0.0);
        }
        for name in [TERMS, LOST_BIDS, STORE_ERRORS, HANDLER_FAILURES, LEADER_CRASHES, OVERRUNS] {
            counter!(name, labels(shared)).increment(0);
        }
    });
}

/// Updates the metrics for an event.
pub(crate) fn count(shared: &Arc<Shared>, event: &EventKind) {
    let increment = |name: &'static str| update(shared, move |shared| counter!(name, labels(shared)).increment(1));
    let set = |name: &'static str, value: f64| update(shared, move |shared| gauge!(name, labels(shared)).set(value));
    match event {
        EventKind::BecameLeader { .. } => {
            set(IS_LEADER, 1.0);
            increment(TERMS);
        }
        EventKind::Ending { .. } => set(IS_LEADER, 0.0),
        EventKind::LostLeadership { why, .. } => {
            let why = why.label();
            update(shared, move |shared| counter!(TERM_ENDS, labels_and(shared, "why", why)).increment(1));
        }
        EventKind::LostBid => increment(LOST_BIDS),
        EventKind::LeaderCrashed { .. } => increment(LEADER_CRASHES),
        EventKind::Error { error } => match &**error {
            Error::Store(_) => {
                set(FAILING, 1.0);
                increment(STORE_ERRORS);
            }
            Error::Handler { .. } => increment(HANDLER_FAILURES),
            _ => {}
        },
        EventKind::Recovered | EventKind::Stopped { .. } => set(FAILING, 0.0),
        EventKind::Overran { .. } => increment(OVERRUNS),
        _ => {}
    }
}

/// Records the new deadline of a term.
pub(crate) fn extended(shared: &Arc<Shared>, until: Moment) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let deadline = (now + until.since(shared.clock.now())).as_secs_f64();
    update(shared, move |shared| gauge!(DEADLINE, labels(shared)).set(deadline));
}

/// Records the time and the outcome of a renewal.
pub(crate) fn renewed(shared: &Arc<Shared>, took: Duration, outcome: &'static str) {
    update(shared, move |shared| histogram!(RENEWAL, labels_and(shared, "outcome", outcome)).record(took));
}

/// Records the length of a term that has ended.
pub(crate) fn term_ended(shared: &Arc<Shared>, length: Duration) {
    update(shared, move |shared| {
        gauge!(DEADLINE, labels(shared)).set(0.0);
        histogram!(TERM, labels(shared)).record(length);
    });
}

/// Records the time of a hand-over to this candidate.
pub(crate) fn handed_over(shared: &Arc<Shared>, after: Duration) {
    update(shared, move |shared| histogram!(HAND_OVER, labels(shared)).record(after));
}

fn update(shared: &Arc<Shared>, metric: impl FnOnce(&Shared) + Send + 'static) {
    let shared = shared.clone();
    log::update(move || metric(&shared));
}

/// Returns the labels of a metric about an election. They share their text with the election, without a copy.
fn labels(shared: &Shared) -> Vec<Label> {
    let mut labels = Vec::with_capacity(4);
    labels.push(Label::new("election", shared.name.shared()));
    labels.push(Label::new("candidate", shared.candidate.id.clone()));
    labels.push(Label::from_static_parts("store", shared.store));
    labels
}

fn labels_and(shared: &Shared, name: &'static str, value: &'static str) -> Vec<Label> {
    let mut labels = labels(shared);
    labels.push(Label::from_static_parts(name, value));
    labels
}
