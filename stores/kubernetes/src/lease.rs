//! A Lease object: the part that other clients read and write, and the part that only Tenure uses.
//!
//! ```yaml
//! metadata:
//!   name: jobs
//!   resourceVersion: "4711"                            # identifies this write
//!   annotations:
//!     tenure.election/record: '{"v":1,"holder":…}'     # the whole record
//!     tenure.election/written-with: 2026-…Z/3          # the record counts only with this spec
//! spec:                                                # as client-go writes and reads it
//!   holderIdentity: web-1-4711_5f0c…                   # id and incarnation; empty once released
//!   leaseDurationSeconds: 15
//!   acquireTime: 2026-11-15T13:00:00.000000Z           # written for others, never read for a decision
//!   renewTime: 2026-11-15T13:00:05.000000Z
//!   leaseTransitions: 3
//! ```
//!
//! Another client that takes the Lease writes the spec and leaves our annotations as they are. So the record
//! counts only if it names the holder and the `acquireTime` of the spec. Otherwise the spec counts, and the
//! record only gives a token that was reached before.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_core::{Candidate, Incarnation, Record, SeatName, StoreError, Timing, Token, record};
use tenure_kit::whole_seconds;

use crate::names;

/// The API version of the objects.
pub(crate) const API_VERSION: &str = "coordination.k8s.io/v1";

/// A Lease object. Unknown fields are preserved.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Lease {
    #[serde(default)]
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) spec: Spec,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Meta {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "or_null", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holder_identity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease_duration_seconds: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acquire_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) renew_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease_transitions: Option<i32>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Lease {
    /// Creates an object that does not exist in the cluster yet.
    pub(crate) fn new(name: String) -> Self {
        Self { metadata: Meta { name, ..Meta::default() }, ..Self::default() }
    }

    /// Returns the revision of the cluster at the last write of this object.
    pub(crate) fn revision(&self) -> Result<u64, StoreError> {
        revision(&self.metadata.resource_version)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(String::as_str)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.get(key).map(String::as_str)
    }

    /// Returns the holder that the spec names.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// Returns when a note was last written, by the server's clock. (The server itself stores when an object was
    /// created, but not when it was changed.)
    pub(crate) fn touched(&self) -> Option<Timestamp> {
        let made = self.metadata.rest.get("creationTimestamp").and_then(Value::as_str);
        [made, self.annotation(names::AT)].into_iter().flatten().filter_map(|time| time.parse().ok()).max()
    }

    /// Interprets this object as the seat of an election.
    pub(crate) fn record(&self, seat: &SeatName) -> Result<Record, StoreError> {
        if self.annotation(names::NAME).is_some_and(|name| name != seat.as_str()) {
            return Err(StoreError::denied(format!(
                "the Lease {} is the seat of another election; use another name",
                self.metadata.name
            )));
        }
        let ours = self.own_record()?;
        let duration = self.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        if duration.is_some_and(|seconds| Duration::from_secs(seconds) > Timing::LONGEST_LEASE) {
            return Err(StoreError::denied(format!(
                "the Lease {} has a leaseDurationSeconds of more than a week; correct it, or delete the Lease",
                self.metadata.name
            )));
        }
        match ours {
            Some(OwnRecord { mut record, matches: true, .. }) => {
                if !record.is_vacant() {
                    // If an operator made the duration longer, that counts. If it was made shorter, the holder
                    // may not know.
                    record.lease = record.lease.max(Duration::from_secs(duration.unwrap_or(0)));
                }
                Ok(record)
            }
            ours => Ok(self.foreign_record(ours, duration)),
        }
    }

    /// Returns the lease duration of another client that holds this object.
    pub(crate) fn foreign_duration(&self) -> Option<Duration> {
        let is_ours = self.own_record().ok()?.is_some_and(|ours| ours.matches);
        let seconds = self.spec.lease_duration_seconds.filter(|_| self.holder().is_some() && !is_ours)?;
        Some(Duration::from_secs(u64::try_from(seconds).ok()?))
    }

    /// Builds a record from the spec alone, for an object that another client has written.
    fn foreign_record(&self, ours: Option<OwnRecord>, duration: Option<u64>) -> Record {
        let spec = &self.spec;
        let transitions = spec.lease_transitions.unwrap_or(0).max(0);
        let acquired = spec.acquire_time.as_deref().unwrap_or("");
        let holder = self.holder().map(|holder| Candidate {
            id: holder.into(),
            incarnation: Incarnation::from_bits(names::number(&[holder, acquired])),
        });
        // Each change of the holder since our record was written is a term of its own.
        let mut token = u64::from(transitions.unsigned_abs());
        if let Some(ours) = &ours {
            let since = u64::from(transitions.saturating_sub(ours.transitions).max(0).unsigned_abs());
            let since = if holder.is_some() { since.max(1) } else { since };
            token = token.max(ours.record.token.get().saturating_add(since));
        }
        Record {
            // A Lease without a duration lasts as long as client-go's default.
            lease: Duration::from_secs(duration.filter(|seconds| *seconds > 0).unwrap_or(15)),
            since_ms: holder
                .as_ref()
                .and_then(|_| acquired.parse::<Timestamp>().ok()?.as_millisecond().try_into().ok()),
            holder,
            token: Token::new(token),
            ranked: ours.as_ref().is_some_and(|ours| ours.record.ranked),
            claim: ours.as_ref().and_then(|ours| ours.record.claim.clone()),
            unknown: ours.map(|ours| ours.record.unknown).unwrap_or_default(),
            ..Record::new(None, Token::ZERO, Duration::ZERO)
        }
    }

    /// Returns the record in the annotations, if any, and whether the spec is the one that was written with it.
    fn own_record(&self) -> Result<Option<OwnRecord>, StoreError> {
        let Some(text) = self.annotation(names::RECORD) else { return Ok(None) };
        let record = record::from_json(text)?;
        let (acquired, transitions) =
            self.annotation(names::WRITTEN).and_then(|with| with.rsplit_once('/')).unwrap_or_default();
        let holder = record.holder.as_ref().map(identity).unwrap_or_default();
        let matches =
            holder == self.holder().unwrap_or_default() && Some(acquired) == self.spec.acquire_time.as_deref();
        Ok(Some(OwnRecord { record, matches, transitions: transitions.parse().unwrap_or(0) }))
    }

    /// Writes this record to the object, in the form that client-go would write.
    ///
    /// # Errors
    /// Returns an error if the lease is not a whole number of seconds.
    pub(crate) fn put(&mut self, seat: &SeatName, next: &Record, now: Timestamp) -> Result<(), StoreError> {
        let seconds = i32::try_from(whole_seconds(next.lease)?).unwrap_or(i32::MAX);
        let continues = self.own_record()?.is_some_and(|ours| {
            ours.matches
                && next.holder.is_some()
                && ours.record.holder == next.holder
                && ours.record.token == next.token
        });
        let now = micro_time(now);
        let spec = &mut self.spec;
        let transitions = spec.lease_transitions.unwrap_or(-1).max(-1);
        if !continues {
            spec.acquire_time = Some(now.clone());
        }
        spec.renew_time = Some(now);
        spec.lease_transitions = Some(match &next.holder {
            Some(_) if !continues => transitions.saturating_add(1),
            _ => transitions.max(0),
        });
        spec.holder_identity = Some(next.holder.as_ref().map(identity).unwrap_or_default());
        // Clients that only read the spec can take a released Lease at once as well.
        spec.lease_duration_seconds = Some(if next.is_vacant() { 1 } else { seconds });
        let with = format!(
            "{}/{}",
            spec.acquire_time.as_deref().unwrap_or_default(),
            spec.lease_transitions.unwrap_or_default()
        );
        let annotations = &mut self.metadata.annotations;
        annotations.insert(names::RECORD.to_owned(), record::to_json(next));
        annotations.insert(names::WRITTEN.to_owned(), with);
        annotations.insert(names::NAME.to_owned(), seat.as_str().to_owned());
        self.metadata.labels.insert(names::SEAT.to_owned(), names::label_of(seat));
        Ok(())
    }

    /// Encodes the object for a request.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut object = self.clone();
        object.rest.insert("apiVersion".to_owned(), API_VERSION.into());
        object.rest.insert("kind".to_owned(), "Lease".into());
        // The server maintains this field itself.
        object.metadata.rest.remove("managedFields");
        serde_json::to_vec(&object).expect("strings and numbers can always be encoded as JSON")
    }
}

/// The record in the annotations.
struct OwnRecord {
    record: Record,
    matches: bool,
    transitions: i32,
}

/// Deserializes `null` as the default, because the server sometimes sends it for an empty value.
fn or_null<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Returns the `holderIdentity` of a candidate.
pub(crate) fn identity(candidate: &Candidate) -> String {
    format!("{}_{}", candidate.id, candidate.incarnation)
}

/// Parses a resourceVersion as a number. Its documentation calls it opaque, but the server itself compares it as
/// a number.
pub(crate) fn revision(text: &str) -> Result<u64, StoreError> {
    text.parse().map_err(|_| {
        StoreError::denied("the API server sent a resourceVersion that is not a number, which Tenure does not support")
    })
}

/// Formats a time as a Kubernetes `MicroTime`, always with six digits.
pub(crate) fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lease_held_by_another_client_has_a_foreign_duration() {
        let seat = SeatName::new("jobs").unwrap();
        let me = Candidate { id: "me".into(), incarnation: Incarnation::from_bits(7) };
        let mut object = Lease::new("jobs".to_owned());
        assert_eq!(object.foreign_duration(), None, "the Lease has no holder");
        let record = Record::new(Some(me), Token::new(1), Duration::from_secs(5));
        object.put(&seat, &record, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(object.foreign_duration(), None, "Tenure holds the Lease");
        object.spec.holder_identity = Some("somebody".to_owned());
        object.spec.lease_duration_seconds = Some(15);
        assert_eq!(object.foreign_duration(), Some(Duration::from_secs(15)));
        object.spec.holder_identity = Some(String::new());
        assert_eq!(object.foreign_duration(), None, "the Lease was released");
    }
}
