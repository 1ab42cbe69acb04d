//! What stands in the key of a seat, and the version of it.

use tenure_core::{Incarnation, Record, SeatName, SessionId, StoreError, Token, Version, Write, record};

use crate::wire::KeyValue;

/// Names one write of a seat: the revision that it made in this cluster's data, and the session that the seat
/// is held on since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) cluster: u64,
    pub(crate) revision: i64,
    pub(crate) session: Option<i64>,
}

impl Mark {
    pub(crate) fn version(&self) -> Version {
        let session = self.session.map_or("-".to_owned(), |session| format!("{session:016x}"));
        Version::new(format!("{:x}/{}/{session}", self.cluster, self.revision))
    }

    /// `None` if it is not as we write it: then it never was the version of a seat.
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split('/');
        let cluster = u64::from_str_radix(parts.next()?, 16).ok()?;
        let revision = parts.next()?.parse().ok()?;
        let session = match parts.next()? {
            "-" => None,
            session => Some(i64::from_str_radix(session, 16).ok()?),
        };
        Some(Self { cluster, revision, session }).filter(|mark| mark.version() == *version)
    }

    /// The name of the session that the seat is held on.
    pub(crate) fn session_name(&self) -> Option<SessionId> {
        self.session.map(|session| session_name(self.cluster, session))
    }
}

/// What the engine knows a session by. A cluster gives no number to two leases.
pub(crate) fn session_name(cluster: u64, session: i64) -> SessionId {
    SessionId::new(format!("{cluster:x}/{session:016x}"))
}

/// The value of a seat's key: its session in a line of its own, `-` for none, then the record.
pub(crate) struct Written {
    pub(crate) session: Option<i64>,
    pub(crate) record: Record,
    pub(crate) revision: i64,
}

impl Written {
    pub(crate) fn of(found: &KeyValue) -> Result<Self, StoreError> {
        let foreign = || {
            let key = String::from_utf8_lossy(&found.key);
            StoreError::denied(format!("the key {key} holds something that Tenure did not write: use another prefix"))
        };
        let text = std::str::from_utf8(&found.value).map_err(|_| foreign())?;
        let (session, json) = text.split_once('\n').ok_or_else(foreign)?;
        let session = match session {
            "-" => None,
            session => Some(i64::from_str_radix(session, 16).map_err(|_| foreign())?),
        };
        let record = record::from_json(json)?;
        // A record that names no holder is held by nobody, whatever stands before it.
        let session = session.filter(|_| !record.is_vacant());
        Ok(Self { session, record, revision: found.mod_revision })
    }

    pub(crate) fn text(session: Option<i64>, record: &Record) -> String {
        let session = session.map_or("-".to_owned(), |session| format!("{session:016x}"));
        format!("{session}\n{}", record::to_json(record))
    }

    /// Whether the seat is still claimed by this, on this session.
    pub(crate) fn keeps(&self, claim: &Claim, session: i64) -> bool {
        self.session == Some(session) && names(&self.record) == claim.names
    }
}

/// Whom a record names: the holder, and the term.
pub(crate) type Names = (Option<Incarnation>, Token);

pub(crate) fn names(record: &Record) -> Names {
    (record.holder.as_ref().map(|holder| holder.incarnation), record.token)
}

/// What a holder claims when it renews a seat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) seat: SeatName,
    pub(crate) names: Names,
    /// The revision in which the seat was last seen to be written.
    pub(crate) revision: i64,
}

impl Claim {
    pub(crate) fn new(write: &Write, held: &Mark) -> Self {
        Self { seat: write.seat.clone(), names: names(&write.record), revision: held.revision }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::Candidate;

    use super::*;

    #[test]
    fn a_version_names_its_write_and_its_session() {
        for session in [None, Some(1), Some(i64::MAX)] {
            let mark = Mark { cluster: u64::MAX, revision: 7, session };
            assert_eq!(Mark::parse(&mark.version()), Some(mark));
        }
        for text in ["", "1", "x/1/-", "1/2", "1/2/x", "1/2/-/", "1/2/3/4"] {
            assert_eq!(Mark::parse(&Version::new(text)), None, "{text}");
        }
    }

    #[test]
    fn a_seat_is_kept_for_the_same_holder_term_and_session_alone() {
        let record = |incarnation, token, nonce| {
            let holder = Candidate { id: "me".into(), incarnation: Incarnation::from_bits(incarnation) };
            Record { nonce, ..Record::new(Some(holder), Token::new(token), Duration::from_secs(3)) }
        };
        let value = Written::text(Some(7), &record(1, 2, 3)).into();
        let written = Written::of(&KeyValue { value, ..KeyValue::default() }).unwrap();
        let keeps = |record, session| {
            let claim = Claim { seat: SeatName::new("jobs").unwrap(), names: names(&record), revision: 1 };
            written.keeps(&claim, session)
        };
        // The nonce tells one write of the same term from another.
        assert!(keeps(record(1, 2, 4), 7));
        assert!(!keeps(record(1, 2, 3), 8), "another session");
        assert!(!keeps(record(1, 3, 3), 7), "another term");
        assert!(!keeps(record(2, 2, 3), 7), "another holder");
    }
}
