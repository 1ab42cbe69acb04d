//! One session: a lease of etcd's, the key that lives with it, and the heartbeat that keeps it for all seats.
//!
//! # Why a renewal is right
//! A heartbeat is two things. First a check, which is a transaction that only reads: this session's key is there,
//! as it was made, and each seat of the call still names its holder and term, on this session. Its reads are
//! not `serializable`, so a majority has confirmed them after they were sent; a member that was deposed, or lags
//! behind, cannot answer them from what it remembers. (etcd takes a transaction without any reads for a
//! serializable one, whatever it compares: so both branches read.) Then the keep-alive, which has the lease counted
//! anew by etcd's leader. A process that may no longer look at its seats, or cannot, does not keep them from others: once
//! a check was sent, no keep-alive is, for whatever reason, before a check is answered.
//!
//! Both run in tasks that go on when their call is given up, for up to a third of the lease, and serve the next call. So a
//! server that takes longer than a call may costs no term. Calls share a keep-alive if it was sent no longer than a
//! quarter of a lease ago, so it may be older than the check, and even than the write that won the seat; and a check
//! may be older than the call. `since` is the send of the check or that of the keep-alive, whichever was first. So `Done` says that after `since` the seat named its holder and term, and that the session lived. etcd
//! ends the lease at the earliest its time to live after the keep-alive; a new leader counts every lease anew, and
//! adds an election time-out for keep-alives that a deposed one has answered. As `since` is not after the send of the
//! keep-alive, the holder's own count is over first.
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
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Answers, Clock, Moment, SeatName, StoreError, Swap};
use tenure_kit::{HeartbeatReply, PooledSession, Reconnect, SharedTask};

use crate::connection::EtcdConnection;
use crate::keys::Keys;
use crate::lock;
use crate::mark::{Claim, Mark, Written, session_name};
use crate::wire::{TxnRequest, created_at, get, get_key, put, written_at};

/// The sessions of a process: one for each length of lease, as etcd is told how long to wait for us.
pub(crate) type Sessions = tenure_kit::Sessions<Session>;

/// A lease that seats of one length of lease are held on.
pub(crate) struct Session {
    pub(crate) id: i64,
    /// The cluster that it lives in.
    pub(crate) cluster: u64,
    /// What etcd has granted, which is no less than was asked for.
    pub(crate) granted: Duration,
    /// Its key, and the revision in which that was made: for the first and only time.
    pub(crate) live_key: String,
    pub(crate) created: i64,
    lease: Duration,
    clock: Clock,
    reconnect: Arc<Reconnect<EtcdConnection>>,
    keys: Keys,
    /// A check was sent, and none was answered since.
    in_doubt: AtomicBool,
    /// Checks of calls that wait for them, or were given up a moment ago.
    checks: Mutex<HashMap<Claim, SharedTask<Arc<Checked>>>>,
}

/// What a check has found.
struct Checked {
    sent: Moment,
    /// Whether the session lives.
    lives: bool,
    /// The seats that still name their holder and term, and the revisions in which they were last written.
    held: HashMap<SeatName, i64>,
}

/// Sessions that are opened when they are needed.
pub(crate) fn sessions(connection: Arc<Reconnect<EtcdConnection>>, keys: Keys) -> Sessions {
    Sessions::new(move |lease, clock| {
        let (connection, keys) = (connection.clone(), keys.clone());
        async move {
            if lease.subsec_nanos() != 0 || lease.is_zero() {
                return Err(StoreError::denied("etcd counts leases in whole seconds"));
            }
            in_time(lease, Session::open(connection, keys, lease, clock)).await
        }
    })
}

/// Gives up what has gone on for a third of the lease.
async fn in_time<T>(lease: Duration, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::unknown("etcd has not answered within a third of the lease"));
    tokio::time::timeout(lease / 3, work).await.unwrap_or_else(late)
}

impl Session {
    /// Opens a session. Its key is made once, here; if that is not known to have worked, nobody ever counts on the
    /// lease, and it runs out by itself.
    async fn open(
        reconnect: Arc<Reconnect<EtcdConnection>>,
        keys: Keys,
        lease: Duration,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let connection = reconnect.get().await?;
        let grant = connection.grant(i64::try_from(lease.as_secs()).unwrap_or(i64::MAX)).await?;
        let live_key = keys.live(grant.id);
        let make = TxnRequest {
            compare: vec![created_at(&live_key, 0)],
            success: vec![put(&live_key, String::new(), grant.id)],
            failure: Vec::new(),
        };
        let made = connection.txn(make).await?;
        if !made.succeeded {
            return Err(StoreError::refused("another session has the same number: trying another one"));
        }
        Ok(Self {
            id: grant.id,
            cluster: connection.cluster,
            granted: Duration::from_secs(grant.ttl.try_into().unwrap_or(0)),
            live_key,
            created: made.revision(),
            lease,
            clock,
            reconnect,
            keys,
            in_doubt: AtomicBool::new(false),
            checks: Mutex::default(),
        })
    }

    /// How long ago something may have been sent that is used again.
    fn oldest(&self) -> Moment {
        self.clock.now() - self.lease / 4
    }

    async fn connection(&self) -> Result<Arc<EtcdConnection>, StoreError> {
        let connection = self.reconnect.get().await?;
        self.check_cluster(&connection)?;
        Ok(connection)
    }

    /// Another cluster knows nothing of this session.
    pub(crate) fn check_cluster(&self, connection: &EtcdConnection) -> Result<(), StoreError> {
        if self.cluster == connection.cluster {
            return Ok(());
        }
        Err(StoreError::refused(format!("{} is of another cluster than before", connection.address)))
    }

    /// Checks whether this session lives, and which of these seats are still as they are claimed.
    async fn check(&self, connection: &EtcdConnection, claims: &[Claim]) -> Result<Checked, StoreError> {
        let keys: Vec<_> = claims.iter().map(|claim| self.keys.seat(&claim.seat)).collect();
        let alive = created_at(&self.live_key, self.created);
        let held = keys.iter().zip(claims).map(|(key, claim)| written_at(key, claim.revision));
        let own = || get_key(&self.live_key);
        let check = TxnRequest {
            compare: std::iter::once(alive).chain(held).collect(),
            success: vec![own()],
            failure: std::iter::once(own()).chain(keys.iter().map(|key| get(key))).collect(),
        };
        self.in_doubt.store(true, Ordering::Release);
        let sent = self.clock.now();
        let mut answer = connection.txn(check).await?;
        self.in_doubt.store(false, Ordering::Release);
        let lives = answer.found(0).first().is_some_and(|live| live.create_revision == self.created);
        let mut revision = |place: usize, claim: &Claim| {
            if answer.succeeded {
                return Some(claim.revision);
            }
            let written = Written::of(answer.found(place + 1).first()?).ok()?;
            (lives && written.keeps(claim, self.id)).then_some(written.revision)
        };
        let seats = claims.iter().enumerate();
        let held = seats.filter_map(|(place, claim)| Some((claim.seat.clone(), revision(place, claim)?))).collect();
        Ok(Checked { sent, lives, held })
    }

    async fn keep_alive(&self, connection: &EtcdConnection) -> Result<HeartbeatReply<()>, StoreError> {
        if self.in_doubt.load(Ordering::Acquire) && !self.check(connection, &[]).await?.lives {
            return Ok(HeartbeatReply::Over);
        }
        let mut since = self.clock.now();
        let mut lives = connection.keep_alive(self.id).await?;
        if lives && connection.is_proxy() {
            let asked = self.clock.now();
            let left = connection.time_to_live(self.id).await?;
            lives = left >= 0;
            since = since.min(counted_from(asked, self.granted, left));
        }
        Ok(if lives { HeartbeatReply::Alive(since, ()) } else { HeartbeatReply::Over })
    }
}

impl tenure_kit::Session for Session {
    type Report = ();

    fn name(&self) -> tenure_core::SessionId {
        session_name(self.cluster, self.id)
    }

    async fn beat(&self, _: Moment) -> Result<HeartbeatReply<()>, StoreError> {
        in_time(self.lease, async {
            let connection = self.connection().await?;
            connection.while_open(self.keep_alive(&connection)).await
        })
        .await
    }

    fn is_good(&self) -> bool {
        self.reconnect.current().is_none_or(|connection| connection.cluster == self.cluster)
    }
}

/// Sends a keep-alive, unless one was sent and answered within the last quarter of the lease. Returns `None` if the
/// session is over.
pub(crate) async fn keep(session: &Arc<PooledSession<Session>>) -> Result<Option<Moment>, StoreError> {
    let oldest = session.oldest();
    match session.beat(|beat| beat.sent >= oldest).await {
        Err(_) if session.is_over() => Ok(None),
        beat => Ok(Some(beat?.sent)),
    }
}

/// Renews seats that were won on a session, each for the place in its call: checks them, then keeps the session alive.
pub(crate) async fn renew(session: &Arc<PooledSession<Session>>, seats: &[(usize, Claim)], to: &Answers<Swap>) {
    let mut held = Vec::new();
    for ((place, claim), check) in seats.iter().zip(check_all(session, seats)) {
        match check.wait(StoreError::unknown("the check was cut off")).await {
            Ok(checked) => match checked.held.get(&claim.seat) {
                Some(revision) => held.push((*place, checked.sent, *revision)),
                None => to.set(*place, Ok(Swap::Lost)),
            },
            Err(error) => to.set(*place, Err(error)),
        }
    }
    let kept = if held.is_empty() { Ok(None) } else { keep(session).await };
    for (place, sent, revision) in held {
        let mark = Mark { cluster: session.cluster, revision, session: Some(session.id) };
        let done = |kept: Moment| Swap::Done {
            version: mark.version(),
            since: Some(sent.min(kept)),
            granted: Some(session.granted),
        };
        to.set(place, kept.clone().map(|kept| kept.map_or(Swap::Lost, done)));
    }
    let mut checks = lock(&session.checks);
    seats.iter().for_each(|(_, claim)| drop(checks.remove(claim)));
}

/// The checks of these seats, one for each: those that are under way or were answered too late for their calls, and one
/// more for all other seats.
fn check_all(session: &Arc<PooledSession<Session>>, seats: &[(usize, Claim)]) -> Vec<SharedTask<Arc<Checked>>> {
    let oldest = session.oldest();
    let mut checks = lock(&session.checks);
    checks.retain(|_, check| match check.result() {
        None => check.is_running(),
        Some(result) => result.is_ok_and(|checked| checked.sent >= oldest),
    });
    let claims = seats.iter().map(|(_, claim)| claim);
    let unchecked: Vec<_> = claims.clone().filter(|claim| !checks.contains_key(*claim)).cloned().collect();
    if !unchecked.is_empty() {
        let (session, claims) = (session.clone(), unchecked.clone());
        let check = SharedTask::start(in_time(session.lease, async move {
            let connection = session.connection().await?;
            let checked = connection.while_open(session.check(&connection, &claims)).await?;
            if !checked.lives {
                session.end();
            }
            Ok(Arc::new(checked))
        }));
        checks.extend(unchecked.into_iter().map(|claim| (claim, check.clone())));
    }
    claims.map(|claim| checks[claim].clone()).collect()
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
