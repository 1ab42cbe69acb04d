//! The watch: one for all seats of a process.
//!
//! ```text
//!   list ──▶ watch ──▶ events: seats, requests, bookmarks ──▶ the engine
//!    ▲         │  ▲          │
//!    │         │  └──────────┴─ ended by the server after a while: continues from the last revision
//!    │         ├─ another seat to watch
//!    ├─────────┤
//!    └─────────┴─ no event for longer than the leader waits to renew
//!              └─ revision too old (410), silent, cut off, failed: returns, and the engine calls again after a pause
//! ```
//!
//! It selects only objects with the label of one of its seats, so a process receives no events of other
//! elections. A list is reported like events, one for each seat. So a new list between two watches leaves no gap:
//! if anything happened in between, the list differs from the last report.
//!
//! A watch without events looks the same as one that hangs. The store recognises a watch that hangs in two ways, which
//! cost no request while it works. A leader renews its seat every third of its lease, or as often as the watch has seen
//! in its term, so while a seat is held there is an event that often; without one, the store lists the seats and watches
//! again. And the watch must report every object that the store reads or writes, within a third of its lease.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use futures_util::{AsyncBufReadExt, FutureExt, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use serde::Deserialize;
use tenure_core::{Fault, Interest, InterestChange, Moment, News, PushDetail, Scope, SeatName, StoreError};
use tenure_kit::Connection;
use tokio::time::Instant;

use crate::api::Which;
use crate::lease::{Lease, revision};
use crate::names;
use crate::seats::Report;
use crate::store::KubernetesStore;

/// The watch of a process. Dropping it ends all reports.
pub(crate) struct Watch<'a> {
    store: &'a KubernetesStore,
    news: &'a News,
    /// The seats to watch and their leases, by label.
    wanted: BTreeMap<String, (SeatName, Duration)>,
    /// Whether the watch selects all objects with a seat label.
    selects_all: bool,
    /// Whether the role does not permit watching.
    pub(crate) forbidden: bool,
}

/// If there are more seats than this, the watch selects all objects with a seat label instead of naming each.
const MAX_NAMED: usize = 40;
/// The time limit for a watch to begin, unless a third of the shortest lease is less.
const PATIENCE: Duration = Duration::from_secs(10);
/// A watch that the server ends sooner than this has failed.
const MIN_DURATION: Duration = Duration::from_secs(1);
/// Seats that are added within this time share a new watch.
const GATHER: Duration = Duration::from_millis(5);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.store.seats().unwatch();
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn new(store: &'a KubernetesStore, news: &'a News) -> Self {
        Self { store, news, wanted: BTreeMap::new(), selects_all: false, forbidden: false }
    }

    /// Watches until the watch fails.
    pub(crate) async fn listen(&mut self, interest: &Interest) -> Result<Infallible, StoreError> {
        let mut was_silent = false;
        loop {
            if let Some(deltas) = interest.next().now_or_never() {
                self.update_interest(deltas);
            }
            while self.wanted.is_empty() {
                self.update_interest(interest.next().await);
            }
            self.store.seats().retain(|seat| self.wanted.contains_key(&names::label_of(seat)));
            self.store.api.admit()?;
            let selects_all = self.wanted.len() > MAX_NAMED;
            let which = self.which(selects_all);
            let mut by = if was_silent { self.deadline_after_silence() } else { self.deadline() };
            was_silent = false;
            let mut after = before_deadline(by, self.list(&which)).await?;
            'watch: loop {
                let watch = before_deadline(by, self.store.api.watch(&which, after)).await;
                self.forbidden = watch.as_ref().is_err_and(|error| error.fault() == Fault::Denied);
                let (connection, body) = watch?;
                self.established(selects_all);
                let (began, mut heard) = (Instant::now(), Instant::now());
                let mut lines = body.into_data_stream().map_err(std::io::Error::other).into_async_read().lines();
                loop {
                    tokio::select! {
                        line = lines.next() => match line {
                            Some(Ok(line)) => {
                                connection.liveness().heard();
                                heard = Instant::now();
                                after = after.max(self.take_line(&line)?);
                            }
                            Some(Err(error)) => return Err(StoreError::refused("the watch was cut off").because(error)),
                            None if began.elapsed() < MIN_DURATION => {
                                return Err(StoreError::refused("the API server ended the watch as soon as it began"));
                            }
                            None => {
                                by = self.deadline();
                                break;
                            }
                        },
                        deltas = interest.next() => if self.update_interest(deltas) {
                            tokio::time::sleep(GATHER).await;
                            break 'watch;
                        },
                        () = self.missed_renewal(heard) => {
                            was_silent = true;
                            break 'watch;
                        }
                        () = self.missed_echo() => return Err(StoreError::refused("the watch misses known changes")),
                        () = connection.liveness().closed() => return Err(StoreError::refused("the connection was closed")),
                    }
                }
            }
        }
    }

    /// Applies changes of the engine's interest. Returns whether there is a seat that the watch does not cover.
    fn update_interest(&mut self, deltas: Vec<InterestChange>) -> bool {
        let (mut is_uncovered, mut seats) = (false, self.store.seats());
        for InterestChange { seat, wanted } in deltas {
            let label = names::label_of(&seat);
            let Some(wanted) = wanted else {
                self.wanted.remove(&label);
                seats.forget(&seat);
                continue;
            };
            let is_new = self.wanted.insert(label, (seat.clone(), wanted.lease)).is_none();
            if is_new && self.selects_all {
                seats.watch(&seat);
            }
            is_uncovered |= is_new && !self.selects_all;
            // Repeated, because another election may use the seat now, or a candidate of Tenure may have labelled
            // it.
            if seats.is_reported(&seat) {
                self.news.listening(Scope::Seat(&seat));
            }
        }
        is_uncovered
    }

    /// Returns the selector of the watch.
    fn which(&self, selects_all: bool) -> Which {
        let labels: Vec<_> = self.wanted.keys().map(String::as_str).collect();
        let seat = names::SEAT;
        Which::Labels(if selects_all { seat.to_owned() } else { format!("{seat} in ({})", labels.join(",")) })
    }

    /// Reports the current state of all seats. Returns its revision.
    async fn list(&self, which: &Which) -> Result<u64, StoreError> {
        let list = self.store.api.list(which).await?;
        let at = self.store.now();
        self.store.seats().listed(list.revision);
        let mut found = BTreeSet::new();
        for object in &list.items {
            found.insert(object.metadata.name.as_str());
            self.take(object, true, object.revision()?, at, false);
        }
        for (seat, _) in self.wanted.values().filter(|(seat, _)| !found.contains(names::object_of(seat).as_str())) {
            let is_unlabelled = self.store.seats().is_unlabelled(seat);
            if !is_unlabelled {
                self.report(seat, missing(list.revision, at));
            }
        }
        Ok(list.revision)
    }

    /// Records that the watch covers its seats from now on, and tells the engine.
    fn established(&mut self, selects_all: bool) {
        self.selects_all = selects_all;
        let mut seats = self.store.seats();
        for (seat, _) in self.wanted.values() {
            seats.watch(seat);
            if seats.is_reported(seat) {
                self.news.listening(Scope::Seat(seat));
            }
        }
    }

    /// Processes one line of the watch, and returns its revision.
    ///
    /// # Errors
    /// Returns an error if the server failed, or no longer has the next events (410). Then another list is
    /// needed.
    fn take_line(&self, line: &str) -> Result<u64, StoreError> {
        let at = self.store.now();
        let invalid = |error| StoreError::refused("the API server sent an invalid event").because(error);
        let event: Event = serde_json::from_str(line).map_err(invalid)?;
        if event.kind == "ERROR" {
            let status = format!("{} {}", event.object["code"], event.object["reason"]);
            return Err(StoreError::refused(format!("the API server ended the watch: {status}")));
        }
        let object: Lease = serde_json::from_value(event.object).map_err(invalid)?;
        let revision = revision(&object.metadata.resource_version)?;
        if event.kind != "BOOKMARK" {
            self.take(&object, event.kind != "DELETED", revision, at, true);
        }
        self.store.seats().advance_to(revision);
        Ok(revision)
    }

    /// Reports an object, if it belongs to one of the seats.
    fn take(&self, object: &Lease, exists: bool, revision: u64, at: Moment, is_event: bool) {
        let Some((seat, _)) = object.label(names::SEAT).and_then(|label| self.wanted.get(label)) else { return };
        if object.label(names::NOTE).is_some() {
            if exists {
                self.news.request(seat);
            }
        } else if object.metadata.name == names::object_of(seat) {
            let report = missing(revision, at);
            let report = match object.record(seat) {
                _ if !exists => report,
                Ok(record) => {
                    let detail = PushDetail::Names(Some(record.names()));
                    Report { detail, lease: record.lease, is_event, ..report }
                }
                // A candidate that reads the seat gets the error.
                Err(_) => Report { detail: PushDetail::Nothing, ..report },
            };
            self.report(seat, report);
        }
    }

    fn report(&self, seat: &SeatName, report: Report) {
        let is_change = self.store.seats().record_report(seat, report);
        if is_change {
            self.news.holder(seat, report.detail);
        }
    }

    /// Resolves when a seat is held and the watch has reported nothing since `heard`, although the leader would have
    /// renewed the seat.
    async fn missed_renewal(&self, heard: Instant) {
        let shortest = {
            let seats = self.store.seats();
            self.wanted.values().filter_map(|(seat, _)| seats.renewed_every(seat)).min()
        };
        match shortest {
            // A tenth is for the way of the renewal.
            Some(every) => tokio::time::sleep_until(heard + every + every / 10).await,
            None => std::future::pending().await,
        }
    }

    /// Resolves when the watch has not reported something by its deadline.
    async fn missed_echo(&self) {
        loop {
            let until = self.store.seats().echo_deadline();
            match until {
                None => self.store.echo_awaited.notified().await,
                Some(until) if Instant::now() >= until => return,
                Some(until) => tokio::time::sleep_until(until).await,
            }
        }
    }

    /// Returns the deadline for the watch to begin. If it takes longer, the engine must poll.
    fn deadline(&self) -> Instant {
        let shortest = self.wanted.values().map(|(_, lease)| *lease / 3).min();
        Instant::now() + shortest.unwrap_or(PATIENCE).min(PATIENCE)
    }

    /// Returns the deadline for the watch to begin again after it was silent. It is near, because the connections of
    /// the pool may be dead as well.
    fn deadline_after_silence(&self) -> Instant {
        let now = Instant::now();
        now + (self.deadline() - now) / 4
    }
}

/// Reports that a seat does not exist.
fn missing(revision: u64, at: Moment) -> Report {
    Report { revision, detail: PushDetail::Names(None), lease: Duration::ZERO, at, is_event: false }
}

async fn before_deadline<T>(by: Instant, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let hangs = |_| Err(StoreError::refused("the API server did not answer in time"));
    tokio::time::timeout_at(by, call).await.unwrap_or_else(hangs)
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}
