//! A candidate that stands in an election, with everything at hand to make things go wrong for it.

use std::future::Future;

use tenure_core::{Builder, Election, Elections, Ended, Error, Event, SeatName, Term};
use tokio::task::JoinHandle;

use crate::failure::ensure;
use crate::wrap::{Blocking, Brake, Counter, Counting, Cuttable, Wire};
use crate::{Bench, Desk, Failure, Verdict};

/// A candidate of a law, as if in a process of its own.
#[derive(Debug)]
pub struct Standing {
    /// Its only election.
    pub election: Election,
    /// All elections of its process.
    pub elections: Elections,
    /// Cuts it off from the store.
    pub wire: Wire,
    /// Pauses its engine at the next call.
    pub brake: Brake,
    /// Counts its calls.
    pub counter: Counter,
}

impl Bench {
    /// A candidate of this election, started.
    pub fn stand(&self, seat: &SeatName, id: &str) -> Result<Standing, Failure> {
        self.stand_with(seat, id, |election| election)
    }

    /// A candidate of this election, configured and started.
    pub fn stand_with(
        &self,
        seat: &SeatName,
        id: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<Standing, Failure> {
        self.stand_behind(|_| {}, seat, id, configure)
    }

    /// The same, with something done to its connection before the first call.
    pub fn stand_behind(
        &self,
        prepare: impl FnOnce(&Wire),
        seat: &SeatName,
        id: &str,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<Standing, Failure> {
        let (store, wire) = Cuttable::new(self.subject.open());
        let (store, brake) = Blocking::new(store);
        let (store, counter) = Counting::new(store);
        prepare(&wire);
        let elections = Elections::new(store);
        let builder = elections.election(seat.as_str()).lease(self.lease()).candidate(id);
        let election = configure(self.subject.configure(builder)).start()?;
        Ok(Standing { election, elections, wire, brake, counter })
    }

    /// Waits until a candidate leads.
    pub async fn elected(&self, standing: &Standing) -> Result<Term, Failure> {
        let who = &standing.election.candidate().id;
        Ok(self.within(&format!("that {who} leads"), standing.election.elected()).await??)
    }

    /// Has a candidate bid once; and once more if the store has failed, which it does on a busy machine when an
    /// answer takes too long.
    pub async fn bid(&self, standing: &Standing) -> Result<Option<Term>, Failure> {
        self.within("an answer to a bid", async {
            loop {
                match standing.election.try_acquire().await {
                    Err(Error::Store(_)) => tokio::time::sleep(self.lease() / 50).await,
                    answer => return Ok(answer?),
                }
            }
        })
        .await?
    }

    /// Waits until a candidate's election has ended.
    pub async fn stopped(&self, standing: &Standing) -> Result<Ended, Failure> {
        let who = &standing.election.candidate().id;
        self.within(&format!("that the election of {who} has ended"), standing.election.stopped()).await
    }

    /// Waits until a candidate knows who leads.
    pub async fn knows_a_leader(&self, standing: &Standing) -> Verdict {
        let mut events = standing.election.events();
        let is_it = |event: &Event| matches!(event, Event::LeaderChanged { leader: Some(_) });
        let who = &standing.election.candidate().id;
        self.event(&format!("that {who} knows who leads"), &mut events, is_it).await.map(drop)
    }

    /// Waits for an event.
    pub async fn event(
        &self,
        what: &str,
        events: &mut tenure_core::Events,
        mut is_it: impl FnMut(&Event) -> bool,
    ) -> Result<Event, Failure> {
        self.within(what, async {
            loop {
                match events.next().await {
                    Some(event) if is_it(&event) => return Ok(event),
                    Some(_) => {}
                    None => return Err(Failure::new(format!("the events ended before this one came: {what}"))),
                }
            }
        })
        .await?
    }
}

impl Standing {
    /// Has the candidate work at a desk in every term of its.
    pub fn works_at(&self, desk: &Desk) -> JoinHandle<Ended> {
        let desk = desk.clone();
        self.works(move |term| {
            let desk = desk.clone();
            async move { desk.work(term).await }
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

    /// That it leads, or may soon, is told nowhere.
    pub fn must_not_lead(&self) -> Verdict {
        ensure!(!self.election.is_leader(), "{} leads, which it must not", self.election.candidate().id);
        Ok(())
    }
}
