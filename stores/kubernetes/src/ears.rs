//! Hears what changes: one watch for all seats of a process.
//!
//! ```text
//!   list ──▶ watch ──▶ events: seats, requests, bookmarks      one post for each seat
//!    ▲         │
//!    └─────────┴─ too old (410), another seat to hear of, silent, cut
//! ```
//!
//! Only what carries the mark of one of our seats is asked for, so a process hears nothing of elections
//! that are not its own. A watch that ends as watches do is taken up where it was. One that has nothing
//! to say looks just like one that hangs, so it is held against what we are told elsewhere: whatever was
//! read or written must come by, too, within a third of its lease.
//!
//! A watch that fails is tried again after a pause that doubles, up to a third of the shortest lease, and is short
//! again once a watch has delivered a change or lasted. One that is forbidden is tried again once a minute.
//! Meanwhile the engine looks every third of a lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;
use tenure_core::{Clock, Fault, Moment, SeatName, StoreError};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::api::{Api, Which};
use crate::lease::{Lease, revision};
use crate::names;
use crate::post::Post;

/// Hears what changes, for as long as it is there.
pub(crate) struct Ears {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    api: Arc<Api>,
    clock: OnceLock<Clock>,
    /// By the mark of the seat.
    posts: Mutex<Posts>,
    /// There is another seat to hear of.
    more: Notify,
    echo: Mutex<Echo>,
    awaits: Notify,
    /// Whether the last watch has delivered a change, or lasted.
    works: AtomicBool,
}

type Posts = BTreeMap<String, Arc<Post>>;

/// What has come by, and what should have.
#[derive(Default)]
struct Echo {
    heard: u64,
    awaited: Option<(u64, Instant)>,
}

/// More seats than this are not listed by name: then everything with a mark is heard of.
const MOST: usize = 40;
/// How long an unanswered question about changes is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// A seat that nobody has asked for since is no longer heard of.
const UNUSED: Duration = Duration::from_secs(60);
/// The pause after a first failure; later ones double.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// A watch that lasts for this long works.
const LASTING: Duration = Duration::from_secs(1);
/// How often a watch is tried that the role does not permit.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);
/// Seats that are asked for within this time are asked for together.
const TOGETHER: Duration = Duration::from_millis(5);

impl Ears {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        let shared = Shared {
            api,
            clock: OnceLock::new(),
            posts: Mutex::default(),
            more: Notify::new(),
            echo: Mutex::default(),
            awaits: Notify::new(),
            works: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), task: Mutex::default() }
    }

    pub(crate) fn attach(&self, clock: &Clock) {
        let _ = self.shared.clock.set(clock.clone());
    }

    /// Where the news of a seat arrives; from now on, some will.
    pub(crate) fn post(&self, seat: &SeatName) -> Arc<Post> {
        let post = {
            let mut posts = self.shared.posts();
            let post = posts.entry(names::mark_of(seat)).or_insert_with(|| {
                self.shared.more.notify_one();
                Arc::new(Post::new(seat))
            });
            *post.used() = Instant::now();
            post.clone()
        };
        let mut task = self.task.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(run(self.shared.clone())));
        }
        post
    }

    /// Where the news of a seat arrives, if somebody has asked for it.
    pub(crate) fn existing(&self, seat: &SeatName) -> Option<Arc<Post>> {
        self.shared.posts().get(&names::mark_of(seat)).cloned()
    }

    /// The cluster's data has gone backwards: what was heard no longer counts.
    pub(crate) fn forget(&self) {
        *self.shared.echo() = Echo::default();
        self.shared.posts().values().for_each(|post| post.forget());
    }

    /// Something was read or written of a seat that should come by here, too.
    pub(crate) fn await_echo(&self, of: u64, lease: Duration) {
        let mut echo = self.shared.echo();
        if of > echo.heard && echo.awaited.is_none() {
            echo.awaited = Some((of, Instant::now() + lease / 3));
            self.shared.awaits.notify_one();
        }
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take() {
            task.abort();
        }
    }
}

impl Shared {
    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn echo(&self) -> MutexGuard<'_, Echo> {
        self.echo.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn now(&self) -> Moment {
        self.clock.get_or_init(Clock::system).now()
    }

    /// The seats to hear of, and what to ask for.
    fn wanted(&self) -> (Posts, Which) {
        let mut posts = self.posts();
        posts.retain(|_, post| post.heard.receiver_count() > 0 || post.used().elapsed() < UNUSED);
        let marks: Vec<_> = posts.keys().map(String::as_str).collect();
        let which = match marks.len() {
            0..=MOST => format!("{} in ({})", names::SEAT, marks.join(",")),
            _ => names::SEAT.to_owned(),
        };
        (posts.clone(), Which::Labels(which))
    }

    fn come_by(&self, revision: u64) {
        let mut echo = self.echo();
        echo.heard = echo.heard.max(revision);
        if echo.awaited.is_some_and(|(awaited, _)| awaited <= revision) {
            echo.awaited = None;
        }
    }

    /// Resolves when something should have come by, and has not.
    async fn misses(&self) {
        loop {
            let awaited = self.echo().awaited;
            match awaited {
                None => self.awaits.notified().await,
                Some((_, until)) if Instant::now() >= until => return,
                Some((_, until)) => tokio::time::sleep_until(until).await,
            }
        }
    }

    /// Resolves when there is another seat to hear of than these.
    async fn grown(&self, posts: &Posts) {
        loop {
            if self.posts().keys().any(|mark| !posts.contains_key(mark)) {
                return;
            }
            self.more.notified().await;
        }
    }

    /// The longest pause between attempts to listen: whoever waits looks by then anyway.
    fn longest_pause(&self) -> Duration {
        let shortest = self.posts().values().map(|post| *post.lease()).min();
        shortest.unwrap_or(Duration::ZERO) / 3
    }

    /// Listens from a list on, and returns when there is to be another.
    async fn listen(&self) -> Result<(), Deaf> {
        let (posts, which) = self.wanted();
        if posts.is_empty() {
            self.more.notified().await;
            return Ok(());
        }
        self.api.admit()?;
        let hangs = || StoreError::refused("the API server does not answer");
        let list = tokio::time::timeout(PATIENCE, self.api.list(&which)).await.unwrap_or_else(|_| Err(hangs()))?;
        let at = self.now();
        *self.echo() = Echo { heard: list.revision, awaited: None };
        posts.values().for_each(|post| post.take_list(&list, at));
        let mut after = list.revision;
        loop {
            let watch = tokio::time::timeout(PATIENCE, self.api.watch(&which, after));
            let (link, body) = match watch.await.unwrap_or_else(|_| Err(hangs())) {
                Err(error) if error.fault() == Fault::Denied => return Err(Deaf::Forbidden(error)),
                watch => watch?,
            };
            let (began, mut lines) = (Instant::now(), Lines::new(body));
            loop {
                tokio::select! {
                    line = lines.next() => {
                        let Some(line) = line? else { break };
                        link.hear();
                        let revision = self.take_line(&posts, &line)?;
                        if revision > after {
                            after = revision;
                            self.works.store(true, Ordering::Relaxed);
                        }
                    }
                    () = self.grown(&posts) => {
                        tokio::time::sleep(TOGETHER).await;
                        return Ok(());
                    }
                    () = self.misses() => return Err(StoreError::refused("the watch hangs").into()),
                    () = link.over() => return Err(StoreError::refused("the connection was given up").into()),
                }
            }
            if began.elapsed() < LASTING {
                return Err(StoreError::refused("the watch ends as soon as it begins").into());
            }
            self.works.store(true, Ordering::Relaxed);
        }
    }

    /// Takes in one line of a watch, and returns its revision.
    ///
    /// # Errors
    /// If the server has failed, or has forgotten what comes next (410): there must be another list.
    fn take_line(&self, posts: &Posts, line: &[u8]) -> Result<u64, StoreError> {
        let at = self.now();
        let nonsense = |error| StoreError::refused("the watch says something that is no event").because(error);
        let event: Event = serde_json::from_slice(line).map_err(nonsense)?;
        if event.kind == "ERROR" {
            let status = format!("{} {}", event.object["code"], event.object["reason"]);
            return Err(StoreError::refused(format!("the API server has ended the watch: {status}")));
        }
        let object: Lease = serde_json::from_value(event.object).map_err(nonsense)?;
        let revision = revision(&object.metadata.resource_version)?;
        if event.kind != "BOOKMARK"
            && let Some(post) = object.label(names::SEAT).and_then(|mark| posts.get(mark))
        {
            post.take_event(&object, event.kind != "DELETED", revision, at);
        }
        self.come_by(revision);
        Ok(revision)
    }
}

/// Why changes are not heard.
enum Deaf {
    /// The role does not permit to watch.
    Forbidden(StoreError),
    Failed(StoreError),
}

impl From<StoreError> for Deaf {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Listens, again and again.
async fn run(shared: Arc<Shared>) {
    let (mut pause, mut told) = (FIRST_PAUSE, false);
    loop {
        let Err(deaf) = shared.listen().await else { continue };
        shared.posts().values().for_each(|post| post.unserved());
        if shared.works.swap(false, Ordering::Relaxed) {
            (pause, told) = (FIRST_PAUSE, false);
        }
        match deaf {
            Deaf::Forbidden(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        %error,
                        "changes cannot be watched: candidates look every third of a lease instead; \
                         add `verbs: [watch]` on leases.coordination.k8s.io to the role"
                    );
                }
                tokio::select! {
                    () = tokio::time::sleep(jittered(FORBIDDEN_PAUSE)) => {}
                    () = shared.api.credential_refused() => tokio::time::sleep(jittered(pause)).await,
                }
            }
            Deaf::Failed(error) => {
                tracing::debug!(%error, ?pause, "changes cannot be heard: trying again");
                tokio::time::sleep(jittered(pause)).await;
            }
        }
        pause = (pause * 2).min(shared.longest_pause()).max(FIRST_PAUSE);
    }
}

/// Half of a pause at least, so that many processes do not ask at the same time.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..=1.0))
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

/// An answer, line by line.
struct Lines {
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    fn new(body: Body) -> Self {
        Self { body, buffer: Vec::new() }
    }

    /// The next line, or `None` at the end. May be dropped at any time.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(StoreError::refused("the watch was cut").because(error)),
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            }
        }
    }
}
