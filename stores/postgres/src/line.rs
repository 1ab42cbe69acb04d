//! The connection that a store asks over, replaced when it breaks.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tenure_core::StoreError;
use tokio::sync::watch;

use crate::bells::Bells;
use crate::faults;
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
    /// Told to whoever watches over a connection that is no longer used.
    retired: watch::Sender<u64>,
    dialing: Option<Dialing>,
}

/// A connection in the making. It goes on when the call that began it is given up, so that the next one
/// finds it further along.
struct Dialing {
    began: Instant,
    outcome: watch::Receiver<Option<Outcome>>,
}

type Outcome = Result<Arc<Link>, Arc<StoreError>>;

/// Whoever has waited this long for a connection would rather begin anew.
const STALE: Duration = Duration::from_secs(5);

impl Line {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, bells: Arc::default(), state: Mutex::default() }
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
                state.retired.send_modify(|count| *count += 1);
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
                Err(faults::again(&error))
            }
            None => Err(StoreError::refused("the runtime that was connecting is gone")),
        }
    }

    /// Resolves once this connection is closed or no longer used: what is pushed over it is not heard
    /// any more.
    pub(crate) fn ended(&self, link: &Arc<Link>) -> impl Future<Output = ()> + Send + 'static {
        let (mut retired, is_current) = {
            let state = self.lock();
            let is_current = state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link));
            let mut retired = state.retired.subscribe();
            retired.mark_unchanged();
            (retired, is_current)
        };
        let closed = link.closed();
        async move {
            if is_current {
                tokio::select! {
                    () = closed => {}
                    _ = retired.changed() => {}
                }
            }
        }
    }

    fn dial(&self) -> Dialing {
        let (tell, outcome) = watch::channel(None);
        let (dialer, bells) = (self.dialer.clone(), self.bells.clone());
        tokio::spawn(async move {
            let opened = tokio::select! {
                opened = dialer.dial(Some(bells)) => opened,
                // The store itself is gone.
                () = tell.closed() => return,
            };
            if let Ok(link) = &opened
                && link.server.pooled
            {
                tracing::info!("there is a pooler before PostgreSQL: changes are looked for, not listened to");
            }
            let _ = tell.send(Some(opened.map(Arc::new).map_err(Arc::new)));
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
