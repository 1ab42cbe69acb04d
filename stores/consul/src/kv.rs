//! Consul's key-value store: entries, and transactions of several conditions and writes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use tenure_core::{Record, StoreError, record};

use crate::client::{Client, HttpRequest};
use crate::errors;
use crate::keys::in_url;

/// A key with its value, its lock and the index of its last write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Encoded as base64.
    pub(crate) value: Option<String>,
    /// The session that has locked the key; empty if none.
    #[serde(default)]
    pub(crate) session: String,
    /// The index of the last write to this key. Consul numbers all writes of the cluster, and never reuses an
    /// index.
    pub(crate) modify_index: u64,
}

impl Entry {
    /// Returns the value as text.
    pub(crate) fn text(&self) -> Result<String, StoreError> {
        let bytes = BASE64.decode(self.value.as_deref().unwrap_or_default()).ok();
        bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| {
            StoreError::denied(format!("key {} holds a value that Tenure did not write; use another prefix", self.key))
        })
    }

    /// Parses the value as the record of a seat.
    pub(crate) fn record(&self) -> Result<Record, StoreError> {
        record::from_json(&self.text()?)
    }

    #[cfg(test)]
    pub(crate) fn of(key: &str, text: &str, session: &str, modify_index: u64) -> Self {
        Self { key: key.into(), value: Some(BASE64.encode(text)), session: session.into(), modify_index }
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Op {
    verb: &'static str,
    key: String,
    /// Encoded as base64.
    value: String,
    index: u64,
    session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

impl Op {
    fn of(verb: &'static str, key: impl Into<String>) -> Self {
        Self { verb, key: key.into(), ..Self::default() }
    }

    /// Reads an entry. The transaction fails if it does not exist.
    pub(crate) fn get(key: impl Into<String>) -> Self {
        Self::of("get", key)
    }

    /// Reads all entries with this prefix.
    pub(crate) fn get_tree(key: impl Into<String>) -> Self {
        Self::of("get-tree", key)
    }

    pub(crate) fn check_index(key: impl Into<String>, index: u64) -> Self {
        Self { index, ..Self::of("check-index", key) }
    }

    pub(crate) fn check_not_exists(key: impl Into<String>) -> Self {
        Self::of("check-not-exists", key)
    }

    pub(crate) fn set(key: impl Into<String>, text: &str) -> Self {
        Self { value: BASE64.encode(text), ..Self::of("set", key) }
    }

    /// Writes the key and locks it. Fails if another session has locked it, or if this session is over.
    pub(crate) fn lock(key: impl Into<String>, text: &str, session: &str) -> Self {
        Self { session: session.to_owned(), ..Self { verb: "lock", ..Self::set(key, text) } }
    }

    /// Writes the key and unlocks it. Fails if this session has not locked it.
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

/// The result of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// Everything was done. Contains the entries that were read and written, in order.
    Done(Vec<Entry>),
    /// Nothing was done: a condition does not hold, another session has locked a key, or the lock-delay of a
    /// session that has ended still protects it.
    Unmet,
    /// Nothing was done: the session that was to lock a key is over.
    SessionOver,
}

impl Outcome {
    /// Returns the entries, or an error with this message if nothing was done.
    pub(crate) fn or(self, otherwise: &str) -> Result<Vec<Entry>, StoreError> {
        match self {
            Self::Done(entries) => Ok(entries),
            Self::Unmet | Self::SessionOver => Err(StoreError::refused(otherwise)),
        }
    }
}

/// The maximum number of operations in a transaction.
pub(crate) const OPS: usize = 64;

/// Runs all operations in one transaction, or none of them. A majority confirms what it reads.
///
/// # Errors
/// Returns an error also if an operation is not permitted.
pub(crate) async fn transact(client: &Client, mut ops: Vec<Op>) -> Result<Outcome, StoreError> {
    #[derive(Serialize, Deserialize)]
    struct Step<T> {
        #[serde(rename = "KV")]
        kv: T,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Reply {
        results: Option<Vec<Step<Option<Entry>>>>,
        errors: Option<Vec<Unmet>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Unmet {
        what: String,
    }
    ops.iter_mut().for_each(|op| op.namespace.clone_from(&client.namespace));
    let steps: Vec<_> = ops.into_iter().map(|kv| Step { kv }).collect();
    let body = serde_json::to_string(&steps)
        .map_err(|error| StoreError::denied("cannot encode the transaction as JSON").because(error))?;
    let answer = client.call(HttpRequest::put("/v1/txn", "consistent").body(body).accept(409)).await?;
    let Reply { results, errors } = answer.json()?;
    if answer.status != 409 {
        return Ok(Outcome::Done(results.into_iter().flatten().filter_map(|found| found.kv).collect()));
    }
    let unmet = errors.unwrap_or_default();
    let says = |words: &str| unmet.iter().find(|unmet| unmet.what.contains(words));
    match says("Permission denied").or_else(|| says("ACL not found")) {
        Some(unmet) => Err(errors::from_status(&answer.shown, &client.prefix, 403, &unmet.what)),
        None if says("invalid session").is_some() => Ok(Outcome::SessionOver),
        None => Ok(Outcome::Unmet),
    }
}

/// Reads all entries with these prefixes, from one state of the store. Returns them by key.
pub(crate) async fn get(
    client: &Client,
    keys: impl IntoIterator<Item = String>,
) -> Result<BTreeMap<String, Entry>, StoreError> {
    let outcome = transact(client, keys.into_iter().map(Op::get_tree).collect()).await?;
    let entries = outcome.or("Consul did not run a transaction that only reads")?;
    Ok(entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect())
}

/// Lists all keys in a folder. The name of the folder has no slash at its end.
pub(crate) async fn keys_under(client: &Client, folder: &str) -> Result<Vec<String>, StoreError> {
    let request = HttpRequest::get(format!("/v1/kv/{}/", in_url(folder)), "keys&consistent").accept(404);
    let answer = client.call(request).await?;
    if answer.status == 404 { Ok(Vec::new()) } else { answer.json() }
}

/// Returns the index of the last write to this key, or of the last write to any key if this one does not exist.
pub(crate) async fn last_write(client: &Client, key: &str) -> Result<u64, StoreError> {
    let request = HttpRequest::get(format!("/v1/kv/{}", in_url(key)), "consistent").accept(404);
    client.call(request).await?.index()
}

/// Removes an entry. It is not an error if the entry does not exist.
pub(crate) async fn remove(client: &Client, key: &str) -> Result<(), StoreError> {
    transact(client, vec![Op::delete(key)]).await?.or("cannot remove the entry; try again").map(drop)
}
