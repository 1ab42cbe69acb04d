//! Keys and values as Consul has them: entries, and transactions of several conditions and writes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use tenure_core::StoreError;

use crate::client::{Ask, Client};
use crate::faults;
use crate::keys::in_url;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// As Consul encodes it.
    #[serde(default)]
    value: Option<String>,
    /// The session that has locked it; empty: none.
    #[serde(default)]
    pub(crate) session: String,
    /// Which write that was: they are numbered across the whole store, and the number never comes back.
    pub(crate) modify_index: u64,
}

impl Entry {
    /// What is written there.
    pub(crate) fn text(&self) -> Result<String, StoreError> {
        let bytes = BASE64.decode(self.value.as_deref().unwrap_or_default()).ok();
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
            StoreError::denied(format!(
                "the key {} holds something that Tenure did not write: use another prefix",
                self.key
            ))
        })
    }

    #[cfg(test)]
    pub(crate) fn of(key: &str, text: &str, session: &str, modify_index: u64) -> Self {
        Self { key: key.into(), value: Some(BASE64.encode(text)), session: session.into(), modify_index }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Op {
    verb: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

impl Op {
    fn of(verb: &'static str, key: impl Into<String>) -> Self {
        Self { verb, key: key.into(), value: None, index: None, session: None, namespace: None }
    }

    /// All entries whose keys begin so.
    pub(crate) fn get_tree(key: impl Into<String>) -> Self {
        Self::of("get-tree", key)
    }

    pub(crate) fn check_index(key: impl Into<String>, index: u64) -> Self {
        Self { index: Some(index), ..Self::of("check-index", key) }
    }

    pub(crate) fn check_not_exists(key: impl Into<String>) -> Self {
        Self::of("check-not-exists", key)
    }

    pub(crate) fn check_session(key: impl Into<String>, session: &str) -> Self {
        Self { session: Some(session.to_owned()), ..Self::of("check-session", key) }
    }

    pub(crate) fn set(key: impl Into<String>, text: &str) -> Self {
        Self { value: Some(BASE64.encode(text)), ..Self::of("set", key) }
    }

    /// Writes it and locks it, unless a session other than this one has; that must live.
    pub(crate) fn lock(key: impl Into<String>, text: &str, session: &str) -> Self {
        Self { session: Some(session.to_owned()), ..Self { verb: "lock", ..Self::set(key, text) } }
    }

    /// Writes it and unlocks it, if this session has locked it.
    pub(crate) fn unlock(key: impl Into<String>, text: &str, session: &str) -> Self {
        Self { verb: "unlock", ..Self::lock(key, text, session) }
    }

    pub(crate) fn delete(key: impl Into<String>) -> Self {
        Self::of("delete", key)
    }

    pub(crate) fn delete_tree(key: impl Into<String>) -> Self {
        Self::of("delete-tree", key)
    }
}

/// What came of a transaction.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All of it was done: what was read and written, in order.
    Done(Vec<Entry>),
    /// Nothing was, as some conditions did not hold.
    Unmet(Vec<Unmet>),
}

/// A step that was not possible.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Unmet {
    what: String,
}

impl Unmet {
    fn says(&self, words: &str) -> bool {
        self.what.contains(words)
    }
}

/// Whether a transaction was not possible because the session that was to lock a key is over. Otherwise a condition did
/// not hold, another session has the lock, or the lock-delay of one that has ended keeps the key from everybody for now.
///
/// # Errors
/// If a step is not permitted.
pub(crate) fn is_session_over(client: &Client, unmet: &[Unmet]) -> Result<bool, StoreError> {
    match unmet.iter().find(|unmet| unmet.says("Permission denied") || unmet.says("ACL not found")) {
        Some(unmet) => Err(faults::of_status(&client.shown(), client.prefix(), 403, &unmet.what)),
        None => Ok(unmet.iter().any(|unmet| unmet.says("invalid session"))),
    }
}

/// Makes several steps in one, or none of them. If none writes, it reads what is confirmed by a majority.
pub(crate) async fn transact(client: &Client, mut ops: Vec<Op>) -> Result<Outcome, StoreError> {
    #[derive(Serialize)]
    struct Step {
        #[serde(rename = "KV")]
        kv: Op,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
        #[serde(default)]
        results: Option<Vec<Found>>,
        #[serde(default)]
        errors: Option<Vec<Unmet>>,
    }
    #[derive(Deserialize)]
    struct Found {
        #[serde(rename = "KV")]
        kv: Option<Entry>,
    }
    for op in &mut ops {
        op.namespace = client.namespace();
    }
    let steps: Vec<_> = ops.into_iter().map(|kv| Step { kv }).collect();
    let body = serde_json::to_string(&steps).map_err(|error| StoreError::denied("no JSON").because(error))?;
    let ask = Ask::put("/v1/txn").with("consistent").body(body).also(409);
    let answer = client.call(ask).await?;
    let parsed: Answer = answer.json()?;
    Ok(match answer.status {
        409 => Outcome::Unmet(parsed.errors.unwrap_or_default()),
        _ => Outcome::Done(parsed.results.unwrap_or_default().into_iter().filter_map(|found| found.kv).collect()),
    })
}

/// Reads all entries whose keys begin so, one after the other in the same state of the store.
pub(crate) async fn get(client: &Client, keys: impl IntoIterator<Item = String>) -> Result<Vec<Entry>, StoreError> {
    match transact(client, keys.into_iter().map(Op::get_tree).collect()).await? {
        Outcome::Done(entries) => Ok(entries),
        Outcome::Unmet(unmet) => {
            is_session_over(client, &unmet)?;
            Err(StoreError::refused("Consul did not read what it was asked for"))
        }
    }
}

/// The number of the last write to anything, if there is no such key; otherwise of the last one to this.
pub(crate) async fn last_write(client: &Client, key: &str) -> Result<u64, StoreError> {
    let ask = Ask::get(format!("/v1/kv/{}", in_url(key))).with("consistent").also(404);
    client.call(ask).await?.index()
}

/// Removes an entry. That there is none is not an error.
pub(crate) async fn remove(client: &Client, key: &str) -> Result<(), StoreError> {
    client.call(Ask::delete(format!("/v1/kv/{}", in_url(key)))).await.map(drop)
}
