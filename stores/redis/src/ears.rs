//! What a connection hears: messages on the channels of seats, and that it is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use redis::{PushInfo, PushKind, Value};
use tenure_core::Version;
use tokio::sync::Notify;

/// What one connection hears.
pub(crate) struct Ears {
    ears: Mutex<HashMap<Box<str>, Arc<Ear>>>,
    is_over: AtomicBool,
    over: Notify,
    /// How often anything came in, and when it did last.
    sounds: AtomicU64,
    last_sound: Mutex<Instant>,
    /// With so many channels, those that nobody listens to are forgotten.
    many: AtomicUsize,
}

/// What is heard on the channel of one seat.
#[derive(Default)]
pub(crate) struct Ear {
    /// Whether the server has confirmed that it will tell us.
    pub(crate) open: AtomicBool,
    heard: Mutex<Heard>,
    news: Notify,
}

/// What was heard so far. Messages and answers come in on one connection, in the order in which the
/// server acted: whatever changed after a reading is heard after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// How often the holder was said to have changed, and to whom the last time.
    pub(crate) changes: u64,
    pub(crate) holder: String,
    /// How often a request was said to be on the board, and how often when it was last found empty.
    pub(crate) requests: u64,
    pub(crate) no_requests: Option<u64>,
    /// A version that was read or written when `changes` stood at this.
    pub(crate) mark: Option<(Option<Version>, u64)>,
}

impl Ears {
    pub(crate) fn new() -> Self {
        Self {
            ears: Mutex::default(),
            is_over: AtomicBool::new(false),
            over: Notify::new(),
            sounds: AtomicU64::new(0),
            last_sound: Mutex::new(Instant::now()),
            many: AtomicUsize::new(FEW),
        }
    }

    /// Takes in a message. Called by the connection's own task, so it must not block.
    pub(crate) fn hear(&self, push: &PushInfo) {
        self.sound();
        match push.kind {
            PushKind::Disconnection => self.close(),
            PushKind::Message => {
                let text = |value: Option<&Value>| match value {
                    Some(Value::BulkString(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
                    Some(Value::SimpleString(text)) => text.clone(),
                    _ => String::new(),
                };
                let (channel, message) = (text(push.data.first()), text(push.data.get(1)));
                if let Some(ear) = self.existing(&channel) {
                    ear.heard().take_in(&message);
                    ear.news.notify_waiters();
                }
            }
            _ => {}
        }
    }

    /// Something came in.
    pub(crate) fn sound(&self) {
        self.sounds.fetch_add(1, Ordering::Relaxed);
        *self.last_sound.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Instant::now();
    }

    /// For how long nothing has come in.
    pub(crate) fn silence(&self) -> Duration {
        self.last_sound.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).elapsed()
    }

    pub(crate) fn sounds(&self) -> u64 {
        self.sounds.load(Ordering::Relaxed)
    }

    /// The connection is over: everybody who waits for it is told.
    pub(crate) fn close(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            self.over.notify_waiters();
            self.lock().values().for_each(|ear| ear.news.notify_waiters());
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(crate) async fn closed(&self) {
        let over = self.over.notified();
        if !self.is_closed() {
            over.await;
        }
    }

    pub(crate) fn existing(&self, channel: &str) -> Option<Arc<Ear>> {
        self.lock().get(channel).cloned()
    }

    pub(crate) fn ear(&self, channel: &str) -> Arc<Ear> {
        self.lock().entry(channel.into()).or_default().clone()
    }

    /// Forgets the channels that nobody listens to, if there have come to be many, and returns them.
    pub(crate) fn idle(&self) -> Vec<String> {
        let mut ears = self.lock();
        let mut idle = Vec::new();
        if ears.len() > self.many.load(Ordering::Relaxed) {
            ears.retain(|channel, ear| {
                let keeps = Arc::strong_count(ear) > 1 || !ear.open.load(Ordering::Relaxed);
                if !keeps {
                    idle.push(channel.to_string());
                }
                keeps
            });
            self.many.store(FEW.max(ears.len() * 2), Ordering::Relaxed);
        }
        idle
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Ear>>> {
        self.ears.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// So many channels are nothing to be tidied.
const FEW: usize = 1000;

impl Ear {
    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns once something was heard that is news, or nothing more will be.
    pub(crate) async fn wait_for(&self, ears: &Ears, is_news: impl Fn(&Heard) -> bool) {
        loop {
            // From here on, nothing goes unnoticed.
            let news = self.news.notified();
            if ears.is_closed() || is_news(&self.heard()) {
                return;
            }
            news.await;
        }
    }
}

impl Heard {
    fn take_in(&mut self, message: &str) {
        match message.split_once(' ').map_or((message, ""), |(word, rest)| (word, rest)) {
            ("request", _) => self.requests += 1,
            (_, holder) => {
                self.changes += 1;
                holder.clone_into(&mut self.holder);
            }
        }
    }
}
