//! The connection that a store asks over, replaced when it breaks.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tenure_core::StoreError;
use tokio::sync::watch;

use crate::bells::Bells;
use crate::link::{Dialer, Link};

/// The connection that a store asks over. It is opened by the first call and serves all, one behind
/// the other; one that has broken, or has not answered in time, is replaced by the next call.
pub(crate) struct Line {
    dialer: Arc<Dialer>,
    pub(crate) bells: Arc<Bells>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    dialing: Option<Dialing>,
}

/// A connection in the making. It goes on when the call that began it is given up, so that the next one
/// finds it further along.
struct Dialing {
    began: Instant,
    outcome: watch::Receiver<Option<Outcome>>,
}

type Outcome = Result<Arc<Link>, StoreError>;

/// Whoever has waited this long for a connection would rather begin anew.
const STALE: Duration = Duration::from_secs(5);

impl Line {
    pub(crate) fn new(dialer: Arc<Dialer>, bells: Arc<Bells>) -> Self {
        Self { dialer, bells, state: Mutex::default() }
    }

    /// A connection to ask over.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, StoreError> {
        let mut outcome = {
            let mut state = self.lock();
            if let Some(link) = &state.link {
                if link.is_good() {
                    return Ok(link.clone());
                }
                state.link = None;
                // What is pushed over it is not heard any more.
                self.bells.ring_all();
            }
            match &state.dialing {
                Some(dialing) if dialing.goes_on() => dialing.outcome.clone(),
                _ => {
                    let dialing = self.dial();
                    let outcome = dialing.outcome.clone();
                    state.dialing = Some(dialing);
                    outcome
                }
            }
        };
        let told = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        match told {
            Some(Ok(link)) => {
                let mut state = self.lock();
                state.dialing = None;
                match &state.link {
                    Some(other) if other.is_good() => Ok(other.clone()),
                    _ => {
                        state.link = Some(link.clone());
                        Ok(link)
                    }
                }
            }
            Some(Err(error)) => {
                self.lock().dialing = None;
                Err(error.clone())
            }
            None => Err(StoreError::refused("the runtime that was connecting is gone")),
        }
    }

    fn dial(&self) -> Dialing {
        let (tell, outcome) = watch::channel(None);
        let (dialer, bells) = (self.dialer.clone(), self.bells.clone());
        tokio::spawn(async move {
            let opened = tokio::select! {
                opened = dialer.dial(Some(bells.clone())) => opened,
                // The store itself is gone.
                () = tell.closed() => return,
            };
            if let Ok(link) = &opened
                && link.server.pooled
            {
                tracing::info!("there is a pooler before PostgreSQL: changes are looked for, not listened to");
            }
            let closed = opened.as_ref().ok().map(Link::closed);
            let _ = tell.send(Some(opened.map(Arc::new)));
            // The channel holds the link. A link that this task kept alive would stay open for as long as
            // the process runs once the line has replaced it: nothing else closes it.
            drop(tell);
            if let Some(closed) = closed {
                closed.await;
                bells.ring_all();
            }
        });
        Dialing { began: Instant::now(), outcome }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Dialing {
    /// Whether it is worth waiting for.
    fn goes_on(&self) -> bool {
        let told = match &*self.outcome.borrow() {
            None => self.outcome.has_changed().is_ok(),
            Some(Ok(link)) => link.is_good(),
            // Of a call that was given up: the next one tries for itself.
            Some(Err(_)) => false,
        };
        told && self.began.elapsed() < STALE
    }
}
