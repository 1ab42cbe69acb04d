//! The watch: one query that Consul answers when a seat or a request has changed, for all seats of the process.
//!
//! It follows Consul's rules for blocking queries: the number to wait from is the last one that was answered, it is
//! never below 1, the watch starts over when it goes backwards, every wait has an end, and answers that come in quick
//! succession are asked for more slowly.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_core::{Interest, InterestChange, News, PushDetail, Scope, SeatName, StoreError};
use tenure_kit::WarmSession;
use tokio::time::Instant;

use crate::keys::Watched;
use crate::seats::{Mark, names};
use crate::store::ConsulStore;
use crate::tree::Tree;

/// The shortest and the longest time that a query waits.
const WAIT: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// The time between two queries, and how much more it is for each entry of the answer: every answer has all of them,
/// and while a thousand seats are being won, they would be read a thousand times.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_FOR_EACH: Duration = Duration::from_micros(200);

/// Queries may be ahead of these times by so much: a few changes in a row are each heard of at once.
const BURST: Duration = Duration::from_millis(100);

impl ConsulStore {
    /// See [`Store::watch`](tenure_core::Store::watch).
    ///
    /// # Correctness
    /// *Nothing is missed.* Once a query was answered with a state and its number, the next one asks for what comes after
    /// that number. Consul answers it with the whole state, and each answer is compared with the one before. A read that
    /// is sent after the first answer sees at least that state, so what it does not see has a higher number, and is in a
    /// later answer. If the numbers go backwards, a snapshot was restored or the servers are others: the watch ends, and
    /// starts over.
    ///
    /// *A watch that is no longer served ends.* A query waits for half of the shortest lease, so one that is never
    /// answered is noticed within about a lease.
    pub(crate) async fn listen(&self, interest: &Interest, news: &News) -> Result<Infallible, StoreError> {
        let (mut wait, mut ready, mut due) = (WAIT[1], HashMap::new(), Instant::now());
        self.want(interest.next().await, &mut wait, &mut ready);
        let mut known = self.query(0, wait, due).await?;
        // A session of ours may have ended while nothing was heard. Its heartbeat tells that before the seats are read.
        let now = self.mirror.now();
        join_all(self.sessions.live().iter().map(|session| session.beat(|beat| beat.sent >= now))).await;
        news.listening(Scope::All);
        let mut query = Box::pin(self.query(known.index, wait, due));
        loop {
            tokio::select! {
                deltas = interest.next() => {
                    let before = wait;
                    self.want(deltas, &mut wait, &mut ready);
                    if wait < before {
                        query.set(self.query(known.index, wait, due));
                    }
                }
                answer = &mut query => {
                    let before = std::mem::replace(&mut known, answer?);
                    if known.index < before.index {
                        return Err(StoreError::refused("Consul's numbers have gone backwards: the watch starts over"));
                    }
                    self.tell(&before, &known, news);
                    due = due.max(Instant::now()) + PAUSE + PAUSE_FOR_EACH * known.len();
                    query.set(self.query(known.index, wait, due));
                }
            }
        }
    }

    /// Takes in what the engine wants to know: how long a query may wait, and the seats that other processes hold, for
    /// which a session is kept ready.
    fn want(&self, deltas: Vec<InterestChange>, wait: &mut Duration, ready: &mut HashMap<SeatName, Arc<WarmSession>>) {
        for InterestChange { seat, wanted } in deltas {
            let lease = wanted.as_ref().map_or(Duration::MAX, |wanted| wanted.lease);
            *wait = (*wait).min(lease / 2).max(WAIT[0]);
            let session = wanted.and_then(|wanted| Mark::parse(&wanted.seen?.seat?.version)?.session);
            match session.filter(|session| !self.sessions.is_own(session)) {
                Some(_) => ready.insert(seat, self.sessions.keep_warm(lease)),
                None => ready.remove(&seat),
            };
        }
    }

    /// Asks for a state with a higher number when that is nearly due, and waits for it for about so long.
    async fn query(&self, index: u64, wait: Duration, due: Instant) -> Result<Arc<Tree>, StoreError> {
        tokio::time::sleep(due.saturating_duration_since(Instant::now() + BURST)).await;
        // Consul adds up to a sixteenth of its own.
        let within = wait + wait / 8 + Duration::from_secs(1);
        self.mirror.fetch(&format!("index={index}&wait={}ms", wait.as_millis()), within).await
    }

    /// Tells what has changed from one state to another.
    fn tell(&self, before: &Tree, after: &Tree, news: &News) {
        for key in after.changed_since(before) {
            match self.keys.watched(key) {
                Some(Watched::Seat(seat)) => news.holder(&seat, self.said(before, after, key)),
                Some(Watched::Request(seat)) if after.get(key).is_some() => news.request(&seat),
                _ => {}
            }
        }
    }

    /// What there is to say of a seat that has changed.
    fn said(&self, before: &Tree, after: &Tree, key: &str) -> PushDetail {
        match (before.get(key), after.get(key)) {
            (_, None) => PushDetail::Names(None),
            // It names the same holder, which has lost the seat all the same.
            (Some(old), Some(new)) if old.value == new.value && old.session != new.session => {
                self.lost_lock(&old.session, after);
                PushDetail::Nothing
            }
            // If it names nobody that can be read, a look tells what is wrong with it.
            (_, Some(new)) => {
                new.record().map_or(PushDetail::Nothing, |record| PushDetail::Names(Some(names(&record))))
            }
        }
    }

    /// A session has lost the lock of a seat that still names its holder. If the session is our own and has no other lock
    /// left, it is over: the end of a session unlocks all its keys in one step, and leaves their records as they are. If
    /// it has others, somebody has released this one by hand.
    fn lost_lock(&self, session: &str, tree: &Tree) {
        if let Some(own) = self.sessions.find(session).filter(|own| !tree.is_locked_by(&own.id)) {
            own.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{Incarnation, Token};

    use super::*;
    use crate::kv::Entry;
    use crate::options::ConsulOptions;

    #[test]
    fn a_change_says_who_holds_the_seat_now_or_that_it_must_be_read() {
        let store = ConsulStore::new(ConsulOptions::default()).unwrap();
        let key = "tenure/seats/a/seat";
        let held = |by: u128, token: u64| {
            format!(
                r#"{{"v":1,"token":{token},"lease_ms":1000,"nonce":"0000000000000001",
                "holder":{{"id":"a","incarnation":"{by:032x}"}}}}"#
            )
        };
        let tree = |text: &str, session: &str, index| Tree::new(index, vec![Entry::of(key, text, session, index)]);
        let names = |by, token| PushDetail::Names(Some((Some(Incarnation::from_bits(by)), Token::new(token))));
        let before = tree(&held(1, 5), "s1", 3);
        for (after, said) in [
            (Tree::new(4, Vec::new()), PushDetail::Names(None)),
            (tree(&held(2, 6), "s2", 4), names(2, 6)),
            // The session is over.
            (tree(&held(1, 5), "", 4), PushDetail::Nothing),
            (tree("nonsense", "s1", 4), PushDetail::Nothing),
        ] {
            assert_eq!(store.said(&before, &after, key), said);
        }
        assert_eq!(store.said(&Tree::default(), &before, key), names(1, 5));
    }
}
