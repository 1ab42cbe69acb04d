//! The watch: one blocking query for all seats of the process, which Consul answers when a seat or a request has
//! changed.
//!
//! It follows Consul's rules for blocking queries. A query waits from the last index that was returned, or from 1
//! if that was 0. If the index goes backwards, the watch starts over. Every query has a time limit. If answers
//! follow each other quickly, the queries slow down.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Interest, InterestChange, News, PushDetail, Scope, StoreError};
use tenure_kit::{ReadySessions, lock};
use tokio::time::Instant;

use crate::keys::WatchedKey;
use crate::seats::session_of;
use crate::store::ConsulStore;
use crate::tree::Tree;

/// The shortest and the longest time that a query waits for a change.
const WAIT: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// The pause between two queries, and the addition to it for each entry of the answer. Every answer has all
/// entries, so without this a thousand seats would be read a thousand times while they are being won.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_FOR_EACH: Duration = Duration::from_micros(200);

/// Queries can be ahead of these pauses by this much, so that a few changes in a row are each noticed at once.
const BURST: Duration = Duration::from_millis(100);

impl ConsulStore {
    /// Reports changes until the watch fails; see [`Store::watch`](tenure_core::Store::watch).
    ///
    /// # Correctness
    /// *No change is missed.* After an answer with a state and its index, the next query asks for changes after
    /// that index. Consul answers with the whole state, and each state is compared with the one before. A read
    /// that is sent after the first answer sees at least the state of that answer. So a change that the read does
    /// not see has a higher index, and is in a later answer. If the index goes backwards, a snapshot was restored
    /// or the servers were replaced: the watch ends and starts over.
    ///
    /// *A watch that is no longer served ends within a third of the shortest lease.* A query asks for an answer after a
    /// fifth of that lease at the latest, and fails after a third: see [`ConsulStore::query`]. Each query is sent
    /// right after the answer to the one before, so a query is pending at any time. Leases below 2.5 s are the
    /// exception, because no query waits for less than `WAIT[0]`.
    pub(crate) async fn listen(&self, interest: &Interest, news: &News) -> Result<Infallible, StoreError> {
        let (mut wait, mut ready, mut due) = (WAIT[1], ReadySessions::default(), Instant::now());
        self.update_interest(interest.next().await, &mut wait, &mut ready);
        let mut known = self.query(0, wait, due).await?;
        self.sessions.beat_all().await;
        news.listening(Scope::All);
        let mut query = Box::pin(self.query(known.index, wait, due));
        loop {
            tokio::select! {
                deltas = interest.next() => {
                    let before = wait;
                    self.update_interest(deltas, &mut wait, &mut ready);
                    if wait < before {
                        query.set(self.query(known.index, wait, due));
                    }
                }
                answer = &mut query => {
                    let before = std::mem::replace(&mut known, answer?);
                    if known.index < before.index {
                        let text = "Consul's index went backwards, as after a restored snapshot; the watch starts over";
                        return Err(StoreError::refused(text));
                    }
                    self.report(&before, &known, news);
                    due = due.max(Instant::now()) + PAUSE + PAUSE_FOR_EACH * known.len();
                    query.set(self.query(known.index, wait, due));
                }
            }
        }
    }

    /// Applies changes of the engine's interest: sets how long a query waits, and keeps a session ready while
    /// other processes hold seats.
    fn update_interest(&self, deltas: Vec<InterestChange>, wait: &mut Duration, ready: &mut ReadySessions) {
        for delta in deltas {
            match &delta.wanted {
                Some(wanted) => *wait = (*wait).min(wanted.lease / 5).max(WAIT[0]),
                // A bid that does not know the floor of its seat is lost.
                None => drop(lock(&self.seats.floors).remove(&delta.seat)),
            }
            ready.update(delta, &self.sessions, session_of);
        }
    }

    /// Queries for a state with a higher index, at the earliest `BURST` before `due`. Waits for about `wait`.
    async fn query(&self, index: u64, wait: Duration, due: Instant) -> Result<Arc<Tree>, StoreError> {
        tokio::time::sleep(due.saturating_duration_since(Instant::now() + BURST)).await;
        // Consul adds up to a sixteenth to the wait. The rest, an eighth of the lease, is for the network. The first
        // query waits for nothing. After a fault it can get a connection of the pool that is dead as well, so it fails
        // sooner.
        let within = if index == 0 { wait / 2 } else { wait * 5 / 3 };
        self.mirror.fetch(&format!("index={index}&wait={}ms", wait.as_millis()), within).await
    }

    /// Reports the changes from one state to the next.
    fn report(&self, before: &Tree, after: &Tree, news: &News) {
        for key in after.changed_since(before) {
            match self.keys.watched_key(key) {
                Some(WatchedKey::Seat(seat)) => match after.get(key).and_then(|entry| self.release_in(entry)) {
                    Some(release) => news.released(&seat, release),
                    None => news.holder(&seat, self.push_detail(before, after, key)),
                },
                Some(WatchedKey::Request(seat)) if after.get(key).is_some() => news.request(&seat),
                _ => {}
            }
        }
    }

    /// Returns what the change of a seat says about its holder.
    fn push_detail(&self, before: &Tree, after: &Tree, key: &str) -> PushDetail {
        match (before.get(key), after.get(key)) {
            (_, None) => PushDetail::Names(None),
            // The record names the same holder, but that holder has lost the lock.
            (Some(old), Some(new)) if old.value == new.value && old.session != new.session => {
                self.lost_lock(&old.session, after);
                PushDetail::Nothing
            }
            // If the record is not readable, a read reports what is wrong with it.
            (_, Some(new)) => {
                new.record().map_or(PushDetail::Nothing, |record| PushDetail::Names(Some(record.names())))
            }
        }
    }

    /// Handles a session that lost the lock of a seat that still names its holder. If it is a session of this
    /// process and it has no other lock left, it is over: the end of a session unlocks all its keys in one step,
    /// and leaves their records as they are. If it has other locks, an operator has released this one by hand.
    fn lost_lock(&self, session: &str, tree: &Tree) {
        if let Some(own) = self.sessions.find(session).filter(|own| !tree.is_locked_by(&own.id)) {
            own.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{Incarnation, SeatName, Token};

    use super::*;
    use crate::kv::Entry;
    use crate::options::ConsulOptions;

    #[test]
    fn the_floor_of_a_seat_is_kept_until_no_election_uses_it() {
        let store = ConsulStore::new(ConsulOptions::default()).unwrap();
        let seats = ["a", "b"].map(|name| SeatName::new(name).unwrap());
        for seat in &seats {
            let entry = Entry::of(&store.keys.floor(seat), "7", "", 3);
            assert_eq!(store.floor_in(seat, Some(&entry)).unwrap(), Token::new(7));
        }
        let gone = InterestChange { seat: seats[0].clone(), wanted: None };
        store.update_interest(vec![gone], &mut WAIT[1].clone(), &mut ReadySessions::default());
        assert_eq!(lock(&store.seats.floors).keys().collect::<Vec<_>>(), [&seats[1]]);
    }

    #[test]
    fn a_change_reports_the_holder_and_term_or_that_the_seat_must_be_read() {
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
            assert_eq!(store.push_detail(&before, &after, key), said);
        }
        assert_eq!(store.push_detail(&Tree::default(), &before, key), names(1, 5));
    }
}
