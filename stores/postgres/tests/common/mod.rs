//! Candidates that work at a desk, and what is asked of them.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::time::Duration;

use tenure_core::{Builder, Candidate, Election, Elections, Event, Events, Incarnation, Record, TakeoverOption, Token};
use tenure_postgres::PostgresStore;
use tenure_testkit::Desk;
use tenure_testkit::servers::Postgres;
use tenure_testkit::wrap::{Counter, Counting};

/// Short, but with room for a busy machine.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);

/// Only what is broken takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The two modes, as the end of a URL.
pub(crate) const MODES: [&str; 2] = ["?mode=lease", "?mode=session"];

/// A candidate, as if in a process of its own.
pub(crate) struct Standing {
    pub(crate) election: Election,
    pub(crate) counter: Counter,
    pub(crate) events: Events,
    _elections: Elections,
}

/// A candidate that works at the desk whenever it leads.
pub(crate) fn stand(url: &str, seat: &str, desk: &Desk) -> Standing {
    stand_for(LEASE, url, seat, desk)
}

/// One that takes over only when a leader whose session was ended from outside must have stopped: with
/// `takeover=instant` the two may overlap until the news has arrived, and that is said.
pub(crate) fn stand_safely(url: &str, seat: &str, desk: &Desk) -> Standing {
    stand_with(url, seat, desk, |election| election.lease(LEASE).takeover(TakeoverOption::Safe))
}

pub(crate) fn stand_for(lease: Duration, url: &str, seat: &str, desk: &Desk) -> Standing {
    stand_with(url, seat, desk, |election| election.lease(lease))
}

fn stand_with(url: &str, seat: &str, desk: &Desk, configure: impl FnOnce(Builder) -> Builder) -> Standing {
    let store = PostgresStore::at(url).unwrap_or_else(|error| panic!("{error}"));
    let (store, counter) = Counting::new(store);
    let elections = Elections::new(store);
    let election = configure(elections.election(seat)).start().unwrap_or_else(|error| panic!("{error}"));
    let events = election.events();
    let (working, desk) = (election.clone(), desk.clone());
    tokio::spawn(async move {
        while let Ok(term) = working.elected().await {
            let _ = working.run_if_leader(async |term| desk.work(term).await).await;
            term.ended().await;
        }
    });
    Standing { election, counter, events, _elections: elections }
}

impl Standing {
    pub(crate) async fn leads(&self) -> Token {
        within("that it leads", self.election.elected()).await.unwrap().token()
    }

    /// Waits until it was told that its term is over, and why.
    pub(crate) async fn is_told_of_a_loss(&mut self) -> tenure_core::Why {
        within("that a loss is told", async {
            loop {
                if let Event::LostLeadership { why, .. } = self.events.next().await.expect("it goes on") {
                    return why;
                }
            }
        })
        .await
    }
}

/// Waits for something that must happen.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Waits until somebody works in a term above this one.
pub(crate) async fn works_above(desk: &Desk, token: Token) -> Token {
    within("that somebody works", desk.acted_above(token)).await
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The token that a seat has in the server's tables.
pub(crate) fn token_of(server: &Postgres, seat: &str) -> Token {
    Token::new(server.sql(&format!("SELECT token FROM tenure.seats WHERE name = '{seat}'")).parse().unwrap())
}

/// A record that names a holder.
pub(crate) fn held(token: u64, incarnation: u128) -> Record {
    let holder = Candidate { id: "a".into(), incarnation: Incarnation::from_bits(incarnation) };
    Record { nonce: rand::random(), ..Record::new(Some(holder), Token::new(token), PATIENCE) }
}
