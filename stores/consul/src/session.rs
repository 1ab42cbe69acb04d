//! A session: what seats are held on, and the heartbeat that keeps all of them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{Clock, Moment, StoreError};
use tokio::sync::watch;

use crate::client::{Ask, Client};
use crate::tree::{Mirror, Tree};

/// A session that seats of one lease are held on.
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) lease: Duration,
    client: Arc<Client>,
    mirror: Arc<Mirror>,
    clock: Clock,
    beats: Mutex<Beats>,
    over: watch::Sender<bool>,
}

struct Beats {
    /// When the last heartbeat, or its creation, was sent that was answered.
    renewed: Moment,
    last: Option<Arc<Beat>>,
    underway: Option<watch::Receiver<Option<Answered>>>,
}

type Answered = Result<Arc<Beat>, StoreError>;

/// A heartbeat that was answered.
pub(crate) struct Beat {
    /// The session lives for its time from here on, at the least.
    pub(crate) sent: Moment,
    /// All seats, at some moment after that.
    pub(crate) tree: Arc<Tree>,
}

/// What a session is made with.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Terms {
    name: &'static str,
    #[serde(rename = "TTL")]
    ttl: String,
    lock_delay: String,
    behavior: &'static str,
    node_checks: Vec<String>,
}

impl Terms {
    /// Its keys are unlocked and stay when it ends.
    pub(crate) fn release(ttl: Duration, lock_delay: Duration, checks: &[String]) -> Self {
        Self {
            name: "tenure",
            ttl: format!("{}s", ttl.as_secs()),
            lock_delay: format!("{}s", lock_delay.as_secs()),
            behavior: "release",
            // Said even if there are none: Consul would add one of its own.
            node_checks: checks.to_vec(),
        }
    }

    /// Its keys are deleted when it ends.
    pub(crate) fn delete(ttl: Duration) -> Self {
        Self { behavior: "delete", name: "tenure: a request", ..Self::release(ttl, Duration::ZERO, &[]) }
    }

    /// Makes a session, and returns its id.
    pub(crate) async fn create(&self, client: &Client) -> Result<String, StoreError> {
        #[derive(Deserialize)]
        struct Made {
            #[serde(rename = "ID")]
            id: String,
        }
        let body = serde_json::to_string(self).map_err(|error| StoreError::denied("no JSON").because(error))?;
        let answer = client.call_aside(Ask::put("/v1/session/create").body(body)).await?;
        Ok(answer.json::<Made>()?.id)
    }
}

impl Session {
    pub(crate) async fn open(
        client: Arc<Client>,
        mirror: Arc<Mirror>,
        lease: Duration,
        terms: &Terms,
        clock: Clock,
    ) -> Result<Self, StoreError> {
        let renewed = clock.now();
        let id = terms.create(&client).await?;
        let beats = Mutex::new(Beats { renewed, last: None, underway: None });
        Ok(Self { id, lease, client, mirror, clock, beats, over: watch::Sender::new(false) })
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// It is over, or given up.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Resolves when the session is known to be over.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.subscribe();
        async move {
            if over.wait_for(|over| *over).await.is_err() {
                // Dropped while it lived.
                std::future::pending().await
            }
        }
    }

    /// When the renewal was sent that it lives by.
    pub(crate) fn renewed(&self) -> Moment {
        self.lock().renewed
    }

    /// A heartbeat that was sent at a moment or later, or the next one.
    ///
    /// A session that nothing was heard of for a lease is given up, and never renewed again. Nobody leads by it
    /// any more, and if it is only the answers that are lost, it would keep its seats from everybody else.
    pub(crate) async fn beat(self: &Arc<Self>, from: Moment) -> Result<Arc<Beat>, StoreError> {
        if self.is_over() || self.clock.now().since(self.renewed()) >= self.lease {
            self.end();
            return Err(StoreError::refused(
                "nothing was heard of the session with Consul for a lease: it is given up",
            ));
        }
        let mut outcome = {
            let mut beats = self.lock();
            if let Some(last) = beats.last.as_ref().filter(|last| last.sent >= from) {
                return Ok(last.clone());
            }
            let underway = beats.underway.as_ref();
            match underway.filter(|underway| underway.has_changed().is_ok() && underway.borrow().is_none()) {
                Some(underway) => underway.clone(),
                None => {
                    let (tell, outcome) = watch::channel(None);
                    beats.underway = Some(outcome.clone());
                    let session = self.clone();
                    // Run to its end, whoever still waits: others may.
                    tokio::spawn(async move {
                        let beat = session.ask().await.map(Arc::new);
                        if let Ok(beat) = &beat {
                            session.lock().last = Some(beat.clone());
                        }
                        let _ = tell.send(Some(beat));
                    });
                    outcome
                }
            }
        };
        let told = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        match told {
            Some(Ok(beat)) => Ok(beat),
            Some(Err(error)) => Err(error.clone()),
            None => Err(StoreError::unknown("the heartbeat was cut off")),
        }
    }

    /// Renews the session, and looks at the seats.
    ///
    /// # Correctness
    /// A leader counts from `sent`, so everything that it counts on must be true later than that. The server
    /// starts the session's time anew when it gets the renewal, which is after it was sent. That the seats
    /// are still ours is asked after it, too: a renewal alone would keep a leader whose seat somebody has
    /// deleted, while others wait only a lease from when they saw that.
    ///
    /// A renewal is kept in the memory of the one server that leads the others. One that was deposed and does
    /// not know yet may answer it in vain. That does no harm: the new one gives every session twice its time
    /// from when it was chosen. Whoever leads then has its last true renewal from before that, and so with
    /// one more in vain it leads for less than two leases from there. By the next one the deposed server
    /// knows, as it hears from no majority; it cannot answer the question for the seats as it is.
    async fn ask(&self) -> Result<Beat, StoreError> {
        let within = self.lease / 10;
        let sent = self.clock.now();
        let renew = Ask::put(format!("/v1/session/renew/{}", self.id)).also(404).within(within);
        let (renewed, tree) =
            futures_util::future::join(self.client.call_aside(renew), self.mirror.proven(&self.clock, within)).await;
        if renewed?.status == 404 {
            self.end();
            return Err(StoreError::refused("the session with Consul is over"));
        }
        let tree = tree?;
        let mut beats = self.lock();
        beats.renewed = beats.renewed.max(sent);
        drop(beats);
        Ok(Beat { sent, tree })
    }

    fn lock(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
