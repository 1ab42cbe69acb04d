//! What a connection hears: messages on the channels of seats, and that it is over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use redis::{PushInfo, PushKind, Value};
use tenure_core::Version;
use tokio::sync::watch;

/// What one connection hears.
pub(crate) struct Ears {
    ears: Mutex<HashMap<String, Arc<Ear>>>,
    gone: watch::Sender<bool>,
    /// How often anything came in.
    sounds: AtomicU64,
}

/// What is heard on the channel of one seat.
pub(crate) struct Ear {
    /// Whether the server has confirmed that it will tell us.
    pub(crate) open: AtomicBool,
    pub(crate) heard: watch::Sender<Heard>,
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
        Self { ears: Mutex::default(), gone: watch::Sender::new(false), sounds: AtomicU64::new(0) }
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
                    ear.heard.send_modify(|heard| heard.take_in(&message));
                }
            }
            _ => {}
        }
    }

    /// Something came in.
    pub(crate) fn sound(&self) {
        self.sounds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sounds(&self) -> u64 {
        self.sounds.load(Ordering::Relaxed)
    }

    /// The connection is over: everybody who waits for it is told.
    pub(crate) fn close(&self) {
        self.gone.send_replace(true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.gone.borrow()
    }

    pub(crate) async fn closed(&self) {
        // The sender is ours, so this cannot fail while we are here.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    pub(crate) fn existing(&self, channel: &str) -> Option<Arc<Ear>> {
        self.lock().get(channel).cloned()
    }

    pub(crate) fn ear(&self, channel: &str) -> Arc<Ear> {
        let new = || Arc::new(Ear { open: AtomicBool::new(false), heard: watch::Sender::new(Heard::default()) });
        self.lock().entry(channel.to_owned()).or_insert_with(new).clone()
    }

    /// Forgets the channels that nobody listens to, and returns them.
    pub(crate) fn idle(&self) -> Vec<String> {
        let mut ears = self.lock();
        let idle: Vec<_> = ears
            .iter()
            .filter(|(_, ear)| ear.heard.receiver_count() == 0 && ear.open.load(Ordering::Relaxed))
            .map(|(channel, _)| channel.clone())
            .collect();
        ears.retain(|channel, _| !idle.contains(channel));
        idle
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Ear>>> {
        self.ears.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
