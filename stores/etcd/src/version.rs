//! The value of a seat's key, and the version that the store derives from it.

use tenure_core::{Incarnation, Record, SeatName, SessionId, StoreError, Token, Version, Write, record};

use crate::wire::KeyValue;

/// Identifies one write of a seat: the revision that it made in the data of a cluster, and the session that the
/// seat has been held on since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionParts {
    pub(crate) cluster: u64,
    pub(crate) revision: i64,
    pub(crate) session: Option<i64>,
}

impl VersionParts {
    pub(crate) fn version(&self) -> Version {
        let session = self.session.map_or("-".to_owned(), |session| format!("{session:016x}"));
        Version::new(format!("{:x}/{}/{session}", self.cluster, self.revision))
    }

    /// Parses a version. Returns `None` if it does not have this form; then it was never the version of a seat.
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split('/');
        let cluster = u64::from_str_radix(parts.next()?, 16).ok()?;
        let revision = parts.next()?.parse().ok()?;
        let session = match parts.next()? {
            "-" => None,
            session => Some(i64::from_str_radix(session, 16).ok()?),
        };
        Some(Self { cluster, revision, session }).filter(|parts| parts.version() == *version)
    }

    /// Returns the name of the session that the seat is held on.
    pub(crate) fn session_name(&self) -> Option<SessionId> {
        self.session.map(|session| session_name(self.cluster, session))
    }
}

/// Returns the name by which the engine knows a session. A cluster never gives two leases the same ID.
pub(crate) fn session_name(cluster: u64, session: i64) -> SessionId {
    SessionId::new(format!("{cluster:x}/{session:016x}"))
}

/// The value of a seat's key: the session on a line of its own, `-` for none, then the record.
pub(crate) struct Written {
    pub(crate) session: Option<i64>,
    pub(crate) record: Record,
    pub(crate) revision: i64,
}

impl Written {
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
        Self { seat: write.seat.clone(), names: write.record.names(), revision: held.revision }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::Candidate;

    use super::*;

    #[test]
    fn a_version_identifies_a_write_and_a_session() {
        for session in [None, Some(1), Some(i64::MAX)] {
            let parts = VersionParts { cluster: u64::MAX, revision: 7, session };
            assert_eq!(VersionParts::parse(&parts.version()), Some(parts));
        }
        for text in ["", "1", "x/1/-", "1/2", "1/2/x", "1/2/-/", "1/2/3/4"] {
            assert_eq!(VersionParts::parse(&Version::new(text)), None, "{text}");
        }
    }

    #[test]
    fn a_renewal_matches_only_the_same_holder_term_and_session() {
        let record = |incarnation, token, nonce| {
            let holder = Candidate { id: "me".into(), incarnation: Incarnation::from_bits(incarnation) };
            Record { nonce, ..Record::new(Some(holder), Token::new(token), Duration::from_secs(3)) }
        };
        let value = Written::text(Some(7), &record(1, 2, 3)).into();
        let written = Written::of(&KeyValue { value, ..KeyValue::default() }).unwrap();
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
