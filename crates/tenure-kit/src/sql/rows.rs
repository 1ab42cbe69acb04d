//! Seats as rows: how a row is read, which writes share a statement, and what its result means for each seat.

use std::collections::HashMap;

use tenure_core::{
    Answers, DataIdentity, Expect, Life, Reading, Record, Seat, SeatName, StoreError, StoreTime, Swap, Token, Write,
    record,
};

use super::{Mode, VersionParts};

/// The row of a seat, as one statement has read it.
#[derive(Clone, Debug)]
pub struct SeatRow {
    /// The record, as JSON.
    pub record: String,
    /// The number of the write that the row is from.
    pub write: String,
    /// The session that holds the seat.
    pub session: Option<i64>,
    /// Whether that session is alive.
    pub is_alive: bool,
    /// When the row was written, in microseconds on the server's clock.
    pub written: i64,
    /// The time of the reading on the same clock.
    pub now: i64,
}

/// Returns the reading of a seat: from its row, the identity of the server's data, and the floor of the seat's tokens.
///
/// # Errors
/// If the record is not valid, or the seat is held in the other mode, in which this mode cannot tell whether the leader
/// is alive.
pub fn reading(row: Option<SeatRow>, mode: Mode, identity: String, floor: u64) -> Result<Reading, StoreError> {
    let seat = row.map(|row| -> Result<Seat, StoreError> {
        let record = record::from_json(&row.record)?;
        let time = |micros: i64| StoreTime::from_nanos(i128::from(micros) * 1000);
        let life = match (mode, row.session) {
            (Mode::Lease, Some(_)) if !record.is_vacant() => return Err(other_mode("session", "lease")),
            (Mode::Lease, _) => Life::Clock { now: time(row.now), renewed: time(row.written) },
            (Mode::Session, None) if !record.is_vacant() => return Err(other_mode("lease", "session")),
            (Mode::Session, Some(_)) if row.is_alive && !record.is_vacant() => Life::Held,
            (Mode::Session, _) => Life::Over,
        };
        let parts = VersionParts { write: row.write, identity: identity.clone(), session: row.session };
        Ok(Seat { record, version: parts.version(), life })
    });
    Ok(Reading { seat: seat.transpose()?, floor: Token::new(floor), identity: Some(DataIdentity::new(identity)) })
}

fn other_mode(theirs: &str, ours: &str) -> StoreError {
    StoreError::denied(format!(
        "the seat is held in mode={theirs}, but this program uses mode={ours}; use the same mode in all candidates"
    ))
}

/// Answers that none of the seats of a call exists, because the tables do not exist.
pub fn all_vacant(count: usize, to: &Answers<Reading>) {
    (0..count).for_each(|place| to.set(place, Ok(Reading { seat: None, floor: Token::ZERO, identity: None })));
}

/// The state in which the writes of a [`WriteSet`] expect their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    /// The row does not exist.
    New,
    /// The row has the expected version.
    Next,
    /// The seat is still held in the same term.
    Renewal,
}

/// The seats of a call that one statement writes.
#[derive(Debug)]
pub struct WriteSet {
    /// The state in which all of them expect their rows.
    pub kind: WriteKind,
    /// The writes, at least one.
    pub rows: Vec<RowWrite>,
}

/// The write of one seat.
#[derive(Debug)]
pub struct RowWrite {
    /// The place of the seat in the call.
    pub place: usize,
    /// The write, as the engine has asked for it.
    pub write: Write,
    /// The parts of the version that it expects; `None` for [`WriteKind::New`].
    pub expected: Option<VersionParts>,
    /// The number of this write, which no other write has.
    pub number: String,
}

/// The result of a statement that writes.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The identity of the server's data.
    pub identity: String,
    /// For the number of each write: true if the statement has written it, false if it has not because another
    /// transaction has locked the row. A write that is missing has lost: its row is not as expected.
    pub outcomes: HashMap<String, bool>,
}

impl WriteSet {
    /// Returns the sets of writes that share a statement. A write that expects a version which no seat ever had is
    /// answered at once: it has lost. `number_of` returns the number of a write.
    pub fn split<'a>(
        writes: impl Iterator<Item = (usize, &'a Write)>,
        number_of: impl Fn(&Record) -> String,
        to: &Answers<Swap>,
    ) -> Vec<Self> {
        let mut sets =
            [WriteKind::New, WriteKind::Next, WriteKind::Renewal].map(|kind| Self { kind, rows: Vec::new() });
        for (place, write) in writes {
            let expected = write.expect.version().and_then(VersionParts::parse);
            let [new, next, renewals] = &mut sets;
            let set = match (&write.expect, &expected) {
                (Expect::Absent(_), _) => new,
                (Expect::Version(_) | Expect::HolderDead(_), Some(_)) => next,
                (Expect::Held(_), Some(_)) => renewals,
                (_, None) => {
                    to.set(place, Ok(Swap::Lost));
                    continue;
                }
            };
            let number = number_of(&write.record);
            set.rows.push(RowWrite { place, write: write.clone(), expected, number });
        }
        sets.into_iter().filter(|set| !set.rows.is_empty()).collect()
    }

    /// Returns the names of the seats.
    pub fn seats(&self) -> Vec<SeatName> {
        self.rows.iter().map(|row| row.write.seat.clone()).collect()
    }

    /// Sets the answer of each seat. `done` returns the answer for a seat that was written, from its write and the parts
    /// of its new version.
    ///
    /// # Errors
    /// Returns an error, and sets no answers, if nothing was written and one of the seats may be the cause.
    pub fn answer(
        &self,
        written: Result<Written, StoreError>,
        to: &Answers<Swap>,
        done: impl Fn(&Write, VersionParts) -> Swap,
    ) -> Result<(), StoreError> {
        let written = match written {
            Err(error) if error.is_caused_by_one() => return Err(error),
            written => written,
        };
        for RowWrite { place, write, number, .. } in &self.rows {
            let answer =
                written.as_ref().map_err(Clone::clone).and_then(|written| match written.outcomes.get(number) {
                    Some(true) => {
                        let (number, identity) = (number.clone(), written.identity.clone());
                        Ok(done(write, VersionParts { write: number, identity, session: None }))
                    }
                    Some(false) => Err(StoreError::refused("the row of the seat is locked by another transaction")),
                    None => Ok(Swap::Lost),
                });
            to.set(*place, answer);
        }
        Ok(())
    }
}

impl RowWrite {
    /// Returns the incarnation of the holder that the write names.
    pub fn holder(&self) -> Option<String> {
        self.write.record.holder.as_ref().map(|holder| holder.incarnation.to_string())
    }

    /// Returns the identity of the data in which the expected version was read, or the seat was absent.
    pub fn expected_identity(&self) -> Option<&str> {
        match &self.write.expect {
            Expect::Absent(identity) => identity.as_ref().map(|identity| identity.as_str()),
            _ => self.expected.as_ref().map(|parts| parts.identity.as_str()),
        }
    }
}
