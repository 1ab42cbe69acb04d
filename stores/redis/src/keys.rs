//! Where a seat is kept.
//!
//! All keys of a seat share its name as a hash tag, so a cluster keeps them on one node:
//! `tenure:{nightly-jobs}:seat`. Braces in a name would end the tag, so they are written as `%7B` and
//! `%7D`, and `%` as `%25`; everything else stays readable.

use tenure_core::{NoteKind, SeatName};

/// The keys of a seat, and its channel.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) seat: String,
    pub(crate) channel: String,
    requests: String,
    announcements: String,
    /// Which of a cluster's slots they are in.
    pub(crate) slot: u16,
}

impl Keys {
    pub(crate) fn of(prefix: &str, database: i64, seat: &SeatName) -> Self {
        let tag = tag(seat.as_str());
        let key = |what: &str| format!("{prefix}:{{{tag}}}:{what}");
        Self {
            seat: key("seat"),
            // Channels do not belong to a database, as keys do.
            channel: if database == 0 { key("changes") } else { key(&format!("changes:{database}")) },
            requests: key("requests"),
            announcements: key("announcements"),
            slot: crc16(tag.as_bytes()) % 16384,
        }
    }

    pub(crate) fn board(&self, kind: NoteKind) -> &str {
        match kind {
            NoteKind::Request => &self.requests,
            NoteKind::Announcement => &self.announcements,
        }
    }
}

/// The key that is there while a process attends, and its slot: one of its own, not any seat's.
pub(crate) fn presence(prefix: &str, process: &str) -> (String, u16) {
    let tag = tag(process);
    (format!("{prefix}:{{{tag}}}:present"), crc16(tag.as_bytes()) % 16384)
}

/// What stands between the braces of a key.
fn tag(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

/// The checksum by which a cluster shares out its keys.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_readable_and_names_with_braces_stay_in_one_slot() {
        let keys = |name: &str| Keys::of("tenure", 0, &SeatName::new(name).unwrap());
        assert_eq!(keys("nightly jobs").seat, "tenure:{nightly jobs}:seat");
        assert_eq!(keys("a}{b%7B").seat, "tenure:{a%7D%7Bb%257B}:seat");
        assert_eq!(keys("x").board(NoteKind::Request), "tenure:{x}:requests");
        assert_eq!(presence("tenure", "0af").0, "tenure:{0af}:present");
        assert_eq!(Keys::of("p", 3, &SeatName::new("x").unwrap()).channel, "p:{x}:changes:3");
    }

    #[test]
    fn slots_are_those_of_a_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b"foo") % 16384, 12182);
    }
}
