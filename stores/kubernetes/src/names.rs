//! The names of objects, labels and annotations in a cluster.
//!
//! Everything is a Lease object. An election can have any name, but an object cannot. So the object of a seat has
//! the name of its election if that is possible, and a hash of it otherwise. Two elections never share an object:
//! a name that looks like one of our own names is hashed as well, and an annotation with the full name is
//! verified.

use sha2::{Digest, Sha256};
use tenure_core::{Board, SeatName};

/// Prefixes the name of an annotation or label.
macro_rules! key {
    ($name:literal) => {
        concat!("tenure.election/", $name)
    };
}

/// Label of a seat and of its requests: the seat they belong to. The watch selects by it.
pub(crate) const SEAT: &str = key!("seat");
/// Label of candidates (the seat they stand for) and of processes. Lists select by it, and the watch does not.
pub(crate) const BOARD: &str = key!("board");
/// Label of notes: their kind.
pub(crate) const NOTE: &str = key!("note");

/// Annotation of a seat: the record, as JSON.
pub(crate) const RECORD: &str = key!("record");
/// Annotation of a seat: the `acquireTime` and `leaseTransitions` that were written with the record.
pub(crate) const WRITTEN: &str = key!("written-with");
/// Annotation: the full name of the election.
pub(crate) const NAME: &str = key!("name");
/// Annotations of a note: its key, its value and its lifetime.
pub(crate) const KEY: &str = key!("key");
pub(crate) const VALUE: &str = key!("value");
pub(crate) const LIFETIME: &str = key!("lifetime-ms");
/// Annotation of a note: when it was written, by the server's clock.
pub(crate) const AT: &str = key!("written-at");

/// The prefix of all objects that do not have the name of an election.
const PREFIX: &str = "tenure-";
/// The maximum length of an object's name.
const MAX_LENGTH: usize = 253;

/// Returns the name of a seat's object.
pub(crate) fn object_of(seat: &SeatName) -> String {
    let name = seat.as_str();
    if is_object_name(name) && !name.starts_with(PREFIX) {
        name.to_owned()
    } else {
        format!("{PREFIX}seat-{}", hash(&[name]))
    }
}

/// Returns the value of the label that a seat and its notes have: a hash, because a label cannot hold every name.
pub(crate) fn label_of(seat: &SeatName) -> String {
    let mut hash = hash(&[seat.as_str()]);
    hash.truncate(40);
    hash
}

/// Returns the name of a note's object.
pub(crate) fn note(board: &Board, key: &str) -> String {
    format!("{PREFIX}{}-{}", board.kind(), hash(&[board.seat().map_or("", SeatName::as_str), key]))
}

/// Hashes texts in order. Different lists of texts have different hashes, even if their concatenations are equal.
pub(crate) fn hash(texts: &[&str]) -> String {
    digest(texts).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first bytes of that hash as a number.
pub(crate) fn number(texts: &[&str]) -> u128 {
    digest(texts).iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn digest(texts: &[&str]) -> Vec<u8> {
    let mut digest = Sha256::new();
    for text in texts {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text.as_bytes());
    }
    digest.finalize().to_vec()
}

/// Whether an object can have this name: parts of lower-case letters, digits and dashes, separated by dots.
fn is_object_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        part.bytes().all(|byte| good(byte) || byte == b'-')
            && part.bytes().next().is_some_and(good)
            && part.bytes().next_back().is_some_and(good)
    };
    name.len() <= MAX_LENGTH && name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> String {
        object_of(&SeatName::new(name).unwrap())
    }

    #[test]
    fn a_valid_object_name_is_not_hashed() {
        for name in ["jobs", "my-app.leader", "0", "a1-2.b"] {
            assert_eq!(object(name), name);
        }
    }

    #[test]
    fn all_other_names_are_hashed_and_no_two_share_an_object() {
        let hashed = object("Jobs");
        let names = ["Jobs", "jobs/a", "-a", "a-", "a..b", ".a", "выборы", "tenure-x", &hashed, &"x".repeat(254), " a"];
        let mut objects: Vec<_> = names.iter().map(|name| object(name)).collect();
        for object in &objects {
            assert!(object.starts_with("tenure-seat-") && is_object_name(object), "{object}");
        }
        objects.sort();
        objects.dedup();
        assert_eq!(objects.len(), names.len());
    }

    #[test]
    fn a_seat_and_a_key_are_hashed_as_separate_texts() {
        let note = |seat: &str, key: &str| note(&Board::Requests(SeatName::new(seat).unwrap()), key);
        assert_ne!(note("ab", "c"), note("a", "bc"));
        assert!(is_object_name(&note("ab", "c")));
    }
}
