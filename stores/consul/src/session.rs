//! A session: what seats of one lease are held on, and the heartbeat that keeps all of them.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::{Moment, StoreError, Takeover};
use tenure_kit::HeartbeatReply;

use crate::client::{Ask, Client};
use crate::options::ConsulOptions;
use crate::tree::{Mirror, Tree};

/// The sessions of a process: one for each length of lease, whatever the number of seats.
pub(crate) type Sessions = tenure_kit::Sessions<Session>;

/// A session that seats of one lease are held on.
pub(crate) struct Session {
    pub(crate) id: String,
    lease: Duration,
    client: Arc<Client>,
    mirror: Arc<Mirror>,
}

/// The longest time that Consul gives to a session.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The longest lock-delay.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Sessions that are opened when they are needed.
pub(crate) fn sessions(client: Arc<Client>, mirror: Arc<Mirror>, options: &ConsulOptions) -> Sessions {
    let (takeover, checks) = (options.takeover, options.checks.clone());
    Sessions::new(move |lease, _| {
        let (client, mirror) = (client.clone(), mirror.clone());
        let lock_delay = match takeover {
            Takeover::Instant => Duration::ZERO,
            Takeover::Safe => lease.min(LONGEST_DELAY),
        };
        let terms = Terms::release(lease, lock_delay, &checks);
        async move {
            if lease.subsec_nanos() != 0 || lease.is_zero() {
                return Err(StoreError::denied("Consul counts leases in whole seconds: use one like 15s"));
            }
            if lease > LONGEST {
                return Err(StoreError::denied("Consul keeps no session longer than a day: use a shorter lease"));
            }
            let late = |_| Err(StoreError::refused("Consul has not made a session in time"));
            let id = tokio::time::timeout(lease / 4, terms.create(&client)).await.unwrap_or_else(late)?;
            Ok(Session { id, lease, client, mirror })
        }
    })
}

impl tenure_kit::Session for Session {
    /// All seats, at some moment after the heartbeat was sent.
    type Report = Arc<Tree>;

    fn name(&self) -> tenure_core::SessionId {
        tenure_core::SessionId::new(self.id.as_str())
    }

    /// Renews the session, and looks at the seats.
    ///
    /// # Correctness
    /// A leader counts from `sent`, so everything that it counts on must be true later than that. The server
    /// starts the session's time anew when it gets the renewal, which is after it was sent. That the seats
    /// are still ours is asked after `sent`, too: a renewal alone would keep a leader whose seat somebody has
    /// deleted, while others wait only a lease from when they saw that.
    ///
    /// A renewal is kept in the memory of the one server that leads the others. One that was deposed and does
    /// not know yet may answer it in vain. That does no harm: the new one gives every session twice its time
    /// from when it was chosen. A leader then has its last true renewal from before that, and so with
    /// one more in vain it leads for less than two leases from there. By the next one the deposed server
    /// knows, as it hears from no majority; it cannot answer the question for the seats as it is.
    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<Arc<Tree>>, StoreError> {
        let within = self.lease / 10;
        let renew = Ask::put(format!("/v1/session/renew/{}", self.id), "").also(404).within(within);
        // That takes two calls, if something has changed.
        let look = tokio::time::timeout(within * 2, self.mirror.proven());
        let (renewed, tree) = futures_util::future::join(self.client.call(renew), look).await;
        if renewed?.status == 404 {
            return Ok(HeartbeatReply::Over);
        }
        let late = |_| Err(StoreError::unknown("Consul has not told in time whether the seats are ours"));
        Ok(HeartbeatReply::Alive(sent, tree.unwrap_or_else(late)?))
    }
}

/// What a session is made with.
pub(crate) struct Terms(Value);

impl Terms {
    /// Its keys are unlocked and stay when it ends.
    fn release(ttl: Duration, lock_delay: Duration, checks: &[String]) -> Self {
        Self::new("tenure", "release", ttl, lock_delay, checks)
    }

    /// Its keys are deleted when it ends.
    pub(crate) fn delete(ttl: Duration) -> Self {
        Self::new("tenure: a request", "delete", ttl, Duration::ZERO, &[])
    }

    fn new(name: &str, behavior: &str, ttl: Duration, lock_delay: Duration, checks: &[String]) -> Self {
        let seconds = |span: Duration| format!("{}s", span.as_secs());
        // Checks are named even if there are none: Consul would add one of its own.
        Self(json!({
            "Name": name,
            "Behavior": behavior,
            "TTL": seconds(ttl),
            "LockDelay": seconds(lock_delay),
            "NodeChecks": checks,
        }))
    }

    /// Makes a session, and returns its id.
    pub(crate) async fn create(&self, client: &Client) -> Result<String, StoreError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        struct Made {
            id: String,
        }
        let answer = client.call(Ask::put("/v1/session/create", "").body(self.0.to_string())).await?;
        Ok(answer.json::<Made>()?.id)
    }
}
