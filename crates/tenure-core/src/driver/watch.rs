//! The one watch of the store, and its notifications as inputs of the machines that they concern.
//!
//! [`Subscriptions`](tenure_protocol::Subscriptions) decides which elections a notification concerns.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tenure_protocol::{Input, Notification, Push, Record, Seat, Watching};
use tracing::{Level, debug};

use super::calls::{Answer, panicked};
use super::misbehaviour::Misbehaviour;
use super::{Driver, Due, ElectionId, NOBODY};
use crate::{SeatInterest, Seen, StoreError, log};

/// The first and the longest pause before an ended watch is started again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A store that has not started to listen after this time is reported.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);
/// The number of notifications at once that counts as a flood.
const FLOOD: u64 = 10_000;
/// After a watch that listened for this long, the next pause is short again.
const LASTING: Duration = Duration::from_secs(1);

impl Driver {
    /// Subscribes an election to changes of its seat, before its first read.
    pub(super) fn subscribe(&mut self, election: ElectionId) {
        let shared = self.entries[&election].shared.clone();
        self.interest.want(shared.name.clone(), SeatInterest { lease: shared.lease, seen: None });
        let mut notifications = Vec::new();
        self.subscriptions.begin(election, shared.name.clone(), &mut notifications);
        self.deliver(notifications);
        if self.watching.is_none() && self.store.promises().push != Push::None {
            self.watch_store();
        }
    }

    pub(super) fn unsubscribe(&mut self, election: ElectionId) {
        if let Some(seat) = self.subscriptions.end(election) {
            self.interest.drop_seat(&seat);
        }
    }

    /// Notifies an election of differences from this state from now on.
    pub(super) fn watch(
        &mut self,
        election: ElectionId,
        seat: Option<Seat>,
        requests: bool,
        inputs: &mut VecDeque<Input>,
    ) {
        let shared = &self.entries[&election].shared;
        let (name, lease, me) = (shared.name.clone(), shared.lease, shared.candidate.incarnation);
        let record = seat.as_ref().map(|seat| &seat.record);
        let watching = Watching {
            names: record.map(Record::names),
            nonce: record.map(|record| record.nonce),
            requests,
            session: seat.as_ref().and_then(|seat| self.store.session_of(&seat.version)),
            own: record.is_some_and(|record| record.is_held_by(me)),
        };
        let mut notifications = Vec::new();
        self.subscriptions.watch(election, watching, &mut notifications);
        let requests = requests || self.subscriptions.wants_requests(&name);
        self.interest.want(name, SeatInterest { lease, seen: Some(Seen { seat, requests }) });
        // The election is being stepped, so its notifications become inputs of this step.
        inputs.extend(notifications.into_iter().map(|(_, notification)| notification.into_input()));
    }

    fn watch_store(&mut self) {
        self.interest.resend_all();
        let (store, interest, misbehaviours) = (self.store.clone(), self.interest.clone(), self.misbehaviours.clone());
        let news = interest.news();
        let watch = self.call(NOBODY, async move {
            let watch = AssertUnwindSafe(async { store.watch(&interest, &news).await });
            Answer::WatchEnded(watch.catch_unwind().await.unwrap_or_else(|panic| panicked(&misbehaviours, &*panic)))
        });
        // A store that only gives hints need not say that it listens.
        if self.store.promises().push == Push::Hint {
            self.listens_since = Some(self.clock.now());
        }
        self.at(self.clock.now() + LISTENS_WITHIN, Due::ShouldListen(watch.number));
        self.watching = Some(watch);
    }

    pub(super) fn on_should_listen(&mut self, number: u64) {
        let is_the_one = self.watching.as_ref().is_some_and(|watching| watching.number == number);
        if is_the_one && self.listens_since.is_none() && !self.entries.is_empty() {
            self.misbehaviours.log(Misbehaviour::NeverListens);
        }
    }

    pub(super) fn watch_again(&mut self) {
        if self.entries.is_empty() {
            // The next election starts the watch.
            self.watching = None;
        } else {
            self.watch_store();
        }
    }

    /// Reports a gap to all elections, which read their seats at regular intervals until the store listens again.
    pub(super) fn on_watch_ended(&mut self, error: StoreError) {
        self.on_news();
        let mut notifications = Vec::new();
        self.subscriptions.gap(None, &mut notifications);
        self.deliver(notifications);
        let now = self.clock.now();
        let lasted = self.listens_since.take().is_some_and(|since| now.since(since) >= LASTING);
        let pause = if lasted { FIRST_PAUSE } else { self.watch_pause.max(FIRST_PAUSE) };
        self.watch_pause = (pause * 2).min(LONGEST_PAUSE);
        let at = now + pause / 2 + pause.mul_f64(rand::random::<f64>() / 2.0);
        self.at(at, Due::WatchAgain);
        let store = self.store.promises().store;
        log::emit(
            Level::DEBUG,
            move || debug!(store, %error, "the watch of the store has ended; it starts again after a pause"),
        );
    }

    /// Processes the notifications of the store.
    pub(super) fn on_news(&mut self) {
        let pending = self.interest.take_pending();
        if pending.reports >= FLOOD {
            self.misbehaviours.log(Misbehaviour::Floods);
        }
        if pending.of_others {
            self.misbehaviours.log(Misbehaviour::TellsOfOthers);
        }
        if pending.begins_to_listen() {
            self.listens_since.get_or_insert(self.clock.now());
        }
        let mut notifications = Vec::new();
        pending.deliver(&mut self.subscriptions, &mut notifications);
        for (election, notification) in notifications {
            let seat = self.entries.get(&election).map(|entry| &entry.shared.name);
            let release =
                seat.filter(|_| notification == Notification::Holder).and_then(|seat| pending.release_of(seat));
            let input = release.map_or_else(|| notification.into_input(), |release| Input::Released(release.clone()));
            self.guarded(|driver| driver.step(election, input));
        }
    }

    fn deliver(&mut self, notifications: Vec<(ElectionId, Notification)>) {
        for (election, notification) in notifications {
            self.guarded(|driver| driver.step(election, notification.into_input()));
        }
    }
}
