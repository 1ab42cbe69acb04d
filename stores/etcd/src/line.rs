//! The connection that a store asks over, replaced when it breaks.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tenure_core::StoreError;
use tokio::sync::watch;

use crate::dial::Dialer;
use crate::link::Link;

/// The connection that a store asks over. It is opened by the first call and serves all at once; one that
/// has broken, or has not answered in time, is replaced by the next call, by one to another member if there
/// are several.
pub(crate) struct Line {
    dialer: Arc<Dialer>,
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
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer: Arc::new(dialer), state: Mutex::default() }
    }

    /// A connection to ask over.
    pub(crate) async fn link(&self) -> Result<Arc<Link>, StoreError> {
        let mut outcome = {
            let mut state = self.lock();
            if let Some(link) = &state.link {
                if link.is_good() {
                    let link = link.clone();
                    // Begun for a call that was given up while this connection was in doubt. Nobody needs it any more.
                    state.dialing = None;
                    return Ok(link);
                }
                // One that is only doubted may be busy, and not dead: it stays until another is there, and if
                // anything was heard on it by then, it stays for good.
                if link.is_over() {
                    state.link = None;
                }
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
                    before => {
                        // Whoever listens to it is told.
                        before.iter().filter(|before| !Arc::ptr_eq(before, &link)).for_each(|before| before.retire());
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
        let dialer = self.dialer.clone();
        tokio::spawn(async move {
            let opened = tokio::select! {
                opened = dialer.dial() => opened,
                // The store itself is gone, or does not need it any more.
                () = tell.closed() => return,
            };
            let _ = tell.send(Some(opened.map(Arc::new)));
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
