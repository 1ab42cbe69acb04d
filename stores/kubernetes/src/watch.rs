//! Hears what changes: one watch for all seats of a process.
//!
//! ```text
//!   list ──▶ watch ──▶ events: seats, requests, bookmarks ──▶ the engine
//!    ▲         │  ▲          │
//!    │         │  └──────────┴─ ended by the server, as watches are: goes on where it was
//!    │         ├─ another seat to hear of
//!    └─────────┘
//!              └─ too old (410), silent, cut, failed: returns, and the engine calls again after a pause
//! ```
//!
//! Only what carries the mark of one of our seats is asked for, so a process hears nothing of elections
//! that are not its own. A list tells of each seat as an event would. So a new list between two watches leaves no gap: what
//! it shows differs from what was told before if anything has happened in between.
//!
//! A watch that has nothing to say looks just like one that hangs, so it is held against what the store is
//! told elsewhere: whatever was read or written must come by here, too, within a third of its lease.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use futures_util::{AsyncBufReadExt, FutureExt, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use serde::Deserialize;
use tenure_core::{Fault, Interest, InterestChange, Moment, News, PushDetail, Scope, SeatName, StoreError};
use tokio::time::Instant;

use crate::api::Which;
use crate::lease::{Lease, revision};
use crate::names;
use crate::store::KubernetesStore;

/// The watch of a process. Once it is dropped, nothing is heard any more.
pub(crate) struct Watch<'a> {
    store: &'a KubernetesStore,
    news: &'a News,
    /// The seats to hear of and their leases, by mark.
    wanted: BTreeMap<String, (SeatName, Duration)>,
    /// Whether everything with a mark is heard of.
    hears_all: bool,
    /// Whether the role does not permit to watch.
    pub(crate) forbidden: bool,
}

/// More seats than this are not listed by name: then everything with a mark is heard of.
const MOST: usize = 40;
/// How long a watch may take to begin, if a third of the shortest lease is not less.
const PATIENCE: Duration = Duration::from_secs(10);
/// A watch that the server ends sooner than this has failed.
const LASTING: Duration = Duration::from_secs(1);
/// Seats that are asked for within this time are asked for together.
const TOGETHER: Duration = Duration::from_millis(5);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.store.seats().unwatch();
    }
}

impl<'a> Watch<'a> {
    pub(crate) fn new(store: &'a KubernetesStore, news: &'a News) -> Self {
        Self { store, news, wanted: BTreeMap::new(), hears_all: false, forbidden: false }
    }

    /// Listens until that fails.
    pub(crate) async fn listen(&mut self, interest: &Interest) -> Result<Infallible, StoreError> {
        loop {
            if let Some(deltas) = interest.next().now_or_never() {
                self.want(deltas);
            }
            while self.wanted.is_empty() {
                self.want(interest.next().await);
            }
            self.store.api.admit()?;
            let hears_all = self.wanted.len() > MOST;
            let which = self.which(hears_all);
            let mut by = self.deadline();
            let mut after = in_time(by, self.list(&which)).await?;
            'watch: loop {
                let watch = in_time(by, self.store.api.watch(&which, after)).await;
                self.forbidden = watch.as_ref().is_err_and(|error| error.fault() == Fault::Denied);
                let (connection, body) = watch?;
                self.begins(hears_all);
                let began = Instant::now();
                let mut lines = body.into_data_stream().map_err(std::io::Error::other).into_async_read().lines();
                loop {
                    tokio::select! {
                        line = lines.next() => match line {
                            Some(Ok(line)) => {
                                connection.hear();
                                after = after.max(self.take_line(&line)?);
                            }
                            Some(Err(error)) => return Err(StoreError::refused("the watch was cut").because(error)),
                            None if began.elapsed() < LASTING => {
                                return Err(StoreError::refused("the watch ends as soon as it begins"));
                            }
                            None => {
                                by = self.deadline();
                                break;
                            }
                        },
                        deltas = interest.next() => if self.want(deltas) {
                            tokio::time::sleep(TOGETHER).await;
                            break 'watch;
                        },
                        () = self.misses() => return Err(StoreError::refused("the watch hangs")),
                        () = connection.over() => return Err(StoreError::refused("the connection was given up")),
                    }
                }
            }
        }
    }

    /// Takes in which seats to hear of. Returns whether there is one that is not.
    fn want(&mut self, deltas: Vec<InterestChange>) -> bool {
        let (mut is_unheard, mut seats) = (false, self.store.seats());
        for InterestChange { seat, wanted } in deltas {
            let mark = names::mark_of(&seat);
            let Some(wanted) = wanted else {
                self.wanted.remove(&mark);
                seats.forget(&seat);
                continue;
            };
            let is_new = self.wanted.insert(mark, (seat.clone(), wanted.lease)).is_none();
            if is_new && self.hears_all {
                seats.watch(&seat);
            }
            is_unheard |= is_new && !self.hears_all;
            // Again, as another election may be about it now, or one of ours may have marked it.
            if seats.is_heard(&seat) {
                self.news.listening(Scope::Seat(&seat));
            }
        }
        is_unheard
    }

    /// What to ask for.
    fn which(&self, hears_all: bool) -> Which {
        let marks: Vec<_> = self.wanted.keys().map(String::as_str).collect();
        let seat = names::SEAT;
        Which::Labels(if hears_all { seat.to_owned() } else { format!("{seat} in ({})", marks.join(",")) })
    }

    /// Tells of everything that is there. Returns as of which revision.
    async fn list(&self, which: &Which) -> Result<u64, StoreError> {
        let list = self.store.api.list(which).await?;
        let at = self.store.now();
        self.store.seats().listed(list.revision);
        let mut there = BTreeSet::new();
        for object in &list.items {
            there.insert(object.metadata.name.as_str());
            self.take(object, true, object.revision()?, at);
        }
        for (seat, _) in self.wanted.values().filter(|(seat, _)| !there.contains(names::object_of(seat).as_str())) {
            let is_unmarked = self.store.seats().is_unmarked(seat);
            if !is_unmarked {
                self.say(seat, list.revision, PushDetail::Names(None), at);
            }
        }
        Ok(list.revision)
    }

    /// From now on, everything is heard that happens to the seats.
    fn begins(&mut self, hears_all: bool) {
        self.hears_all = hears_all;
        let mut seats = self.store.seats();
        for (seat, _) in self.wanted.values() {
            seats.watch(seat);
            if seats.is_heard(seat) {
                self.news.listening(Scope::Seat(seat));
            }
        }
    }

    /// Takes in one line of a watch, and returns its revision.
    ///
    /// # Errors
    /// If the server has failed, or has forgotten what comes next (410): there must be another list.
    fn take_line(&self, line: &str) -> Result<u64, StoreError> {
        let at = self.store.now();
        let nonsense = |error| StoreError::refused("the watch says something that is no event").because(error);
        let event: Event = serde_json::from_str(line).map_err(nonsense)?;
        if event.kind == "ERROR" {
            let status = format!("{} {}", event.object["code"], event.object["reason"]);
            return Err(StoreError::refused(format!("the API server has ended the watch: {status}")));
        }
        let object: Lease = serde_json::from_value(event.object).map_err(nonsense)?;
        let revision = revision(&object.metadata.resource_version)?;
        if event.kind != "BOOKMARK" {
            self.take(&object, event.kind != "DELETED", revision, at);
        }
        self.store.seats().come_by(revision);
        Ok(revision)
    }

    /// Tells of an object, if it belongs to one of the seats.
    fn take(&self, object: &Lease, is_there: bool, revision: u64, at: Moment) {
        let Some((seat, _)) = object.label(names::SEAT).and_then(|mark| self.wanted.get(mark)) else { return };
        if object.label(names::NOTE).is_some() {
            if is_there {
                self.news.request(seat);
            }
        } else if object.metadata.name == names::object_of(seat) {
            let said = match object.record(seat) {
                _ if !is_there => PushDetail::Names(None),
                Ok(record) => PushDetail::Names(Some((record.holder.map(|holder| holder.incarnation), record.token))),
                // A candidate that looks is told why it cannot be read.
                Err(_) => PushDetail::Nothing,
            };
            self.say(seat, revision, said, at);
        }
    }

    fn say(&self, seat: &SeatName, revision: u64, said: PushDetail, at: Moment) {
        let is_news = self.store.seats().hear(seat, revision, said, at);
        if is_news {
            self.news.holder(seat, said);
        }
    }

    /// Resolves when something should have come by, and has not.
    async fn misses(&self) {
        loop {
            let until = self.store.seats().awaits_until();
            match until {
                None => self.store.awaits.notified().await,
                Some(until) if Instant::now() >= until => return,
                Some(until) => tokio::time::sleep_until(until).await,
            }
        }
    }

    /// When to stop waiting for the watch to begin: if it takes longer, the engine should look by itself.
    fn deadline(&self) -> Instant {
        let shortest = self.wanted.values().map(|(_, lease)| *lease / 3).min();
        Instant::now() + shortest.unwrap_or(PATIENCE).min(PATIENCE)
    }
}

async fn in_time<T>(by: Instant, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let hangs = |_| Err(StoreError::refused("the API server does not answer"));
    tokio::time::timeout_at(by, call).await.unwrap_or_else(hangs)
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}
