//! All seats and requests as last heard of, and the proof that they are still so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tenure_core::{Clock, Moment, StoreError};
use tenure_kit::{SharedTask, lock};

use crate::client::{Answer, Ask, Client};
use crate::keys::{Keys, in_url};
use crate::kv::Entry;

/// All seats and requests at one moment.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Consul's number for this state of them: that of the last change to any.
    pub(crate) index: u64,
    entries: BTreeMap<String, Entry>,
}

impl Tree {
    pub(crate) fn new(index: u64, entries: Vec<Entry>) -> Self {
        Self { index, entries: entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect() }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// The entries in a folder.
    pub(crate) fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a Entry> {
        let from_there = self.entries.range(folder.to_owned()..).map(|(_, entry)| entry);
        from_there.take_while(move |entry| entry.key.starts_with(folder))
    }

    /// Whether this session has locked anything.
    pub(crate) fn is_locked_by(&self, session: &str) -> bool {
        self.entries.values().any(|entry| entry.session == session)
    }

    /// The keys that were written or deleted since an earlier state.
    pub(crate) fn changed_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a str> {
        let index = |entry: &Entry| entry.modify_index;
        let written = self.entries.iter().filter(move |(key, entry)| earlier.get(key).map(index) != Some(index(entry)));
        let deleted = earlier.entries.keys().filter(|key| !self.entries.contains_key(*key));
        written.map(|(key, _)| key).chain(deleted).map(String::as_str)
    }
}

/// The last state that was heard of, and how it is asked for.
pub(crate) struct Mirror {
    client: Arc<Client>,
    keys: Keys,
    clock: OnceLock<Clock>,
    heard: Mutex<Heard>,
    /// The proof that will be asked for next.
    next: Mutex<Option<SharedTask<Arc<Tree>>>>,
}

#[derive(Default)]
struct Heard {
    tree: Arc<Tree>,
    /// When it was last asked for, and the answer was that it is so.
    confirmed: Moment,
}

/// How long a state is taken for the same by its number alone. Numbers only go up, but that of a deletion
/// is forgotten after a quarter of an hour, and then an earlier one stands for the state without it.
const TRUSTED: Duration = Duration::from_secs(300);

/// How long the servers may take to prove a state. Callers have time-outs of their own.
const PATIENCE: Duration = Duration::from_secs(10);

impl Mirror {
    pub(crate) fn new(client: Arc<Client>, keys: Keys) -> Self {
        Self { client, keys, clock: OnceLock::new(), heard: Mutex::default(), next: Mutex::default() }
    }

    pub(crate) fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    /// The moment, on the engine's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.get().cloned().unwrap_or_default().now()
    }

    /// The state at some moment after this call, confirmed by a majority of the servers.
    ///
    /// Calls that are made in the same turn of the engine share a proof: nothing is sent before the next turn, so each
    /// call is before the send.
    pub(crate) async fn proven(self: &Arc<Self>) -> Result<Arc<Tree>, StoreError> {
        let proof = {
            let mut next = lock(&self.next);
            let shared = next.take().filter(SharedTask::is_running).unwrap_or_else(|| self.next_proof());
            next.insert(shared).clone()
        };
        proof.wait(StoreError::refused("the proof was cut off")).await
    }

    fn next_proof(self: &Arc<Self>) -> SharedTask<Arc<Tree>> {
        let mirror = self.clone();
        SharedTask::start_while_wanted(async move {
            tokio::task::yield_now().await;
            // A later call needs a later proof.
            lock(&mirror.next).take();
            mirror.prove().await
        })
    }

    /// # Correctness
    /// Every change to a seat, by whomever, raises the number of the state, and one that is deleted counts
    /// as changed. So if the number, asked for with `consistent` after the call began, is the one of the
    /// state that we know, then nothing has changed, and it need not be sent again. It is asked for by a
    /// list of what is directly below `PREFIX/seats`, which is one line. Otherwise all of it is read.
    async fn prove(&self) -> Result<Arc<Tree>, StoreError> {
        let asked = self.now();
        let number = self.ask("keys&separator=/&consistent", PATIENCE).await?.index()?;
        {
            let mut heard = lock(&self.heard);
            if heard.tree.index == number && asked.since(heard.confirmed) < TRUSTED {
                heard.confirmed = heard.confirmed.max(asked);
                return Ok(heard.tree.clone());
            }
        }
        self.fetch("consistent", PATIENCE).await
    }

    /// Reads all of it.
    pub(crate) async fn fetch(&self, parameters: &str, within: Duration) -> Result<Arc<Tree>, StoreError> {
        let asked = self.now();
        let answer = self.ask(&format!("recurse&{parameters}"), within).await?;
        let entries = if answer.status == 404 { Vec::new() } else { answer.json()? };
        let tree = Arc::new(Tree::new(answer.index()?, entries));
        let mut heard = lock(&self.heard);
        // A query that waits is asked long before it is answered. Numbers start over when a snapshot was restored.
        if tree.index >= heard.tree.index || asked >= heard.confirmed {
            *heard = Heard { tree: tree.clone(), confirmed: heard.confirmed.max(asked) };
        }
        Ok(tree)
    }

    async fn ask(&self, parameters: &str, within: Duration) -> Result<Answer, StoreError> {
        let path = format!("/v1/kv/{}", in_url(&self.keys.seats()));
        self.client.call(Ask::get(path, parameters).also(404).within(within)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_or_deleted_has_changed() {
        let entry = |name: &str, index| Entry::of(&format!("t/seats/{name}/seat"), "{}", "", index);
        let before = Tree::new(2, vec![entry("a", 1), entry("b", 2), entry("c", 1)]);
        let after = Tree::new(5, vec![entry("a", 1), entry("b", 3), entry("d", 5)]);
        let changed: Vec<_> = after.changed_since(&before).collect();
        assert_eq!(changed, ["t/seats/b/seat", "t/seats/d/seat", "t/seats/c/seat"]);
        assert_eq!(after.changed_since(&after).count(), 0);
        let below = |folder| after.below(folder).map(|entry| entry.modify_index).collect::<Vec<_>>();
        assert_eq!((below("t/seats/b/"), below("t/seats/c/")), (vec![3], vec![]));
    }
}
