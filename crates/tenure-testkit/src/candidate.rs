//! Candidates of laws and of a store's own tests, each with an engine of its own as if in another process, and with
//! everything at hand to make things go wrong for it.
//!
//! What a candidate waits for must come: otherwise it panics and says what that was. In a law, such a panic is the
//! failure of the law.

use std::future::Future;
use std::time::Duration;

use tenure_core::{
    Builder, Election, Elections, EndReason, Ended, Error, Event, Events, Fault, SeatName, Store, StoreError, Term,
    Token,
};
use tokio::task::JoinHandle;

use crate::failure::ensure;
use crate::wrap::{Blocking, Brake, Counter, Counting, Cuttable, Wire};
use crate::{Bench, Failure, OverlapDetector, Verdict};

/// How long to wait for what must happen: only a broken test takes it all.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A candidate of an election, as if in a process of its own.
#[derive(Debug)]
pub struct TestCandidate {
    /// Its election.
    pub election: Election,
    /// All elections of its process.
    pub elections: Elections,
    /// What happens, from its start.
    pub events: Events,
    /// Cuts it off from the store.
    pub wire: Wire,
    /// Pauses its engine at the next call.
    pub brake: Brake,
    /// Counts its calls.
    pub counter: Counter,
    patience: Duration,
}

impl Bench {
    /// A candidate of this election, started.
    pub fn stand(&self, seat: &SeatName, id: &str) -> Result<TestCandidate, Failure> {
        self.stand_with(seat, id, |election| election)
    }

    /// A candidate of this election, configured and started.
    pub fn stand_with(
        &self,
        seat: &SeatName,
        id: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<TestCandidate, Failure> {
        self.stand_behind(|_| {}, seat, id, configure)
    }

    /// The same, with something done to its connection before the first call.
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

    /// Waits for an event.
    pub async fn event(
        &self,
        what: &str,
        events: &mut Events,
        mut is_it: impl FnMut(&Event) -> bool,
    ) -> Result<Event, Failure> {
        self.within(what, next_event(what, events, |event| is_it(&event).then_some(event))).await?
    }
}

/// The next event that something can be made of.
async fn next_event<T>(
    what: &str,
    events: &mut Events,
    mut is_it: impl FnMut(Event) -> Option<T>,
) -> Result<T, Failure> {
    while let Some(event) = events.next().await {
        if let Some(found) = is_it(event) {
            return Ok(found);
        }
    }
    Err(Failure::new(format!("the events ended before this one came: {what}")))
}

impl TestCandidate {
    /// A candidate for the seat `jobs` that works whenever it leads, and reports that to the detector. Needs a runtime.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn stand(
        store: impl Store,
        id: &str,
        detector: &OverlapDetector,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::stand_for(store, "jobs", detector, |election| configure(election.candidate(id)))
    }

    /// The same for any seat.
    ///
    /// # Panics
    /// If it cannot be started.
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

    /// A candidate that does no work yet, with something done to its connection before the first call.
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

    /// Has the candidate work in each of its terms, and report that to a detector.
    pub fn reports_to(&self, detector: &OverlapDetector) -> JoinHandle<Ended> {
        let detector = detector.clone();
        self.works(move |term| {
            let detector = detector.clone();
            async move { detector.work(term).await }
        })
    }

    /// Has the candidate do this in every term of its.
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
                // Also if it returned early: once in a term is enough.
                let _ = election.run_if_leader(async |term| work(term).await).await;
                term.ended().await;
            }
        })
    }

    /// Waits for something that must happen.
    async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        let who = &self.election.candidate().id;
        tokio::time::timeout(self.patience, future).await.unwrap_or_else(|_| {
            let (patience, health) = (self.patience, self.election.health());
            panic!("waited {patience:?} in vain: {who}: {what}; it is {health}")
        })
    }

    /// Waits for an event.
    pub async fn event<T>(&mut self, what: &str, mut is_it: impl FnMut(&Event) -> Option<T>) -> T {
        let found = wait(self.patience, what, next_event(what, &mut self.events, |event| is_it(&event))).await;
        found.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Waits until it leads.
    pub async fn leads(&mut self) -> Token {
        self.event("it leads", |event| match event {
            Event::BecameLeader { term } => Some(term.token()),
            _ => None,
        })
        .await
    }

    /// Waits until it leads, if it does not already, and returns the token of its term.
    ///
    /// # Panics
    /// If it never does.
    pub async fn elected(&self) -> Token {
        self.term().await.token()
    }

    /// Waits until it leads, if it does not already.
    ///
    /// # Panics
    /// If it never does.
    pub async fn term(&self) -> Term {
        let term = self.within("it leads", self.election.elected()).await;
        term.unwrap_or_else(|ended| {
            panic!("{}: the election ended before it led: {ended}", self.election.candidate().id)
        })
    }

    /// Has it bid once; and once more if the store has failed, which it does on a busy machine when an answer takes
    /// too long. Returns its term if it has won.
    ///
    /// # Panics
    /// If the election is over, or no answer comes.
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

    /// Waits until its election has ended.
    pub async fn stopped(&self) -> Ended {
        self.within("its election has ended", self.election.stopped()).await
    }

    /// Waits until it knows who leads.
    pub async fn knows_a_leader(&self) {
        let knows = async {
            while self.election.leader().is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        self.within("it knows who leads", knows).await;
    }

    /// Breaks the law if it leads.
    ///
    /// # Errors
    /// That it leads.
    pub fn must_not_lead(&self) -> Verdict {
        ensure!(!self.election.is_leader(), "{} leads, which it must not", self.election.candidate().id);
        Ok(())
    }

    /// Waits until its term is over.
    pub async fn loses(&mut self) -> (Token, EndReason) {
        self.event("it loses its term", |event| match event {
            Event::LostLeadership { token, why } => Some((*token, *why)),
            _ => None,
        })
        .await
    }

    /// Waits until it knows of a leader with this token or a later one.
    pub async fn knows(&mut self, token: Token) {
        self.event("it knows who leads", |event| match event {
            Event::LeaderChanged { leader: Some(leader) } if leader.token >= token => Some(()),
            _ => None,
        })
        .await;
    }

    /// Waits for an error, and returns how it was told.
    pub async fn fails(&mut self) -> (Fault, String) {
        self.event("an error", |event| match event {
            Event::Error { error } => Some((error.fault(), told(error))),
            _ => None,
        })
        .await
    }

    /// Waits until a call was denied and the term is over, and returns how the denial was told and which term it was.
    /// In either order: on a busy machine, calls may have failed for other reasons first, and cost the term.
    pub async fn is_denied_and_loses(&mut self) -> (String, Token) {
        let (mut denied, mut lost) = (None, None);
        self.event("a call is denied, and it loses its term", |event| {
            match event {
                Event::Error { error } if error.fault() == Fault::Denied => denied = Some(told(error)),
                Event::LostLeadership { token, .. } => lost = Some(*token),
                _ => {}
            }
            denied.clone().zip(lost)
        })
        .await
    }

    /// Waits until the store works again.
    pub async fn recovers(&mut self) {
        self.event("it works again", |event| matches!(event, Event::Recovered).then_some(())).await;
    }

    /// The same, and that is the next thing told: not every failed attempt is.
    pub async fn recovers_without_another_word(&mut self) {
        self.event("it works again", |event| match event {
            Event::Error { error } => panic!("told twice: {error}"),
            Event::Recovered => Some(()),
            _ => None,
        })
        .await;
    }
}

/// An error and what caused it, as people get to see it.
pub fn told(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Waits for something that must happen.
///
/// # Panics
/// If it does not.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    wait(PATIENCE, what, future).await
}

async fn wait<T>(patience: Duration, what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(patience, future).await.unwrap_or_else(|_| panic!("waited {patience:?} in vain: {what}"))
}

/// Asks again and again until the answer is yes, for what nothing tells of by itself.
///
/// # Panics
/// If it never is.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    within(what, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Waits until one of these leads, and returns which.
pub async fn leading(candidates: &[TestCandidate]) -> &TestCandidate {
    let leads = || candidates.iter().find(|one| one.election.is_leader());
    within("one of them leads", async {
        loop {
            match leads() {
                Some(leader) => return leader,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}

/// Waits until a candidate works in a term above this one.
pub async fn acted_above(detector: &OverlapDetector, token: Token) -> Token {
    within("somebody works in a later term", detector.acted_above(token)).await
}
