//! Candidates of a store's own tests, each with an engine of its own as if in another process, working
//! at a desk whenever they lead.

use std::future::Future;
use std::time::Duration;

use tenure_core::{Builder, Election, Elections, Event, Events, Fault, Store, StoreError, Token, Why};

use crate::Desk;
use crate::wrap::{Counter, Counting};

/// How long to wait for what must happen: only a broken test takes it all.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A candidate in the tests of a store. What it waits for must come, or it panics and says what that was.
#[derive(Debug)]
pub struct Contender {
    /// Its election.
    pub election: Election,
    /// All elections of its process.
    pub elections: Elections,
    /// What happens, from its start.
    pub events: Events,
    /// Counts its calls.
    pub counter: Counter,
}

impl Contender {
    /// A candidate for the seat `jobs` that works at the desk whenever it leads. Needs a runtime.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn stand(store: impl Store, id: &str, desk: &Desk, configure: impl FnOnce(Builder) -> Builder) -> Self {
        Self::stand_for(store, "jobs", desk, |election| configure(election.candidate(id)))
    }

    /// The same for any seat.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn stand_for(store: impl Store, seat: &str, desk: &Desk, configure: impl FnOnce(Builder) -> Builder) -> Self {
        let (store, counter) = Counting::new(store);
        let elections = Elections::new(store);
        let election = configure(elections.election(seat)).start();
        let election = election.unwrap_or_else(|error| panic!("{error}"));
        let events = election.events();
        let (working, desk) = (election.clone(), desk.clone());
        tokio::spawn(async move {
            while let Ok(term) = working.elected().await {
                let _ = working.run_if_leader(async |term| desk.work(term).await).await;
                term.ended().await;
            }
        });
        Self { election, elections, events, counter }
    }

    /// Waits for an event.
    pub async fn event<T>(&mut self, what: &str, mut is_it: impl FnMut(&Event) -> Option<T>) -> T {
        within(what, async {
            loop {
                let event = self.events.next().await.unwrap_or_else(|| panic!("the events ended before this: {what}"));
                if let Some(found) = is_it(&event) {
                    return found;
                }
            }
        })
        .await
    }

    /// Waits until it leads.
    pub async fn leads(&mut self) -> Token {
        self.event("it leads", |event| match event {
            Event::BecameLeader { term } => Some(term.token()),
            _ => None,
        })
        .await
    }

    /// Waits until it leads, if it does not already.
    ///
    /// # Panics
    /// If it never does.
    pub async fn elected(&self) -> Token {
        let term = within("it leads", self.election.elected()).await;
        term.unwrap_or_else(|error| panic!("{error}")).token()
    }

    /// Waits until its term is over.
    pub async fn loses(&mut self) -> (Token, Why) {
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
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"))
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
pub async fn leading(candidates: &[Contender]) -> &Contender {
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

/// Waits until somebody works at the desk in a term above this one.
pub async fn acted_above(desk: &Desk, token: Token) -> Token {
    within("somebody works in a later term", desk.acted_above(token)).await
}
