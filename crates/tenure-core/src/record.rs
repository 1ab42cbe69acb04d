//! The JSON form of a record, which is the same in all stores.
//!
//! ```json
//! {"v":1,"holder":{"id":"web-1-4711","incarnation":"5f0c…"},"token":7,"lease_ms":15000,
//!  "since_ms":1794650000000,"metadata":{"zone":"a"},"nonce":"9e3779b97f4a7c15"}
//! ```
//!
//! A vacant record has no holder. Fields that this version does not know are kept when the record is written again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_protocol::{Candidate, Claim, Crash, Incarnation, Record, Timing, Token, shared_pairs};

use crate::StoreError;

/// The version of the form. A record with a higher version is not changed.
const FORM: u32 = 1;

/// Formats a record as JSON, including the fields that this version does not know.
pub fn to_json(record: &Record) -> String {
    let unknown = record.unknown.iter().filter_map(|(name, value)| {
        let value = serde_json::from_str(value).ok()?;
        Some((name.clone(), value))
    });
    let form = Form {
        v: FORM,
        holder: record.holder.as_ref().map(HolderForm::of),
        token: record.token.get(),
        // Rounded up: it does no harm if a follower waits a little longer.
        lease_ms: record.lease.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u64::MAX),
        since_ms: record.since_ms,
        heir: record.heir.as_ref().map(HolderForm::of),
        priority: record.priority,
        ranked: record.ranked,
        metadata: (*record.metadata).clone(),
        nonce: format!("{:016x}", record.nonce),
        claim: record.claim.as_deref().map(ClaimForm::of),
        crash: record.crash.as_deref().map(CrashForm::of),
        unknown: unknown.collect(),
    };
    serde_json::to_string(&form).expect("strings and numbers always have a JSON form")
}

/// Parses a record from JSON.
///
/// # Errors
/// A [denied](crate::Fault::Denied) call if the text is not a record, or if a newer version of Tenure wrote it: the
/// store must not overwrite data that it does not understand.
pub fn from_json(text: &str) -> Result<Record, StoreError> {
    let foreign = |why: &str| {
        StoreError::denied(format!(
            "the seat holds something that Tenure did not write ({why}): use another name, or remove it"
        ))
    };
    let newer = |form: u64| {
        StoreError::denied(format!(
            "the seat was written by a newer version of Tenure (form {form}, known up to {FORM}): upgrade this program"
        ))
    };
    let form: Form = serde_json::from_str(text).map_err(|error| match number_of_form(text) {
        // A newer form can have other fields.
        Some(form) if form > u64::from(FORM) => newer(form),
        _ => foreign("not a record").because(error),
    })?;
    if form.v > FORM {
        return Err(newer(form.v.into()));
    }
    let candidate = |form: Option<HolderForm>| match form.map(HolderForm::candidate) {
        None => Ok(None),
        Some(Some(candidate)) => Ok(Some(candidate)),
        Some(None) => Err(foreign("a bad incarnation")),
    };
    let (holder, heir) = (candidate(form.holder)?, candidate(form.heir)?);
    let crash = match form.crash.map(CrashForm::crash) {
        Some(None) => return Err(foreign("a bad incarnation")),
        crash => crash.flatten(),
    };
    if form.token > Token::MAX.get() {
        return Err(foreign("a token out of range"));
    }
    let lease = Duration::from_millis(form.lease_ms);
    if lease > Timing::LONGEST_LEASE {
        return Err(foreign("a lease of more than a week"));
    }
    Ok(Record {
        holder,
        token: Token::new(form.token),
        lease,
        since_ms: form.since_ms,
        heir,
        priority: form.priority,
        ranked: form.ranked,
        metadata: shared_pairs(form.metadata),
        nonce: u64::from_str_radix(&form.nonce, 16).map_err(|_| foreign("a bad nonce"))?,
        claim: form.claim.map(|claim| Arc::new(claim.claim())),
        crash: crash.map(Arc::new),
        unknown: shared_pairs(form.unknown.into_iter().map(|(name, value)| (name, value.to_string())).collect()),
    })
}

/// Returns the version of the form, which records of all versions contain.
fn number_of_form(text: &str) -> Option<u64> {
    serde_json::from_str::<Value>(text).ok()?.get("v")?.as_u64()
}

#[derive(Serialize, Deserialize)]
struct Form {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<HolderForm>,
    token: u64,
    lease_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heir: Option<HolderForm>,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    ranked: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    nonce: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<ClaimForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crash: Option<CrashForm>,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct ClaimForm {
    at_ms: u64,
    by: String,
    token: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    done: bool,
}

impl ClaimForm {
    fn of(claim: &Claim) -> Self {
        let Claim { at_ms, by, token, done } = claim;
        Self { at_ms: *at_ms, by: by.to_string(), token: token.get(), done: *done }
    }

    fn claim(self) -> Claim {
        Claim { at_ms: self.at_ms, by: self.by.into(), token: Token::new(self.token), done: self.done }
    }
}

#[derive(Serialize, Deserialize)]
struct CrashForm {
    of: HolderForm,
    token: u64,
    by: String,
}

impl CrashForm {
    fn of(crash: &Crash) -> Self {
        let Crash { of, token, by } = crash;
        Self { of: HolderForm::of(of), token: token.get(), by: by.to_string() }
    }

    /// Returns the crash; `None` if the incarnation is not valid.
    fn crash(self) -> Option<Crash> {
        Some(Crash { of: self.of.candidate()?, token: Token::new(self.token), by: self.by.into() })
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct HolderForm {
    id: String,
    incarnation: String,
}

impl HolderForm {
    pub(crate) fn of(candidate: &Candidate) -> Self {
        Self { id: candidate.id.to_string(), incarnation: candidate.incarnation.to_string() }
    }

    /// Returns the candidate; `None` if the incarnation is not valid.
    pub(crate) fn candidate(self) -> Option<Candidate> {
        Some(Candidate { id: self.id.into(), incarnation: incarnation(&self.incarnation)? })
    }
}

/// Parses an incarnation.
pub(crate) fn incarnation(text: &str) -> Option<Incarnation> {
    u128::from_str_radix(text, 16).ok().map(Incarnation::from_bits)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            holder: Some(Candidate { id: "web-1".into(), incarnation: Incarnation::from_bits(0xabc) }),
            token: Token::new(7),
            lease: Duration::from_secs(15),
            since_ms: Some(1),
            heir: None,
            priority: 0,
            ranked: false,
            metadata: Arc::new(BTreeMap::from([("zone".into(), "a \"quoted\" one".into())])),
            nonce: 0xffff_ffff_ffff_ffff,
            claim: None,
            crash: None,
            unknown: Arc::default(),
        }
    }

    #[test]
    fn a_formatted_record_is_parsed_to_the_same_record() {
        let held = record();
        assert_eq!(from_json(&to_json(&held)).unwrap(), held);
        let ranked = Record { priority: -7, ranked: true, ..record() };
        assert_eq!(from_json(&to_json(&ranked)).unwrap(), ranked);
        let claim = Some(Claim { at_ms: 1_794_650_000_000, by: "web-2".into(), token: Token::new(6), done: true });
        let claimed = Record { claim: claim.map(Arc::new), ..record() };
        assert_eq!(from_json(&to_json(&claimed)).unwrap(), claimed);
        let heir = record().holder;
        let vacant = Record { holder: None, heir, metadata: Arc::default(), since_ms: None, ..record() };
        assert_eq!(from_json(&to_json(&vacant)).unwrap(), vacant);
    }

    #[test]
    fn unknown_fields_are_kept() {
        let text = to_json(&record()).replace("{\"v\":1,", "{\"v\":1,\"colour\":{\"r\":[1,2]},");
        let read = from_json(&text).unwrap();
        assert_eq!(read.unknown["colour"], "{\"r\":[1,2]}");
        assert!(to_json(&read).contains("\"colour\":{\"r\":[1,2]}"));
    }

    #[test]
    fn texts_that_are_not_records_are_denied_without_a_panic() {
        let good = to_json(&record());
        let cases = [
            "",
            "null",
            "42",
            "{}",
            "\"web-1\"",
            "[1]",
            &good.replace("abc", "xyz"),
            &good.replace("\"token\":7", "\"token\":18446744073709551615"),
            &good.replace("\"token\":7", "\"token\":-7"),
            &good.replace("\"lease_ms\":15000", "\"lease_ms\":-1"),
            &good.replace("\"lease_ms\":15000", "\"lease_ms\":604800001"),
            &good.replace("\"v\":1", "\"v\":2"),
            &good[..good.len() - 3],
        ];
        for text in cases {
            let error = from_json(text).unwrap_err();
            assert_eq!(error.fault(), tenure_protocol::Fault::Denied, "{text}");
        }
        for newer in [good.replace("\"v\":1", "\"v\":2"), "{\"v\":2,\"seat\":{}}".to_owned()] {
            let error = from_json(&newer).unwrap_err().to_string();
            assert!(error.contains("newer version of Tenure (form 2, known up to 1): upgrade this program"), "{error}");
        }
    }
}
