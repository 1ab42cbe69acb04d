//! Keys and values as Consul has them: entries, and transactions of several conditions and writes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use tenure_core::{Record, StoreError, record};

use crate::client::{Ask, Client};
use crate::errors;
use crate::keys::in_url;

/// An entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// As Consul encodes it.
    pub(crate) value: Option<String>,
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

    /// The record of a seat.
    pub(crate) fn record(&self) -> Result<Record, StoreError> {
        record::from_json(&self.text()?)
    }

    #[cfg(test)]
    pub(crate) fn of(key: &str, text: &str, session: &str, modify_index: u64) -> Self {
        Self { key: key.into(), value: Some(BASE64.encode(text)), session: session.into(), modify_index }
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Op {
    verb: &'static str,
    key: String,
    /// As Consul wants it encoded.
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

    /// Reads an entry, which must be there.
    pub(crate) fn get(key: impl Into<String>) -> Self {
        Self::of("get", key)
    }

    /// All entries whose keys begin so.
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

    /// Writes it and locks it, unless a session other than this one has; that must live.
    pub(crate) fn lock(key: impl Into<String>, text: &str, session: &str) -> Self {
        Self { session: session.to_owned(), ..Self { verb: "lock", ..Self::set(key, text) } }
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

/// The result of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// All of it was done: the entries that were read and written, in order.
    Done(Vec<Entry>),
    /// Nothing was done: a condition does not hold, another session has the lock, or the lock-delay of a session that has
    /// ended keeps the key from everybody for now.
    Unmet,
    /// Nothing was done: the session that was to lock a key is over.
    SessionOver,
}

impl Outcome {
    /// The entries, or an error that says this if nothing was done.
    pub(crate) fn or(self, otherwise: &str) -> Result<Vec<Entry>, StoreError> {
        match self {
            Self::Done(entries) => Ok(entries),
            Self::Unmet | Self::SessionOver => Err(StoreError::refused(otherwise)),
        }
    }
}

/// The most operations that Consul takes in one transaction.
pub(crate) const OPS: usize = 64;

/// Makes several steps in one, or none of them. If none writes, it reads what is confirmed by a majority.
///
/// # Errors
/// Also if a step is not permitted.
pub(crate) async fn transact(client: &Client, mut ops: Vec<Op>) -> Result<Outcome, StoreError> {
    #[derive(Serialize, Deserialize)]
    struct Step<T> {
        #[serde(rename = "KV")]
        kv: T,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Answer {
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
    let body = serde_json::to_string(&steps).map_err(|error| StoreError::denied("no JSON").because(error))?;
    let answer = client.call(Ask::put("/v1/txn", "consistent").body(body).also(409)).await?;
    let Answer { results, errors } = answer.json()?;
    if answer.status != 409 {
        return Ok(Outcome::Done(results.into_iter().flatten().filter_map(|found| found.kv).collect()));
    }
    let unmet = errors.unwrap_or_default();
    let says = |words: &str| unmet.iter().find(|unmet| unmet.what.contains(words));
    match says("Permission denied").or_else(|| says("ACL not found")) {
        Some(unmet) => Err(errors::of_status(&answer.shown, &client.prefix, 403, &unmet.what)),
        None if says("invalid session").is_some() => Ok(Outcome::SessionOver),
        None => Ok(Outcome::Unmet),
    }
}

/// Reads all entries whose keys begin so, all in the same state of the store. Returns them by their keys.
pub(crate) async fn get(
    client: &Client,
    keys: impl IntoIterator<Item = String>,
) -> Result<BTreeMap<String, Entry>, StoreError> {
    let outcome = transact(client, keys.into_iter().map(Op::get_tree).collect()).await?;
    let entries = outcome.or("Consul did not read what it was asked for")?;
    Ok(entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect())
}

/// The number of the last write to anything, if there is no such key; otherwise of the last one to this.
pub(crate) async fn last_write(client: &Client, key: &str) -> Result<u64, StoreError> {
    let ask = Ask::get(format!("/v1/kv/{}", in_url(key)), "consistent").also(404);
    client.call(ask).await?.index()
}

/// Removes an entry. That there is none is not an error.
pub(crate) async fn remove(client: &Client, key: &str) -> Result<(), StoreError> {
    transact(client, vec![Op::delete(key)]).await?.or("the entry could not be removed").map(drop)
}
