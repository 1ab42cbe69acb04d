//! A session: the Consul session that seats of one lease are held on, and the heartbeat that renews it for all of
//! them.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::{Moment, StoreError, Takeover};
use tenure_kit::{HeartbeatReply, whole_seconds};

use crate::client::{Client, HttpRequest};
use crate::options::ConsulOptions;
use crate::tree::{Mirror, Tree};

/// The sessions of a process, one for each length of lease.
pub(crate) type Sessions = tenure_kit::Sessions<Session>;

/// The Consul session that all seats with one length of lease are held on.
pub(crate) struct Session {
    pub(crate) id: String,
    lease: Duration,
    client: Arc<Client>,
    mirror: Arc<Mirror>,
}

/// The longest TTL that Consul accepts.
pub(crate) const LONGEST: Duration = Duration::from_secs(86_400);

/// The longest lock-delay that Consul accepts.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Returns a pool that opens sessions on demand.
pub(crate) fn sessions(client: Arc<Client>, mirror: Arc<Mirror>, options: &ConsulOptions) -> Sessions {
    let (takeover, checks) = (options.takeover, options.checks.clone());
    Sessions::new(move |lease, _| {
        let (client, mirror) = (client.clone(), mirror.clone());
        let lock_delay = match takeover {
            Takeover::Instant => Duration::ZERO,
            Takeover::Safe => lease.min(LONGEST_DELAY),
        };
        let spec = SessionSpec::release(lease, lock_delay, &checks);
        async move {
            whole_seconds(lease)?;
            if lease > LONGEST {
                return Err(StoreError::denied(
                    "a Consul session must not last longer than a day; use a shorter lease",
                ));
            }
            let late = |_| Err(StoreError::refused("Consul did not create a session in time"));
            let id = tokio::time::timeout(lease / 4, spec.create(&client)).await.unwrap_or_else(late)?;
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

    /// Renews the session, and reads the seats.
    ///
    /// # Correctness
    /// The leader counts its lease from `sent`, so everything that it relies on must hold after `sent`. The
    /// server restarts the session's TTL at the receipt of the renewal, which is after `sent`. The read of the
    /// seats is sent after `sent` as well. A renewal alone would keep a leader in office whose seat was deleted,
    /// while other candidates wait only one lease from when they saw the deletion.
    ///
    /// Consul keeps renewals only in the memory of the server that leads the cluster. A server that was deposed
    /// and does not know it yet can answer a renewal that has no effect. This does no harm. The new leading
    /// server gives every session twice its TTL from its own election on. The last effective renewal was sent
    /// before that election, so with one more, ineffective renewal our leader leads for less than two leases from
    /// then, and stops before the session ends. By the next renewal the deposed server knows that it was deposed,
    /// because it hears from no majority. It cannot answer the consistent read of the seats in any case.
    async fn beat(&self, sent: Moment) -> Result<HeartbeatReply<Arc<Tree>>, StoreError> {
        let within = self.lease / 10;
        let renew = HttpRequest::put(format!("/v1/session/renew/{}", self.id), "").accept(404).within(within);
        // The read takes two calls if something has changed.
        let look = tokio::time::timeout(within * 2, self.mirror.proven());
        let (renewed, tree) = futures_util::future::join(self.client.call(renew), look).await;
        if renewed?.status == 404 {
            return Ok(HeartbeatReply::Over);
        }
        let late = |_| Err(StoreError::unknown("Consul did not confirm in time that the seats are still held"));
        Ok(HeartbeatReply::Alive(sent, tree.unwrap_or_else(late)?))
    }
}

/// The parameters of a new session.
pub(crate) struct SessionSpec(Value);

impl SessionSpec {
    /// A session whose keys are unlocked and kept when it ends.
    fn release(ttl: Duration, lock_delay: Duration, checks: &[String]) -> Self {
        Self::new("tenure", "release", ttl, lock_delay, checks)
    }

    /// A session whose keys are deleted when it ends.
    pub(crate) fn delete(ttl: Duration) -> Self {
        Self::new("tenure: a request", "delete", ttl, Duration::ZERO, &[])
    }

    fn new(name: &str, behavior: &str, ttl: Duration, lock_delay: Duration, checks: &[String]) -> Self {
        let seconds = |span: Duration| format!("{}s", span.as_secs());
        // The list of checks is sent even if it is empty; otherwise Consul adds a check of its own.
        Self(json!({
            "Name": name,
            "Behavior": behavior,
            "TTL": seconds(ttl),
            "LockDelay": seconds(lock_delay),
            "NodeChecks": checks,
        }))
    }

    /// Creates a session and returns its ID.
    pub(crate) async fn create(&self, client: &Client) -> Result<String, StoreError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        struct Created {
            id: String,
        }
        let answer = client.call(HttpRequest::put("/v1/session/create", "").body(self.0.to_string())).await?;
        Ok(answer.json::<Created>()?.id)
    }
}
