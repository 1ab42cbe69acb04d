//! What things are called in a cluster.
//!
//! Everything is a Lease object. Names of elections can be any text, those of objects cannot; so a seat
//! goes by its election's name where that is possible, and by a hash of it otherwise. Two elections never
//! share an object: a name that looks like one of ours is hashed, too, and the full name stands in an
//! annotation that is checked.

use sha2::{Digest, Sha256};
use tenure_core::{Board, SeatName};

/// Whose annotations and labels these are.
macro_rules! key {
    ($name:literal) => {
        concat!("tenure.election/", $name)
    };
}

/// Label of a seat and of the requests on its board: which seat. What is watched goes by it.
pub(crate) const SEAT: &str = key!("seat");
/// Label of candidates (which seat) and of processes: what is listed goes by it, and nobody watches it.
pub(crate) const BOARD: &str = key!("board");
/// Label of notes: which kind.
pub(crate) const NOTE: &str = key!("note");

/// Annotation of a seat: the record, as JSON.
pub(crate) const RECORD: &str = key!("record");
/// Annotation of a seat: which `acquireTime` and `leaseTransitions` were written with the record.
pub(crate) const WRITTEN: &str = key!("written-with");
/// Annotation: the full name of the election.
pub(crate) const NAME: &str = key!("name");
/// Annotations of a note: its key, what it says, and for how long.
pub(crate) const KEY: &str = key!("key");
pub(crate) const VALUE: &str = key!("value");
pub(crate) const LIFETIME: &str = key!("lifetime-ms");
/// Annotation of notes: when they were written, by the server's clock.
pub(crate) const AT: &str = key!("written-at");

/// What the names of all objects begin with that are not called like an election.
const OURS: &str = "tenure-";
/// The longest name that an object may have.
const LONGEST: usize = 253;

/// The object that is a seat.
pub(crate) fn object_of(seat: &SeatName) -> String {
    let name = seat.as_str();
    if is_object_name(name) && !name.starts_with(OURS) {
        name.to_owned()
    } else {
        format!("{OURS}seat-{}", hash(&[name]))
    }
}

/// What is written on everything that belongs to a seat: a label cannot hold every name.
pub(crate) fn mark_of(seat: &SeatName) -> String {
    let mut hash = hash(&[seat.as_str()]);
    hash.truncate(40);
    hash
}

/// The object that is a note.
pub(crate) fn note(board: &Board, key: &str) -> String {
    format!("{OURS}{}-{}", board.kind(), hash(&[board.seat().map_or("", SeatName::as_str), key]))
}

/// The hash of texts, in order: no two lists of texts run together.
pub(crate) fn hash(texts: &[&str]) -> String {
    digest(texts).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first bytes of that hash, as a number.
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

/// Whether an object may be called so: parts of lower-case letters, digits and dashes, with dots between.
fn is_object_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        part.bytes().all(|byte| good(byte) || byte == b'-')
            && part.bytes().next().is_some_and(good)
            && part.bytes().next_back().is_some_and(good)
    };
    name.len() <= LONGEST && name.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> String {
        object_of(&SeatName::new(name).unwrap())
    }

    #[test]
    fn a_name_that_an_object_can_have_stays_readable() {
        for name in ["jobs", "my-app.leader", "0", "a1-2.b"] {
            assert_eq!(object(name), name);
        }
    }

    #[test]
    fn all_others_are_hashed_and_no_two_share_an_object() {
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
    fn keys_and_seats_do_not_run_together() {
        let note = |seat: &str, key: &str| note(&Board::Requests(SeatName::new(seat).unwrap()), key);
        assert_ne!(note("ab", "c"), note("a", "bc"));
        assert!(is_object_name(&note("ab", "c")));
    }
}
