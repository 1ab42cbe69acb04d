//! Who is to be told of what has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::keys::{Keys, Subject};
use crate::wire::Event;

/// The revision of the last change that was heard of.
pub(crate) type Bell = Arc<watch::Sender<i64>>;

/// Whether a session is over. Once it is, it stays so: its key is never made again.
pub(crate) type Life = Arc<watch::Sender<bool>>;

/// Those who listen in this process, by what they listen for.
#[derive(Debug)]
pub(crate) struct Bells {
    keys: Keys,
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    /// By the key of a seat, or what the keys of its requests begin with.
    bells: HashMap<String, Bell>,
    lives: HashMap<i64, Life>,
    /// How many there may be before those are cleared away that nobody listens to.
    most: usize,
}

impl Bells {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, listeners: Mutex::default() }
    }

    /// Told of every change of a seat or its requests from now on.
    pub(crate) fn listen(&self, key: &str) -> Bell {
        let mut listeners = self.lock();
        listeners.tidy();
        listeners.bells.entry(key.to_owned()).or_default().clone()
    }

    /// Told when this session is over.
    pub(crate) fn life(&self, session: i64) -> Life {
        let mut listeners = self.lock();
        listeners.tidy();
        listeners.lives.entry(session).or_default().clone()
    }

    /// Something was heard. Called by the task that listens, so it must not block.
    pub(crate) fn ring(&self, event: &Event) {
        let Some(kv) = &event.kv else { return };
        let Ok(key) = std::str::from_utf8(&kv.key) else { return };
        match self.keys.subject(key) {
            Some(Subject::Seat) => self.tell(key, kv.mod_revision),
            Some(Subject::Request(board)) if !event.is_delete() => self.tell(board, kv.mod_revision),
            Some(Subject::Live(session)) if event.is_delete() => {
                if let Some(life) = self.lock().lives.remove(&session) {
                    life.send_replace(true);
                }
            }
            _ => {}
        }
    }

    fn tell(&self, key: &str, revision: i64) {
        if let Some(bell) = self.lock().bells.get(key) {
            bell.send_modify(|last| *last = revision.max(*last));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Listeners {
    fn tidy(&mut self) {
        if self.bells.len() + self.lives.len() > self.most {
            self.bells.retain(|_, bell| Arc::strong_count(bell) > 1 || bell.receiver_count() > 0);
            self.lives.retain(|_, life| Arc::strong_count(life) > 1 || life.receiver_count() > 0);
            self.most = 2 * (self.bells.len() + self.lives.len()) + 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::KeyValue;

    #[test]
    fn who_listens_is_told_however_many_others_have_come_and_gone() {
        let keys = Keys::new("tenure");
        let bells = Bells::new(keys.clone());
        let (seat, life) = (bells.listen("tenure/seats/jobs").subscribe(), bells.life(7).subscribe());
        for number in 0..1000 {
            drop((bells.listen(&format!("tenure/seats/{number}")), bells.life(number + 10)));
        }
        let event = |kind, key: &str| {
            let kv = KeyValue { key: key.into(), mod_revision: 9, ..KeyValue::default() };
            bells.ring(&Event { kind, kv: Some(kv) });
        };
        event(0, "tenure/seats/jobs");
        event(0, &keys.live(7));
        assert_eq!((*seat.borrow(), *life.borrow()), (9, false));
        event(1, &keys.live(7));
        assert!(*life.borrow());
        assert!(bells.lock().bells.len() < 100);
    }
}
