//! Candidates at one desk, whose work tells whether two ever led at once.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::time::Duration;

use tenure_core::{Builder, Election, Elections, Event, Events, Fault, StoreError, Token, Why};
use tenure_etcd::EtcdStore;
use tenure_testkit::Desk;
use tenure_testkit::wrap::{Counter, Counting};

/// How long to wait for what must happen: only a broken test takes it all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A candidate that works at the desk whenever it leads, as if in a process of its own.
pub(crate) struct Candidate {
    pub(crate) election: Election,
    pub(crate) elections: Elections,
    pub(crate) events: Events,
    pub(crate) counter: Counter,
}

/// A candidate for the one seat of a test.
pub(crate) fn stand(url: &str, id: &str, lease: Duration, desk: &Desk) -> Candidate {
    stand_with(url, id, lease, desk, |election| election)
}

pub(crate) fn stand_with(
    url: &str,
    id: &str,
    lease: Duration,
    desk: &Desk,
    configure: impl FnOnce(Builder) -> Builder,
) -> Candidate {
    let (store, counter) = Counting::new(EtcdStore::from_url(url).unwrap());
    let elections = Elections::new(store);
    let election = configure(elections.election("jobs").candidate(id).lease(lease)).start().unwrap();
    let events = election.events();
    let (working, desk) = (election.clone(), desk.clone());
    tokio::spawn(async move {
        while let Ok(term) = working.elected().await {
            let _ = working.run_if_leader(async |term| desk.work(term).await).await;
            term.ended().await;
        }
    });
    Candidate { election, elections, events, counter }
}

impl Candidate {
    /// Waits for an event.
    pub(crate) async fn event<T>(&mut self, what: &str, mut is_it: impl FnMut(&Event) -> Option<T>) -> T {
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

    pub(crate) async fn leads(&mut self) -> Token {
        self.event("it leads", |event| match event {
            Event::BecameLeader { term } => Some(term.token()),
            _ => None,
        })
        .await
    }

    pub(crate) async fn loses(&mut self) -> (Token, Why) {
        self.event("it loses its term", |event| match event {
            Event::LostLeadership { token, why } => Some((*token, *why)),
            _ => None,
        })
        .await
    }

    /// Waits for an error, and returns how it was told.
    pub(crate) async fn fails(&mut self) -> (Fault, String) {
        self.event("an error", |event| match event {
            Event::Error { error } => Some((error.fault(), told(error))),
            _ => None,
        })
        .await
    }
}

/// An error and what caused it, as people get to see it.
pub(crate) fn told(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"))
}

pub(crate) async fn acted_above(desk: &Desk, token: Token) -> Token {
    within("somebody works in a later term", desk.acted_above(token)).await
}
