//! All seats and requests as last heard of, and whether that is how they still are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure_core::{Clock, Moment, StoreError};

use crate::bells::Bells;
use crate::client::{Ask, Client};
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
    fn new(index: u64, entries: Vec<Entry>) -> Self {
        Self { index, entries: entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect() }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// How much there is of it.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is anything in a folder.
    pub(crate) fn has_below(&self, folder: &str) -> bool {
        self.entries.range(folder.to_owned()..).next().is_some_and(|(key, _)| key.starts_with(folder))
    }
}

/// The last that was heard.
pub(crate) struct Mirror {
    client: Arc<Client>,
    keys: Keys,
    pub(crate) bells: Bells,
    heard: Mutex<Heard>,
}

#[derive(Default)]
struct Heard {
    tree: Option<Arc<Tree>>,
    /// When this was last asked for, and answered to be so.
    confirmed: Moment,
}

/// How long a state is taken for the same by its number alone. Numbers only go up, but that of a deletion
/// is forgotten after a quarter of an hour, and then an earlier one stands for the state without it.
const TRUSTED: Duration = Duration::from_secs(300);

impl Mirror {
    pub(crate) fn new(client: Arc<Client>, keys: Keys) -> Self {
        Self { client, keys, bells: Bells::default(), heard: Mutex::default() }
    }

    pub(crate) fn tree(&self) -> Option<Arc<Tree>> {
        self.lock().tree.clone()
    }

    /// The state at some moment after the call, confirmed by a majority of the servers.
    ///
    /// # Correctness
    /// Every change to a seat, by whomever, raises the number of the state, and one that is deleted counts
    /// as changed. So if the number, asked for with `consistent` after the call began, is the one of the
    /// state that we know, then nothing has changed, and it need not be sent again. It is asked for by a
    /// list of what is directly below `PREFIX/seats`, which is one line. Otherwise all of it is read.
    pub(crate) async fn proven(&self, clock: &Clock, within: Duration) -> Result<Arc<Tree>, StoreError> {
        let asked = clock.now();
        let list = self.ask("keys&separator=/&consistent").within(within);
        let number = self.client.call_aside(list).await?.index()?;
        {
            let mut heard = self.lock();
            let is_trusted = asked.since(heard.confirmed) < TRUSTED;
            if let Some(tree) = heard.tree.clone().filter(|tree| tree.index == number && is_trusted) {
                heard.confirmed = heard.confirmed.max(asked);
                return Ok(tree);
            }
        }
        let asked = clock.now();
        let tree = self.fetch("consistent", within).await?;
        Ok(self.learn(tree, asked, false))
    }

    /// Reads all of it.
    pub(crate) async fn fetch(&self, parameters: &str, within: Duration) -> Result<Tree, StoreError> {
        let answer = self.client.call_aside(self.ask("recurse").with(parameters).within(within)).await?;
        let entries = if answer.status == 404 { Vec::new() } else { answer.json()? };
        Ok(Tree::new(answer.index()?, entries))
    }

    fn ask(&self, parameters: &str) -> Ask {
        Ask::get(format!("/v1/kv/{}", in_url(&self.keys.seats()))).with(parameters).also(404)
    }

    /// Takes in a state, unless a later one is known, and tells whoever minds what has changed. `anew`: it
    /// counts whatever its number, as those have started over.
    pub(crate) fn learn(&self, tree: Tree, asked: Moment, anew: bool) -> Arc<Tree> {
        let tree = Arc::new(tree);
        let before = {
            let mut heard = self.lock();
            let is_later = heard.tree.as_ref().is_none_or(|known| known.index <= tree.index);
            if !is_later && !anew {
                return tree;
            }
            heard.confirmed = heard.confirmed.max(asked);
            heard.tree.replace(tree.clone())
        };
        let unknown = Arc::default();
        let (old, new) = (&before.as_ref().unwrap_or(&unknown).entries, &tree.entries);
        let index = |entry: &Entry| entry.modify_index;
        let changed = new.keys().filter(|key| old.get(*key).map(index) != new.get(*key).map(index));
        for key in changed.chain(old.keys().filter(|key| !new.contains_key(*key))) {
            if let Some(folder) = self.folder(key) {
                self.bells.ring(folder);
            }
        }
        tree
    }

    /// The folder of the seat that a key belongs to.
    fn folder<'a>(&self, key: &'a str) -> Option<&'a str> {
        let start = self.keys.seats().len() + 1;
        let end = key.get(start..)?.find('/')?;
        key.get(..start + end + 1)
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::options::ConsulOptions;

    fn mirror() -> Mirror {
        Mirror::new(Arc::new(Client::new(&ConsulOptions::default()).unwrap()), Keys::new("t"))
    }

    #[test]
    fn only_those_are_told_whose_seat_has_changed() {
        let mirror = mirror();
        let entry = |name: &str, index| Entry::of(&format!("t/seats/{name}/seat"), "{}", "", index);
        let now = Clock::system().now();
        mirror.learn(Tree::new(2, vec![entry("a", 1), entry("b", 2), entry("c", 1)]), now, false);
        let heard = |tree: Tree| {
            let bells = ["a", "b", "c", "d"].map(|name| mirror.bells.listen(&format!("t/seats/{name}/")));
            let mut told = bells.each_ref().map(|bell| Box::pin(bell.notified()));
            for told in &mut told {
                told.as_mut().enable();
            }
            mirror.learn(tree, now, false);
            told.each_mut().map(|told| told.now_or_never().is_some())
        };
        let next = || Tree::new(5, vec![entry("a", 1), entry("b", 3), entry("d", 5)]);
        assert_eq!(heard(next()), [false, true, true, true], "changed, deleted, made");
        assert_eq!(heard(Tree::new(4, Vec::new())), [false; 4], "what comes late changes nothing");
        assert_eq!(heard(next()), [false; 4]);
        assert!(mirror.tree().unwrap().has_below("t/seats/b/"));
        assert!(!mirror.tree().unwrap().has_below("t/seats/c/"));
    }
}
