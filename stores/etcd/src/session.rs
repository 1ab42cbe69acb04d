//! One session: a lease of etcd's, the key that lives with it, and the heartbeat that keeps it for all seats.
//!
//! # Why a renewal is right
//! A heartbeat is two things. First a check, which is a transaction that only reads: this session's key is there,
//! as it was made, and every seat was last written by the very write that won it on this session. Its reads are
//! not `serializable`, so a majority has confirmed them after they were sent; a member that was deposed, or lags
//! behind, cannot answer them from what it remembers. (etcd takes a transaction without any reads for a
//! serializable one, whatever it compares: so both branches read.) Then the keep-alive, which has the lease counted
//! anew by etcd's leader. It is sent only once the check was answered: a process that may no longer look at its
//! seats, or cannot, does not keep them from others.
//!
//! So `Done` says that after `since` the seat named its holder and term, and that the session lived. etcd ends
//! the lease at the earliest its time to live after the keep-alive; a new leader counts every lease anew, and
//! adds an election time-out for keep-alives that a deposed one has answered. As `since` is before both were
//! sent, the holder's own count is over first.
//!
//! A gRPC proxy (`etcd grpc-proxy`) has one stream of keep-alives for all its clients. It answers a keep-alive with the
//! next answer about that lease, which may be the late answer to an earlier keep-alive. So behind a proxy the
//! heartbeat also asks how much of the lease is left, and counts from what that says: etcd's leader rounds it down to
//! whole seconds, after the question was sent.
//!
//! A watch alone could not tell: a seat that was deleted while it was broken would be missed, and what a
//! member says about how far a watch has come is wrong in some versions. A heartbeat alone could not, either:
//! it goes on though the seat was deleted.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tenure_core::{Clock, Moment, SeatName, StoreError, Swap, Version};
use tokio::sync::watch;

use crate::bells::{Bells, Life};
use crate::keys::Keys;
use crate::line::Line;
use crate::link::Link;
use crate::seats::Mark;
use crate::wire::{TxnRequest, created_at, get_key, put, written_at};

/// A lease that seats of one length of lease are held on.
pub(crate) struct Session {
    pub(crate) id: i64,
    pub(crate) lease: Duration,
    /// What etcd has granted, which is no less.
    pub(crate) granted: Duration,
    /// Its key, and the revision in which that was made: for the first and only time.
    pub(crate) live_key: String,
    pub(crate) created: i64,
    cluster: u64,
    clock: Clock,
    line: Arc<Line>,
    keys: Keys,
    bells: Arc<Bells>,
    life: Life,
    state: Mutex<State>,
}

struct State {
    /// When the last keep-alive was sent that was answered, or the lease was asked for.
    proven: Moment,
    /// The seats that are held, by the last word that we have.
    seats: HashMap<SeatName, Held>,
    /// How many heartbeats were begun.
    beats: u64,
    last: Option<Arc<Beat>>,
    underway: Option<Underway>,
}

struct Held {
    /// The revision of the write that won it.
    revision: i64,
    /// The first heartbeat that looks at it.
    from: u64,
    /// When it was last asked for.
    asked: Moment,
}

/// A heartbeat that was answered.
pub(crate) struct Beat {
    number: u64,
    pub(crate) sent: Moment,
    held: HashMap<SeatName, i64>,
}

struct Underway {
    number: u64,
    link: Arc<Link>,
    outcome: watch::Receiver<Option<Result<Arc<Beat>, StoreError>>>,
}

impl Underway {
    /// Whether it is worth waiting for.
    fn goes_on(&self) -> bool {
        self.link.is_good() && self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok()
    }
}

/// How many seats are looked at in one transaction. Members take 128 operations.
const AT_ONCE: usize = 120;

/// How many of those are under way at the most, as each takes room: for ten thousand seats there are eighty.
const UNDERWAY: usize = 24;

impl Session {
    /// Opens a session. Its key is made once, here; if that is not known to have worked, the lease is given
    /// up, and nobody ever counts on it.
    pub(crate) async fn open(
        line: &Arc<Line>,
        keys: &Keys,
        bells: &Arc<Bells>,
        lease: Duration,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let link = line.link().await?;
        let sent = clock.now();
        let grant = link.grant(i64::try_from(lease.as_secs()).unwrap_or(i64::MAX)).await?;
        let live_key = keys.live(grant.id);
        let life = bells.life(grant.id);
        let make = TxnRequest {
            compare: vec![created_at(&live_key, 0)],
            success: vec![put(&live_key, String::new(), grant.id)],
            failure: Vec::new(),
        };
        let made = match link.txn(make).await {
            Ok(made) if made.succeeded => made,
            Ok(_) => return Err(StoreError::refused("another session has the same number: trying another one")),
            Err(error) => {
                tokio::spawn(async move { drop(link.revoke(grant.id).await) });
                return Err(error);
            }
        };
        let granted = Duration::from_secs(grant.ttl.try_into().unwrap_or(0));
        Ok(Self {
            id: grant.id,
            lease,
            granted,
            live_key,
            created: made.revision(),
            cluster: link.cluster,
            clock,
            line: line.clone(),
            keys: keys.clone(),
            bells: bells.clone(),
            life,
            state: Mutex::new(State { proven: sent, seats: HashMap::new(), beats: 0, last: None, underway: None }),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life.load(Ordering::Acquire)
    }

    /// The server has said that it is over.
    pub(crate) fn end(&self) {
        // Once: every seat that was held on it may find out.
        if !self.life.swap(true, Ordering::AcqRel) {
            self.bells.ring_session(self.id);
        }
    }

    /// When the last sign was sent that the server has answered.
    pub(crate) fn proven(&self) -> Moment {
        self.lock().proven
    }

    /// The cluster that it lives in.
    pub(crate) fn is_of(&self, link: &Link) -> bool {
        self.cluster == link.cluster
    }

    /// A seat was won on this session.
    pub(crate) fn won(&self, seat: &SeatName, revision: i64) {
        self.note(seat, revision);
    }

    /// A seat is no longer held.
    pub(crate) fn let_go(&self, seat: &SeatName) {
        self.lock().seats.remove(seat);
    }

    /// Keeps a seat by the heartbeat that all seats share.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        seat: &SeatName,
        held: &Version,
        mark: &Mark,
    ) -> Result<Swap, StoreError> {
        let from = self.note(seat, mark.revision);
        let beat = self.beat(from).await?;
        if self.is_over() {
            return Ok(Swap::Lost);
        }
        if beat.held.get(seat) == Some(&mark.revision) {
            return Ok(Swap::Done { version: held.clone(), since: Some(beat.sent), granted: Some(self.granted) });
        }
        let mut state = self.lock();
        if state.seats.get(seat).is_some_and(|held| held.revision == mark.revision) {
            state.seats.remove(seat);
        }
        Ok(Swap::Lost)
    }

    /// Has the session kept alive if nobody did for a quarter of its lease.
    pub(crate) async fn keep(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.proven() >= self.youngest() {
            return Ok(());
        }
        self.beat(0).await.map(drop)
    }

    /// Asks whether it still lives if it was left alone for so long that it may not.
    pub(crate) async fn wake(self: &Arc<Self>) -> Result<(), StoreError> {
        if !self.is_over() && self.clock.now().since(self.proven()) >= self.granted {
            self.keep().await?;
        }
        Ok(())
    }

    /// The same as [`Self::keep`], without waiting for it.
    pub(crate) fn freshen(self: &Arc<Self>) {
        if self.proven() < self.youngest() {
            let session = self.clone();
            tokio::spawn(async move { drop(session.keep().await) });
        }
    }

    fn youngest(&self) -> Moment {
        self.clock.now() - self.lease / 4
    }

    /// Has a seat looked at by every heartbeat from now on, and tells which is the first.
    fn note(&self, seat: &SeatName, revision: i64) -> u64 {
        let mut state = self.lock();
        let (asked, next) = (self.clock.now(), state.beats + 1);
        let held = state.seats.entry(seat.clone()).or_insert(Held { revision, from: next, asked });
        if held.revision != revision {
            *held = Held { revision, from: next, asked };
        }
        held.asked = asked;
        held.from
    }

    /// A heartbeat that is young enough and not before this one, or the next. One is under way at a time: whoever
    /// needs a later one waits for it, and the next is for all of them.
    async fn beat(self: &Arc<Self>, from: u64) -> Result<Arc<Beat>, StoreError> {
        loop {
            let youngest = self.youngest();
            let known = |state: &State| {
                state.last.as_ref().filter(|last| last.sent >= youngest && last.number >= from).cloned()
            };
            if let Some(last) = known(&self.lock()) {
                return Ok(last);
            }
            let link = self.line.link().await?;
            if !self.is_of(&link) {
                // Another cluster knows nothing of it.
                return Err(StoreError::refused(format!("{} is of another cluster than before", link.address)));
            }
            let (number, link, mut outcome) = {
                let mut state = self.lock();
                if let Some(last) = known(&state) {
                    return Ok(last);
                }
                match state.underway.as_ref().filter(|underway| underway.goes_on()) {
                    Some(underway) => (underway.number, underway.link.clone(), underway.outcome.clone()),
                    None => {
                        let outcome = self.begin(&mut state, link.clone());
                        (state.beats, link, outcome)
                    }
                }
            };
            let doubt = link.doubt_if_dropped();
            let told = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
            std::mem::forget(doubt);
            if number >= from {
                return match told {
                    Some(Ok(beat)) => Ok(beat),
                    Some(Err(error)) => Err(error.clone()),
                    None => Err(StoreError::unknown("the heartbeat was cut off")),
                };
            }
        }
    }

    fn begin(
        self: &Arc<Self>,
        state: &mut State,
        link: Arc<Link>,
    ) -> watch::Receiver<Option<Result<Arc<Beat>, StoreError>>> {
        state.beats += 1;
        let number = state.beats;
        let (tell, outcome) = watch::channel(None);
        state.underway = Some(Underway { number, link: link.clone(), outcome: outcome.clone() });
        // What nobody has asked for in a while was left: an election that was stopped without a release.
        let forgotten = self.clock.now() - self.lease * 2;
        state.seats.retain(|_, held| held.asked >= forgotten);
        let seats: Vec<_> = state.seats.iter().map(|(seat, held)| (seat.clone(), held.revision)).collect();
        let session = self.clone();
        tokio::spawn(async move {
            let asked = tokio::time::timeout(session.lease / 3, session.ask(&link, number, seats));
            let late = || Err(StoreError::unknown(format!("{} does not answer", link.address)));
            let beat = asked.await.unwrap_or_else(|_| late());
            let beat = beat.map(Arc::new);
            if let Ok(beat) = &beat {
                let mut state = session.lock();
                if state.last.as_ref().is_none_or(|last| last.sent <= beat.sent) {
                    state.last = Some(beat.clone());
                }
            }
            let _ = tell.send(Some(beat));
        });
        outcome
    }

    async fn ask(&self, link: &Arc<Link>, number: u64, seats: Vec<(SeatName, i64)>) -> Result<Beat, StoreError> {
        let sent = self.clock.now();
        let looks: Vec<_> = seats.chunks(AT_ONCE).map(|seats| self.look(link, seats)).collect();
        let held: Vec<_> = stream::iter(looks).buffered(UNDERWAY).try_collect().await?;
        let mut since = sent;
        if !self.is_over() {
            let mut lives = link.keep_alive(self.id).await?.ttl > 0;
            if lives && link.is_proxy() {
                let asked = self.clock.now();
                let left = link.time_to_live(self.id).await?;
                lives = left >= 0;
                since = since.min(counted_from(asked, self.granted, left));
            }
            if lives {
                let mut state = self.lock();
                state.proven = state.proven.max(since);
            } else {
                self.end();
            }
        }
        Ok(Beat { number, sent: since, held: held.into_iter().flatten().collect() })
    }

    /// Which of these seats are as they were won, while this session lives.
    async fn look(&self, link: &Link, seats: &[(SeatName, i64)]) -> Result<Vec<(SeatName, i64)>, StoreError> {
        let keys: Vec<_> = seats.iter().map(|(seat, _)| self.keys.seat(seat)).collect();
        let alive = created_at(&self.live_key, self.created);
        let held = keys.iter().zip(seats).map(|(key, (_, revision))| written_at(key, *revision));
        let own = || get_key(&self.live_key);
        let check = TxnRequest {
            compare: std::iter::once(alive).chain(held).collect(),
            success: vec![own()],
            failure: std::iter::once(own()).chain(keys.iter().map(|key| get_key(key))).collect(),
        };
        let mut answer = link.txn(check).await?;
        if answer.succeeded {
            return Ok(seats.to_vec());
        }
        if answer.found(0).first().is_none_or(|live| live.create_revision != self.created) {
            self.end();
            return Ok(Vec::new());
        }
        let mut held = Vec::new();
        for (place, (seat, revision)) in seats.iter().enumerate() {
            if answer.found(place + 1).first().is_some_and(|found| found.mod_revision == *revision) {
                held.push((seat.clone(), *revision));
            }
        }
        Ok(held)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The moment from which a whole lease ends no later than one that had `left` seconds to live after `asked`.
fn counted_from(asked: Moment, granted: Duration, left: i64) -> Moment {
    asked - granted.saturating_sub(Duration::from_secs(left.try_into().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_behind_a_proxy_counts_for_what_is_left_of_it_and_never_for_more_than_was_granted() {
        let (asked, granted) = (Clock::system().now(), Duration::from_secs(15));
        for (left, ends_in) in [(-1, 0), (0, 0), (14, 14), (15, 15), (i64::MAX, 15)] {
            let ends = counted_from(asked, granted, left) + granted;
            assert_eq!(ends, asked + Duration::from_secs(ends_in), "{left} s left");
        }
    }
}
