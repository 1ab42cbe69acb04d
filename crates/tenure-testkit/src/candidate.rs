//! Candidates for laws and for a store's own tests. Each has an engine of its own, as if in another process, and
//! switches that make its calls fail, hang or block.
//!
//! Every wait has a time-out. When it expires, the method panics with a message that says what was expected. In a law,
//! such a panic is the failure of the law.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{
    Builder, Election, Elections, EndReason, Ended, Error, EventKind, Events, Fault, SeatName, Store, StoreError, Term,
    Token,
};
use tokio::task::JoinHandle;

use crate::failure::ensure;
use crate::wrap::{Blocking, Brake, Counter, Counting, Cuttable, Wire};
use crate::{Bench, Failure, OverlapDetector, Verdict};

/// The time-out of waits in tests. It is long, because only a failing test waits until it expires.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A candidate with an engine of its own, as if in another process, and switches to make its calls fail.
#[derive(Debug)]
pub struct TestCandidate {
    /// The election that the candidate stands in.
    pub election: Election,
    /// All elections of the candidate's simulated process.
    pub elections: Elections,
    /// The events of the election since its start.
    pub events: Events,
    /// The switch that cuts the candidate off from the store.
    pub wire: Wire,
    /// The switch that pauses the engine at its next call.
    pub brake: Brake,
    /// The number of calls that the candidate has made to the store.
    pub counter: Counter,
    patience: Duration,
}

impl Bench {
    /// Starts a candidate for this seat, with the lease and the options of the subject.
    ///
    /// # Errors
    /// If the election does not start.
    pub fn stand(&self, seat: &SeatName, id: &str) -> Result<TestCandidate, Failure> {
        self.stand_with(seat, id, |election| election)
    }

    /// Starts a candidate for this seat with further options.
    ///
    /// # Errors
    /// If the election does not start.
    pub fn stand_with(
        &self,
        seat: &SeatName,
        id: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<TestCandidate, Failure> {
        self.stand_behind(|_| {}, seat, id, configure)
    }

    /// Starts a candidate for this seat, and changes its connection before the first call.
    ///
    /// # Errors
    /// If the election does not start.
    pub fn stand_behind(
        &self,
        prepare: impl FnOnce(&Wire),
        seat: &SeatName,
        id: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<TestCandidate, Failure> {
        let configure =
            |election: Builder| configure(self.subject.configure(election.lease(self.lease()).candidate(id)));
        Ok(TestCandidate::start(self.subject.open(), seat.as_str(), self.patience, prepare, configure)?)
    }

    /// Waits for the first event that `is_it` accepts, and returns it.
    ///
    /// # Errors
    /// If the wait times out, or the events end before.
    pub async fn event(
        &self,
        what: &str,
        events: &mut Events,
        mut is_it: impl FnMut(&EventKind) -> bool,
    ) -> Result<EventKind, Failure> {
        self.within(what, next_event(what, events, |event| is_it(&event).then_some(event))).await?
    }
}

/// Returns the store's error, if this event is about one.
pub fn store_error(event: &EventKind) -> Option<&Arc<StoreError>> {
    match event {
        EventKind::Error { error } => error.store_error(),
        _ => None,
    }
}

/// Returns the first event that the filter accepts.
async fn next_event<T>(
    what: &str,
    events: &mut Events,
    mut is_it: impl FnMut(EventKind) -> Option<T>,
) -> Result<T, Failure> {
    while let Some(event) = events.next().await {
        if let Some(found) = is_it(event.kind) {
            return Ok(found);
        }
    }
    Err(Failure::new(format!("the events ended, expected: {what}")))
}

impl TestCandidate {
    /// Starts a candidate for the seat `jobs` that works whenever it leads and reports its work to the detector.
    /// Needs a tokio runtime.
    ///
    /// # Panics
    /// If the election does not start.
    pub fn stand(
        store: impl Store,
        id: &str,
        detector: &OverlapDetector,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::stand_for(store, "jobs", detector, |election| configure(election.candidate(id)))
    }

    /// Starts a candidate for any seat that works whenever it leads and reports its work to the detector. Needs a tokio
    /// runtime.
    ///
    /// # Panics
    /// If the election does not start.
    pub fn stand_for(
        store: impl Store,
        seat: &str,
        detector: &OverlapDetector,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let started = Self::start(store, seat, PATIENCE, |_| {}, configure);
        let candidate = started.unwrap_or_else(|error| panic!("{error}"));
        candidate.reports_to(detector);
        candidate
    }

    /// Starts a candidate that does no work yet, and changes its connection before the first call.
    pub(crate) fn start(
        store: impl Store,
        seat: &str,
        patience: Duration,
        prepare: impl FnOnce(&Wire),
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<Self, Error> {
        let (store, wire) = Cuttable::new(store);
        let (store, brake) = Blocking::new(store);
        let (store, counter) = Counting::new(store);
        prepare(&wire);
        let elections = Elections::new(store);
        let election = configure(elections.election(seat)).start()?;
        let events = election.events();
        Ok(Self { election, elections, events, wire, brake, counter, patience })
    }

    /// Makes the candidate work in each of its terms and report its work to the detector.
    pub fn reports_to(&self, detector: &OverlapDetector) -> JoinHandle<Ended> {
        let detector = detector.clone();
        self.works(move |term| {
            let detector = detector.clone();
            async move { detector.work(term).await }
        })
    }

    /// Makes the candidate do this work once in each of its terms. The task ends with the election.
    pub fn works<F>(&self, mut work: impl FnMut(Term) -> F + Send + 'static) -> JoinHandle<Ended>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let election = self.election.clone();
        tokio::spawn(async move {
            loop {
                let term = match election.elected().await {
                    Ok(term) => term,
                    Err(ended) => return ended,
                };
                // The work runs once in a term, also if it returns early.
                let _ = election.run_if_leader(async |term| work(term).await).await;
                term.ended().await;
            }
        })
    }

    /// Waits for a future that must resolve.
    async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let who = &self.election.candidate().id;
        tokio::time::timeout(self.patience, future).await.unwrap_or_else(|_| {
            let (patience, health) = (self.patience, self.election.health());
            panic!("{who}: timed out after {patience:?}, expected: {what}; the candidate is {health}")
        })
    }

    /// Waits for the first event that `is_it` accepts, and returns its result.
    pub async fn event<T>(&mut self, what: &str, mut is_it: impl FnMut(&EventKind) -> Option<T>) -> T {
        let found = wait(self.patience, what, next_event(what, &mut self.events, |event| is_it(&event))).await;
        found.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Waits for the next event that this candidate leads, and returns the token of its term.
    pub async fn leads(&mut self) -> Token {
        self.event("the candidate leads", |event| match event {
            EventKind::BecameLeader { term } => Some(term.token()),
            _ => None,
        })
        .await
    }

    /// Waits until the candidate leads, if it does not already, and returns the token of its term.
    ///
    /// # Panics
    /// If the wait times out, or the election ends.
    pub async fn elected(&self) -> Token {
        self.term().await.token()
    }

    /// Waits until the candidate leads, if it does not already, and returns its term.
    ///
    /// # Panics
    /// If the wait times out, or the election ends.
    pub async fn term(&self) -> Term {
        let term = self.within("it leads", self.election.elected()).await;
        term.unwrap_or_else(|ended| {
            panic!("{}: the election ended before the candidate led: {ended}", self.election.candidate().id)
        })
    }

    /// Makes one bid, and returns the term if the bid succeeds. Bids again if the store fails, because on a busy
    /// machine a call can time out.
    ///
    /// # Panics
    /// If the election has ended, or the wait times out.
    pub async fn bid(&self) -> Option<Term> {
        self.within("an answer to a bid", async {
            loop {
                match self.election.try_acquire().await {
                    Err(Error::Store(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                    answer => return answer.unwrap_or_else(|error| panic!("the election failed: {error}")),
                }
            }
        })
        .await
    }

    /// Waits until the election has ended, and returns the reason.
    pub async fn stopped(&self) -> Ended {
        self.within("the election has ended", self.election.stopped()).await
    }

    /// Waits until the candidate knows a leader.
    pub async fn knows_a_leader(&self) {
        let knows = async {
            while self.election.leader().is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        self.within("the candidate knows a leader", knows).await;
    }

    /// Checks that the candidate does not lead now.
    ///
    /// # Errors
    /// If the candidate leads.
    pub fn must_not_lead(&self) -> Verdict {
        ensure!(!self.election.is_leader(), "{} leads, but must not", self.election.candidate().id);
        Ok(())
    }

    /// Waits until the term is over, and returns its token and the reason.
    pub async fn loses(&mut self) -> (Token, EndReason) {
        self.event("the candidate loses its term", |event| match event {
            EventKind::LostLeadership { token, why } => Some((*token, *why)),
            _ => None,
        })
        .await
    }

    /// Returns the events that have happened and were not received yet, for the message of a failed test.
    pub async fn past_events(&mut self) -> Vec<EventKind> {
        let mut past = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, self.events.next()).await {
            past.push(event.kind);
        }
        past
    }

    /// Waits until the candidate knows a leader with this token or a higher one.
    pub async fn knows(&mut self, token: Token) {
        self.event("the candidate knows the leader", |event| match event {
            EventKind::LeaderChanged { leader: Some(leader), .. } if leader.token >= token => Some(()),
            _ => None,
        })
        .await;
    }

    /// Waits for an error event, and returns its fault and its message with all causes.
    pub async fn fails(&mut self) -> (Fault, String) {
        self.event("an error", |event| store_error(event).map(|error| (error.fault(), told(error)))).await
    }

    /// Waits until a call was denied and the term is over, in either order, and returns the message of the denial and
    /// the token of the term. On a busy machine, calls can first fail for other reasons and cost the term.
    pub async fn is_denied_and_loses(&mut self) -> (String, Token) {
        let (mut denied, mut lost) = (None, None);
        self.event("a call is denied and the candidate loses its term", |event| {
            match event {
                EventKind::LostLeadership { token, .. } => lost = Some(*token),
                event => {
                    let is_denial = |error: &&Arc<StoreError>| error.fault() == Fault::Denied;
                    denied = denied.take().or_else(|| store_error(event).filter(is_denial).map(|error| told(error)));
                }
            }
            denied.clone().zip(lost)
        })
        .await
    }

    /// Waits for the event that the store works again.
    pub async fn recovers(&mut self) {
        self.event("the store works again", |event| matches!(event, EventKind::Recovered).then_some(())).await;
    }

    /// Waits for the event that the store works again, and panics if there is another error event before it: only the
    /// first failed call in a row must emit one.
    pub async fn recovers_without_another_word(&mut self) {
        self.event("the store works again", |event| match event {
            EventKind::Error { error } => panic!("a second error event: {error}"),
            EventKind::Recovered => Some(()),
            _ => None,
        })
        .await;
    }
}

/// Formats an error with all its causes, as users see it.
pub fn told(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Waits for a future that must resolve, for at most [`PATIENCE`].
///
/// # Panics
/// If it times out. The message contains `what`.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    wait(PATIENCE, what, future).await
}

async fn wait<T>(patience: Duration, what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(patience, future)
        .await
        .unwrap_or_else(|_| panic!("timed out after {patience:?}, expected: {what}"))
}

/// Polls a condition until it is true, for at most [`PATIENCE`].
///
/// # Panics
/// If it times out. The message contains `what`.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    within(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Waits until one of these candidates leads, and returns it.
pub async fn leading(candidates: &[TestCandidate]) -> &TestCandidate {
    let leads = || candidates.iter().find(|one| one.election.is_leader());
    within("a candidate leads", async {
        loop {
            match leads() {
                Some(leader) => return leader,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

/// Waits until a candidate works in a term with a higher token, and returns that token.
pub async fn acted_above(detector: &OverlapDetector, token: Token) -> Token {
    within("a candidate works in a later term", detector.acted_above(token)).await
}
