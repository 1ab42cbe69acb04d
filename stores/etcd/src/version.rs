//! The value of a seat's key, and the version that the store derives from it.

use tenure_core::{
    DataIdentity, Incarnation, Record, Release, SeatName, SessionId, StoreError, Token, Version, Write, record,
};

use crate::wire::KeyValue;

/// The parts of a version: the revision that the write made, the cluster whose data it is, and the session that the seat
/// has been held on since.
pub(crate) type VersionParts = tenure_kit::VersionParts<i64, u64, i64>;

/// Returns the name of the session that a seat with this version is held on.
pub(crate) fn session_of(version: &Version) -> Option<SessionId> {
    VersionParts::parse(version).as_ref().and_then(holder)
}

/// Returns the name of the session in the parts of a version.
pub(crate) fn holder(parts: &VersionParts) -> Option<SessionId> {
    parts.session.map(|session| session_name(parts.identity, session))
}

/// Returns the identity of a cluster's data.
pub(crate) fn identity(cluster: u64) -> DataIdentity {
    DataIdentity::new(format!("{cluster:x}"))
}

/// Returns the name by which the engine knows a session. A cluster never gives two leases the same ID.
pub(crate) fn session_name(cluster: u64, session: i64) -> SessionId {
    SessionId::new(format!("{cluster:x}/{session:016x}"))
}

/// The value of a seat's key: the session on a line of its own, `-` for none, then the record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SeatValue {
    pub(crate) session: Option<i64>,
    pub(crate) record: Record,
    pub(crate) revision: i64,
}

impl SeatValue {
    pub(crate) fn of(found: &KeyValue) -> Result<Self, StoreError> {
        let foreign = || {
            let key = String::from_utf8_lossy(&found.key);
            StoreError::denied(format!("key {key} holds a value that Tenure did not write; use another prefix"))
        };
        let text = std::str::from_utf8(&found.value).map_err(|_| foreign())?;
        let (session, json) = text.split_once('\n').ok_or_else(foreign)?;
        let session = match session {
            "-" => None,
            session => Some(i64::from_str_radix(session, 16).map_err(|_| foreign())?),
        };
        let record = record::from_json(json)?;
        // A record without a holder is vacant, whatever session is written before it.
        let session = session.filter(|_| !record.is_vacant());
        Ok(Self { session, record, revision: found.mod_revision })
    }

    pub(crate) fn text(session: Option<i64>, record: &Record) -> String {
        let session = session.map_or("-".to_owned(), |session| format!("{session:016x}"));
        format!("{session}\n{}", record::to_json(record))
    }

    /// Returns the seat as a notification of its release.
    pub(crate) fn release(self, cluster: u64) -> Release {
        let version = VersionParts { write: self.revision, identity: cluster, session: self.session }.version();
        Release { record: self.record, version, identity: Some(identity(cluster)) }
    }

    /// Whether the seat still has the expected holder and term, on this session.
    pub(crate) fn matches(&self, renewal: &Renewal, session: i64) -> bool {
        self.session == Some(session) && self.record.names() == renewal.names
    }
}

/// A seat that a leader renews, and the holder and term that it must still name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Renewal {
    pub(crate) seat: SeatName,
    /// The holder and the term.
    pub(crate) names: (Option<Incarnation>, Token),
    /// The revision in which the seat was last written, as far as the leader knows.
    pub(crate) revision: i64,
}

impl Renewal {
    pub(crate) fn new(write: &Write, held: &VersionParts) -> Self {
        Self { seat: write.seat.clone(), names: write.record.names(), revision: held.write }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::Candidate;

    use super::*;

    #[test]
    fn a_renewal_matches_only_the_same_holder_term_and_session() {
        let record = |incarnation, token, nonce| {
            let holder = Candidate { id: "me".into(), incarnation: Incarnation::from_bits(incarnation) };
            Record { nonce, ..Record::new(Some(holder), Token::new(token), Duration::from_secs(3)) }
        };
        let value = SeatValue::text(Some(7), &record(1, 2, 3)).into();
        let written = SeatValue::of(&KeyValue { value, ..KeyValue::default() }).unwrap();
        let matches = |record: Record, session| {
            let renewal = Renewal { seat: SeatName::new("jobs").unwrap(), names: record.names(), revision: 1 };
            written.matches(&renewal, session)
        };
        // The nonce differs between two writes of the same term.
        assert!(matches(record(1, 2, 4), 7));
        assert!(!matches(record(1, 2, 3), 8), "another session");
        assert!(!matches(record(1, 3, 3), 7), "another term");
        assert!(!matches(record(2, 2, 3), 7), "another holder");
    }
}
