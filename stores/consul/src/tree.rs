//! A mirror of all seats and requests, and the proof that it is current.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tenure_core::{Clock, Moment, StoreError};
use tenure_kit::{SharedTask, lock};

use crate::client::{Client, HttpRequest, Reply};
use crate::keys::{Keys, in_url};
use crate::kv::Entry;

/// All seats and requests at one moment.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Consul's index of this state: that of the last change to any of them.
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

    /// Returns the entries in a folder.
    pub(crate) fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a Entry> {
        let from_there = self.entries.range(folder.to_owned()..).map(|(_, entry)| entry);
        from_there.take_while(move |entry| entry.key.starts_with(folder))
    }

    /// Whether this session has locked any entry.
    pub(crate) fn is_locked_by(&self, session: &str) -> bool {
        self.entries.values().any(|entry| entry.session == session)
    }

    /// Returns the keys that were written or deleted since an earlier state.
    pub(crate) fn changed_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a str> {
        let index = |entry: &Entry| entry.modify_index;
        let written = self.entries.iter().filter(move |(key, entry)| earlier.get(key).map(index) != Some(index(entry)));
        let deleted = earlier.entries.keys().filter(|key| !self.entries.contains_key(*key));
        written.map(|(key, _)| key).chain(deleted).map(String::as_str)
    }
}

/// The last known state, and how to query it.
pub(crate) struct Mirror {
    client: Arc<Client>,
    keys: Keys,
    clock: OnceLock<Clock>,
    last: Mutex<LastState>,
    /// The next proof. It is not sent yet, so calls can still share it.
    next: Mutex<Option<SharedTask<Arc<Tree>>>>,
}

#[derive(Default)]
struct LastState {
    tree: Arc<Tree>,
    /// The send of the last query that confirmed this state.
    confirmed: Moment,
}

impl LastState {
    /// Keeps the answer to a query that was sent at `asked`, unless a newer state is known.
    ///
    /// A blocking query is sent long before it is answered, so the index counts. Indexes start over after a snapshot
    /// was restored, so an answer to a later query counts as well.
    fn update(&mut self, tree: &Arc<Tree>, asked: Moment) {
        if tree.index >= self.tree.index || asked >= self.confirmed {
            *self = Self { tree: tree.clone(), confirmed: self.confirmed.max(asked) };
        }
    }
}

/// How long an equal index alone proves that a state is the same. Indexes only rise, but Consul forgets the index
/// of a deletion after a quarter of an hour, and then reports an earlier index for the state without the deleted
/// key.
const TRUSTED: Duration = Duration::from_secs(300);

/// The time limit for the servers to prove a state. Callers have timeouts of their own.
const PATIENCE: Duration = Duration::from_secs(10);

impl Mirror {
    pub(crate) fn new(client: Arc<Client>, keys: Keys) -> Self {
        Self { client, keys, clock: OnceLock::new(), last: Mutex::default(), next: Mutex::default() }
    }

    pub(crate) fn attach(&self, clock: &Clock) {
        let _ = self.clock.set(clock.clone());
    }

    /// Returns the current moment on the engine's clock.
    pub(crate) fn now(&self) -> Moment {
        self.clock.get().cloned().unwrap_or_default().now()
    }

    /// Returns the state at some moment after this call, confirmed by a majority of the servers.
    ///
    /// Calls in the same turn of the engine share a proof. Nothing is sent before the next turn, so every call is
    /// before the send.
    pub(crate) async fn proven(self: &Arc<Self>) -> Result<Arc<Tree>, StoreError> {
        let proof = {
            let mut next = lock(&self.next);
            let shared = next.take().filter(SharedTask::is_running).unwrap_or_else(|| self.next_proof());
            next.insert(shared).clone()
        };
        proof.wait(StoreError::refused("the read of the seats was interrupted")).await
    }

    fn next_proof(self: &Arc<Self>) -> SharedTask<Arc<Tree>> {
        let mirror = self.clone();
        SharedTask::start_while_wanted(async move {
            tokio::task::yield_now().await;
            // Nothing is sent before this point; a later call needs a later proof.
            lock(&mirror.next).take();
            mirror.prove().await
        })
    }

    /// Returns the current state, by a query that is sent after this call.
    ///
    /// # Correctness
    /// Every change to a seat, by any client, raises the index of the state; a deletion counts as a change. So if
    /// the index, queried with `consistent` after this call began, equals that of the known state, nothing has
    /// changed, and the state need not be sent again. The query for the index lists the keys directly below
    /// `PREFIX/seats`, which is one line. If the index differs, the whole state is read.
    async fn prove(&self) -> Result<Arc<Tree>, StoreError> {
        let asked = self.now();
        let index = self.request("keys&separator=/&consistent", PATIENCE).await?.index()?;
        {
            let mut last = lock(&self.last);
            if last.tree.index == index && asked.since(last.confirmed) < TRUSTED {
                last.confirmed = last.confirmed.max(asked);
                return Ok(last.tree.clone());
            }
        }
        self.fetch("consistent", PATIENCE).await
    }

    /// Reads the whole state.
    pub(crate) async fn fetch(&self, parameters: &str, within: Duration) -> Result<Arc<Tree>, StoreError> {
        let asked = self.now();
        let answer = self.request(&format!("recurse&{parameters}"), within).await?;
        let entries = if answer.status == 404 { Vec::new() } else { answer.json()? };
        let tree = Arc::new(Tree::new(answer.index()?, entries));
        lock(&self.last).update(&tree, asked);
        Ok(tree)
    }

    async fn request(&self, parameters: &str, within: Duration) -> Result<Reply, StoreError> {
        let path = format!("/v1/kv/{}", in_url(&self.keys.seats()));
        self.client.call(HttpRequest::get(path, parameters).accept(404).within(within)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_or_deleted_keys_have_changed() {
        let entry = |name: &str, index| Entry::of(&format!("t/seats/{name}/seat"), "{}", "", index);
        let before = Tree::new(2, vec![entry("a", 1), entry("b", 2), entry("c", 1)]);
        let after = Tree::new(5, vec![entry("a", 1), entry("b", 3), entry("d", 5)]);
        let changed: Vec<_> = after.changed_since(&before).collect();
        assert_eq!(changed, ["t/seats/b/seat", "t/seats/d/seat", "t/seats/c/seat"]);
        assert_eq!(after.changed_since(&after).count(), 0);
        let below = |folder| after.below(folder).map(|entry| entry.modify_index).collect::<Vec<_>>();
        assert_eq!((below("t/seats/b/"), below("t/seats/c/")), (vec![3], vec![]));
    }

    #[test]
    fn a_state_that_arrives_late_does_not_replace_a_newer_one() {
        let at = |seconds| Moment::default() + Duration::from_secs(seconds);
        let mut last = LastState::default();
        let mut learn = |index, asked| {
            last.update(&Arc::new(Tree::new(index, Vec::new())), at(asked));
            (last.tree.index, last.confirmed)
        };
        assert_eq!(learn(5, 10), (5, at(10)));
        assert_eq!(learn(4, 9), (5, at(10)), "an earlier query with an earlier index");
        assert_eq!(learn(6, 9), (6, at(10)), "a blocking query, answered with the next state");
        assert_eq!(learn(2, 11), (2, at(11)), "a later query, after a snapshot was restored");
    }
}
