//! A session: an etcd lease, the key that exists as long as the lease does, and the heartbeat that renews it for
//! all seats.
//!
//! # Why a renewal is correct
//! A heartbeat has two parts. The first is a check, a transaction that only reads: the key of this session
//! exists, as this process created it, and each seat of the call still names its holder and term, on this
//! session. The reads are not `serializable`, so a majority confirms them after they were sent; a member that was
//! deposed or lags behind cannot answer them from its own data. (etcd treats a transaction without reads as
//! serializable, whatever it compares. So both branches read.) The second part is the keep-alive, at which etcd's
//! leader restarts the lease. A process that cannot read its seats, or is no longer permitted to, must not keep
//! them from other candidates. So once a check was sent, no keep-alive is sent, for whatever reason, until a
//! check is answered.
//!
//! Both parts run in tasks that continue when their call is dropped, for up to a third of the lease, and serve
//! the next call. So a server that answers later than a call waits does not cost the term. Calls share a
//! keep-alive that was sent at most a quarter of a lease ago, so the keep-alive can be older than the check, and
//! even older than the write that won the seat; and the check can be older than the call. `since` is the send of
//! the check or the send of the keep-alive, whichever was first. So `Done` means that after `since` the seat
//! named its holder and term, and the session was alive. etcd ends the lease no earlier than its time to live
//! after the receipt of the keep-alive. A new leader of the cluster restarts every lease, and adds an election
//! timeout to cover keep-alives that a deposed leader has answered. As `since` is not after the send of the
//! keep-alive, the holder's own count ends first.
//!
//! A gRPC proxy (`etcd grpc-proxy`) uses one stream of keep-alives for all its clients. It answers a keep-alive
//! with the next answer about that lease, which may be the late answer to an earlier keep-alive. So behind a
//! proxy the heartbeat also asks how much of the lease is left, and counts from that answer: etcd's leader
//! determines it after the question was sent, and rounds it down to whole seconds.
//!
//! A watch alone is not enough: it would miss a seat that is deleted while it is broken, and in some versions of
//! etcd the progress that a member reports for a watch is wrong. A keep-alive alone is not enough either: it
//! succeeds even if the seat was deleted.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Answers, Clock, Moment, SeatName, StoreError, Swap};
use tenure_kit::{HeartbeatReply, PooledSession, Reconnect, SharedTask, whole_seconds};

use crate::connection::EtcdConnection;
use crate::keys::Keys;
use crate::lock;
use crate::version::{Renewal, SeatValue, VersionParts, session_name};
use crate::wire::{TxnRequest, created_at, get, get_key, put, written_at};

/// The sessions of a process, one for each length of lease, because an etcd lease has one time to live.
pub(crate) type Sessions = tenure_kit::Sessions<Session>;

/// A session: the etcd lease that all seats with one length of lease are held on.
pub(crate) struct Session {
    pub(crate) id: i64,
    /// The cluster that the session belongs to.
    pub(crate) cluster: u64,
    /// The time to live that etcd granted. It is at least the one that was requested.
    pub(crate) granted: Duration,
    /// The key of the session, and the revision in which it was created for the first and only time.
    pub(crate) live_key: String,
    pub(crate) created: i64,
    lease: Duration,
    clock: Clock,
    reconnect: Arc<Reconnect<EtcdConnection>>,
    keys: Keys,
    /// Whether a check was sent and none has been answered since.
    in_doubt: AtomicBool,
    /// By seat, the checks that calls wait for, or whose calls were dropped a moment ago.
    checks: Mutex<HashMap<Renewal, SharedTask<Arc<Checked>>>>,
}

/// The result of a check.
struct Checked {
    sent: Moment,
    /// Whether the session is alive.
    lives: bool,
    /// The seats that still name their holder and term, each with the revision in which it was last written.
    held: HashMap<SeatName, i64>,
}

/// Returns a pool that opens sessions on demand.
pub(crate) fn sessions(connection: Arc<Reconnect<EtcdConnection>>, keys: Keys) -> Sessions {
    Sessions::new(move |lease, clock| {
        let (connection, keys) = (connection.clone(), keys.clone());
        within_a_third(lease, Session::open(connection, keys, lease, clock))
    })
}

/// Runs `work` with a time limit of a third of the lease.
async fn within_a_third<T>(
    lease: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::unknown("etcd did not answer within a third of the lease"));
    tokio::time::timeout(lease / 3, work).await.unwrap_or_else(late)
}

impl Session {
    /// Opens a session. Its key is created here, once. If the outcome of that is not known, no seat ever uses the
    /// lease, and it expires.
    async fn open(
        reconnect: Arc<Reconnect<EtcdConnection>>,
        keys: Keys,
        lease: Duration,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let seconds = whole_seconds(lease)?;
        let connection = reconnect.get().await?;
        let grant = connection.grant(i64::try_from(seconds).unwrap_or(i64::MAX)).await?;
        let live_key = keys.live(grant.id);
        let make = TxnRequest {
            compare: vec![created_at(&live_key, 0)],
            success: vec![put(&live_key, String::new(), grant.id)],
            failure: Vec::new(),
        };
        let made = connection.txn(make).await?;
        if !made.succeeded {
            return Err(StoreError::refused(
                "the ID of the new etcd lease is already used by another session; retrying with another one",
            ));
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

    /// The earliest send of a check or keep-alive whose answer a call can still use.
    fn oldest_usable(&self) -> Moment {
        self.clock.now() - self.lease / 4
    }

    async fn connection(&self) -> Result<Arc<EtcdConnection>, StoreError> {
        let connection = self.reconnect.get().await?;
        self.check_cluster(&connection)?;
        Ok(connection)
    }

    /// Returns an error if the connection is to another cluster, which does not know this session.
    pub(crate) fn check_cluster(&self, connection: &EtcdConnection) -> Result<(), StoreError> {
        if self.cluster == connection.cluster {
            return Ok(());
        }
        Err(StoreError::refused(format!("{} belongs to another cluster than this session", connection.address)))
    }

    /// Checks whether this session is alive, and which of these seats still have the expected holder and term.
    async fn check(&self, connection: &EtcdConnection, renewals: &[Renewal]) -> Result<Checked, StoreError> {
        let keys: Vec<_> = renewals.iter().map(|renewal| self.keys.seat(&renewal.seat)).collect();
        let alive = created_at(&self.live_key, self.created);
        let held = keys.iter().zip(renewals).map(|(key, renewal)| written_at(key, renewal.revision));
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
        let mut revision = |place: usize, renewal: &Renewal| {
            if answer.succeeded {
                return Some(renewal.revision);
            }
            let written = SeatValue::of(answer.found(place + 1).first()?).ok()?;
            (lives && written.matches(renewal, self.id)).then_some(written.revision)
        };
        let seats = renewals.iter().enumerate();
        let held =
            seats.filter_map(|(place, renewal)| Some((renewal.seat.clone(), revision(place, renewal)?))).collect();
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
        within_a_third(self.lease, async {
            let connection = self.connection().await?;
            connection.while_open(self.keep_alive(&connection)).await
        })
        .await
    }

    fn is_good(&self) -> bool {
        self.reconnect.current().is_none_or(|connection| connection.cluster == self.cluster)
    }
}

/// Sends a keep-alive, unless one was sent within the last quarter of the lease and answered. Returns `None` if
/// the session is over.
pub(crate) async fn keep(session: &Arc<PooledSession<Session>>) -> Result<Option<Moment>, StoreError> {
    let oldest = session.oldest_usable();
    match session.beat(|beat| beat.sent >= oldest).await {
        Err(_) if session.is_over() => Ok(None),
        beat => Ok(Some(beat?.sent)),
    }
}

/// Renews seats that were won on a session: checks them, then keeps the session alive. Answers each seat by its
/// place in the call.
pub(crate) async fn renew(session: &Arc<PooledSession<Session>>, seats: &[(usize, Renewal)], to: &Answers<Swap>) {
    let mut held = Vec::new();
    for ((place, renewal), check) in seats.iter().zip(check_all(session, seats)) {
        match check.wait(StoreError::unknown("the check of the seats was interrupted")).await {
            Ok(checked) => match checked.held.get(&renewal.seat) {
                Some(revision) => held.push((*place, checked.sent, *revision)),
                None => to.set(*place, Ok(Swap::Lost)),
            },
            Err(error) => to.set(*place, Err(error)),
        }
    }
    let kept = if held.is_empty() { Ok(None) } else { keep(session).await };
    for (place, sent, revision) in held {
        let parts = VersionParts { write: revision, identity: session.cluster, session: Some(session.id) };
        let done = |kept: Moment| Swap::Done {
            version: parts.version(),
            since: Some(sent.min(kept)),
            granted: Some(session.granted),
        };
        to.set(place, kept.clone().map(|kept| kept.map_or(Swap::Lost, done)));
    }
    let mut checks = lock(&session.checks);
    seats.iter().for_each(|(_, renewal)| drop(checks.remove(renewal)));
}

/// Returns a check for each of these seats: one that is in flight or was answered too late for its call, or else
/// a new one, which all remaining seats share.
fn check_all(session: &Arc<PooledSession<Session>>, seats: &[(usize, Renewal)]) -> Vec<SharedTask<Arc<Checked>>> {
    let oldest = session.oldest_usable();
    let mut checks = lock(&session.checks);
    checks.retain(|_, check| match check.result() {
        None => check.is_running(),
        Some(result) => result.is_ok_and(|checked| checked.sent >= oldest),
    });
    let renewals = seats.iter().map(|(_, renewal)| renewal);
    let unchecked: Vec<_> = renewals.clone().filter(|renewal| !checks.contains_key(*renewal)).cloned().collect();
    if !unchecked.is_empty() {
        let (session, renewals) = (session.clone(), unchecked.clone());
        let check = SharedTask::start(within_a_third(session.lease, async move {
            let connection = session.connection().await?;
            let checked = connection.while_open(session.check(&connection, &renewals)).await?;
            if !checked.lives {
                session.end();
            }
            Ok(Arc::new(checked))
        }));
        checks.extend(unchecked.into_iter().map(|renewal| (renewal, check.clone())));
    }
    renewals.map(|renewal| checks[renewal].clone()).collect()
}

/// Returns the moment from which a whole lease ends no later than a lease that had `left` seconds to live after
/// `asked`.
fn counted_from(asked: Moment, granted: Duration, left: i64) -> Moment {
    asked - granted.saturating_sub(Duration::from_secs(left.try_into().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_proxy_a_lease_counts_for_its_remaining_time_but_at_most_for_the_granted_time() {
        let (asked, granted) = (Clock::system().now(), Duration::from_secs(15));
        for (left, ends_in) in [(-1, 0), (0, 0), (14, 14), (15, 15), (i64::MAX, 15)] {
            let ends = counted_from(asked, granted, left) + granted;
            assert_eq!(ends, asked + Duration::from_secs(ends_in), "{left} s left");
        }
    }
}
