//! Waits for news: one query that Consul answers when a seat has changed, for all seats of the process.
//!
//! As Consul asks of those who do so: the number to wait from is the last one that was answered, it is
//! never below 1, starts over when it goes backwards, every wait has an end, and answers that come in
//! quick succession are asked for more slowly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::Clock;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::tree::Mirror;

/// The query, while anybody minds.
pub(crate) struct Watch {
    inner: Arc<Inner>,
}

struct Inner {
    mirror: Arc<Mirror>,
    served: watch::Sender<Served>,
    /// How long one query waits, in milliseconds: half of the shortest lease, so that one which is no longer
    /// served is noticed within a lease.
    wait: AtomicU64,
    task: Mutex<Option<AbortHandle>>,
}

/// Whether news is heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) is_served: bool,
    /// How often it was not, for a while.
    pub(crate) breaks: u64,
}

impl Watch {
    pub(crate) fn new(mirror: Arc<Mirror>) -> Self {
        let (served, _) = watch::channel(Served::default());
        Self { inner: Arc::new(Inner { mirror, served, wait: AtomicU64::new(30_000), task: Mutex::default() }) }
    }

    /// Has the mirror kept up to date for as long as what this returns is kept.
    pub(crate) fn mind(&self, lease: Duration, clock: &Clock) -> watch::Receiver<Served> {
        let wait = u64::try_from(lease.as_millis() / 2).unwrap_or(u64::MAX).clamp(500, 30_000);
        self.inner.wait.fetch_min(wait, Ordering::Relaxed);
        let mut task = self.inner.task();
        let served = self.inner.served.subscribe();
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            *task = Some(tokio::spawn(run(self.inner.clone(), clock.clone())).abort_handle());
        }
        served
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self.inner.task().take() {
            task.abort();
        }
    }
}

impl Inner {
    fn task(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.task.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn tell(&self, is_served: bool, broken: bool) {
        self.served.send_if_modified(|served| {
            let before = *served;
            served.is_served = is_served;
            served.breaks += u64::from(broken);
            *served != before
        });
    }

    /// Ends it, if nobody minds.
    fn is_over(&self) -> bool {
        let mut task = self.task();
        let over = self.served.receiver_count() == 0;
        if over {
            *task = None;
            self.tell(false, false);
        }
        over
    }
}

/// How soon after the last answer the next query may be sent, if many have come at once.
const PAUSE: Duration = Duration::from_millis(20);

/// And how much later for each seat and request that it tells of: every answer has them all, and while a thousand
/// seats are being won, nothing else would be done than to read them a thousand times.
const PAUSE_FOR_EACH: Duration = Duration::from_micros(200);

/// How many may come at once.
const BURST: u32 = 16;

async fn run(inner: Arc<Inner>, clock: Clock) {
    let (mut index, mut credit, mut failures) = (0, BURST, 0_u32);
    let mut pause = PAUSE;
    let mut last = clock.now();
    // It lives on for one query when nobody minds: an election that looks is back in a moment.
    let mut idle = 0;
    while idle < 2 || !inner.is_over() {
        idle = if inner.served.receiver_count() == 0 { idle + 1 } else { 0 };
        let wait = Duration::from_millis(inner.wait.load(Ordering::Relaxed));
        let asked = clock.now();
        credit =
            credit.saturating_add(u32::try_from(asked.since(last).as_millis() / pause.as_millis()).unwrap_or(BURST));
        credit = credit.min(BURST);
        last = asked;
        if credit == 0 {
            tokio::time::sleep(pause).await;
        }
        credit = credit.saturating_sub(1);
        let parameters = format!("index={index}&wait={}ms", wait.as_millis());
        // Consul adds a sixteenth of its own.
        match inner.mirror.fetch(&parameters, wait + wait / 8 + Duration::from_secs(1)).await {
            Ok(tree) => {
                pause = PAUSE + PAUSE_FOR_EACH * tree.len();
                let starts_over = tree.index < index;
                index = if starts_over { 0 } else { tree.index };
                inner.mirror.learn(tree, asked, starts_over);
                inner.tell(true, starts_over);
                failures = 0;
            }
            Err(error) => {
                tracing::debug!(%error, "changes cannot be waited for");
                inner.tell(false, true);
                index = 0;
                failures += 1;
                let longest = 50 << failures.min(5);
                tokio::time::sleep(Duration::from_millis(rand::random_range(longest / 2..=longest))).await;
            }
        }
    }
}
