//! Seats and notes as objects of a bucket, for stores whose server writes an object on a condition and bills by the request.
//!
//! A seat is one object. Its key ends with [`object_name`]. A seat that was forgotten keeps its last token in a
//! [`tombstone`]. Before its first write, a store checks with [`check_conditions`] that the server does not ignore
//! conditions. [`notes`] are objects that expire by the server's clock, and [`cost`] estimates the requests of an election.

pub mod cost;
pub mod notes;

use std::future::Future;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tenure_core::{StoreError, Token};

use crate::url::{decoded, encoded};

/// The objects of a store. All paths are relative to the prefix of the store, and consist of letters, digits, `~`, `-`, `_`
/// and slashes.
pub trait Objects: Send + Sync + 'static {
    /// Reads an object; `None` if it does not exist.
    fn get(&self, path: &str) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send;

    /// Writes an object on a condition, once. Returns its version; `None` if the condition does not hold.
    fn put(
        &self,
        path: &str,
        text: &str,
        on: Condition<'_>,
    ) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// Deletes an object. It is not an error if it does not exist.
    fn delete(&self, path: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lists the objects of a folder: the last part of the key of each, and its length in bytes.
    fn list(&self, folder: &str) -> impl Future<Output = Result<Vec<(String, u64)>, StoreError>> + Send;

    /// Returns the time of the last response, in seconds of the server's clock.
    fn now(&self) -> i64;
}

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The content of the object.
    pub text: String,
    /// The version, such as an ETag. No two writes of an object have the same.
    pub version: String,
    /// When the object was last written, in seconds of the server's clock.
    pub written: i64,
}

/// The condition of a write, which the server checks and writes in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    /// The object does not exist.
    Absent,
    /// The object has this version.
    Version(&'a str),
    /// None: the object is written in any case.
    None,
}

/// Checks that the server obeys both conditions. Otherwise each candidate would win each bid. `impossible` is a version that
/// no object has, and `place` names the bucket in the error.
///
/// It creates the object `probe` if it does not exist. If it exists, even as a new one, another creation must fail, and so
/// must a write on the impossible version. That is two requests, or three the first time. Both refusals are right answers,
/// so processes that check at the same time do not disturb each other.
///
/// # Errors
/// A denied error if the server ignores a condition, or the error of a request.
pub async fn check_conditions(objects: &impl Objects, impossible: &str, place: &str) -> Result<(), StoreError> {
    let body = || format!("probe {:016x}", rand::random::<u64>());
    let ignores = |what: &str| {
        let risk = "so two candidates could lead at once; use another server";
        StoreError::denied(format!("{place} ignores the conditions of writes ({what}), {risk}"))
    };
    let is_new = objects.put("probe", &body(), Condition::Absent).await?.is_some();
    if is_new && objects.put("probe", &body(), Condition::Absent).await?.is_some() {
        return Err(ignores("If-None-Match"));
    }
    match objects.put("probe", &body(), Condition::Version(impossible)).await? {
        Some(_) => Err(ignores("If-Match")),
        None => Ok(()),
    }
}

/// Returns the last part of the key of an object: the name with everything but letters, digits, `-` and `_` escaped, as `~20`
/// for a space. So a URL needs no escapes. A name that is too long for that is encoded in base64, after `~~`.
pub fn object_name(name: &str) -> String {
    let readable = encoded(name, "-_").replace('%', "~");
    if readable.len() <= LONGEST_NAME { readable } else { format!("~~{}", URL_SAFE_NO_PAD.encode(name)) }
}

/// Reverses [`object_name`]; `None` if no name has this object.
pub fn name_of(object: &str) -> Option<String> {
    match object.strip_prefix("~~") {
        Some(base64) => String::from_utf8(URL_SAFE_NO_PAD.decode(base64).ok()?).ok(),
        None => decoded(&object.replace('~', "%")).ok(),
    }
}

/// Returns the content of the object of a seat that does not exist: it was forgotten. It has a fixed length
/// ([`TOMBSTONE_LENGTH`]), and every record is longer, so a list of objects shows which of them are seats.
pub fn tombstone(token: Token) -> String {
    format!("forgotten {:020} {:016x}", token.get(), rand::random::<u64>())
}

/// Returns the last token of a seat that does not exist; `None` if the content is not a [`tombstone`].
pub fn forgotten(content: &str) -> Option<Token> {
    content.strip_prefix("forgotten ")?.split(' ').next()?.parse().ok().map(Token::new)
}

/// The length of every [`tombstone`] in bytes.
pub const TOMBSTONE_LENGTH: u64 = 47;

/// Long enough for any name in base64: 512 bytes become 683 characters. Keys have at most 1024.
const LONGEST_NAME: usize = 690;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::{Record, record};

    use super::*;

    #[test]
    fn a_tombstone_keeps_the_token_and_is_shorter_than_every_record() {
        for token in [0, 7, u64::MAX] {
            let text = tombstone(Token::new(token));
            assert_eq!(text.len() as u64, TOMBSTONE_LENGTH);
            assert_eq!(forgotten(&text), Some(Token::new(token)));
        }
        let smallest = record::to_json(&Record::new(None, Token::ZERO, Duration::ZERO));
        assert!(smallest.len() as u64 > TOMBSTONE_LENGTH, "{smallest}");
        assert_eq!(forgotten(&smallest), None);
    }

    #[test]
    fn names_are_readable_and_can_be_reversed() {
        let long = "选".repeat(170);
        for name in ["nightly-jobs", "a b/c", "~x", "~~x", "..", ".", "é", "%2F", &long] {
            let object = object_name(name);
            assert_eq!(name_of(&object).as_deref(), Some(name), "{object}");
            assert!(object.len() <= LONGEST_NAME && !object.contains(['/', '.', '%']), "{object}");
        }
        assert_eq!(object_name("a b"), "a~20b");
        assert!(object_name(&long).starts_with("~~"));
    }
}
