//! Where a seat is kept.
//!
//! All keys of a seat share its name as a hash tag, so a cluster keeps them on one node:
//! `tenure:{nightly-jobs}:seat`. Braces in a name would end the tag, so they are written as `%7B` and
//! `%7D`, and `%` as `%25`; everything else stays readable.

use tenure_core::{Board, SeatName};

/// What the names of all keys and channels of a store have in common.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) prefix: String,
    pub(crate) database: i64,
}

/// The keys of a seat, and its channel.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) seat: String,
    pub(crate) channel: String,
    /// The slot of a cluster that they are in.
    pub(crate) slot: u16,
}

impl Names {
    pub(crate) fn keys(&self, seat: &SeatName) -> Keys {
        let (before, after) = self.around_a_tag();
        let tag = tag(seat.as_str());
        Keys { seat: format!("{before}{tag}}}:seat"), channel: format!("{before}{tag}{after}"), slot: slot(&tag) }
    }

    /// The seat that a channel belongs to.
    pub(crate) fn seat_of(&self, channel: &str) -> Option<SeatName> {
        let (before, after) = self.around_a_tag();
        let tag = channel.strip_prefix(&before)?.strip_suffix(&after)?;
        SeatName::new(tag.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")).ok()
    }

    /// The key of a board, and its slot: that of its seat.
    pub(crate) fn board(&self, board: &Board) -> (String, u16) {
        let tag = tag(board.seat().map_or(board.kind(), SeatName::as_str));
        (format!("{}:{{{tag}}}:{}", self.prefix, board.kind()), slot(&tag))
    }

    /// What a channel's name has before and after its tag.
    fn around_a_tag(&self) -> (String, String) {
        // Channels do not belong to a database, as keys do.
        let database = if self.database == 0 { String::new() } else { format!(":{}", self.database) };
        (format!("{}:{{", self.prefix), format!("}}:changes{database}"))
    }
}

/// The slot of a cluster that a seat is in.
pub(crate) fn slot_of(seat: &SeatName) -> u16 {
    slot(&tag(seat.as_str()))
}

/// What stands between the braces of a key.
fn tag(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

fn slot(tag: &str) -> u16 {
    crc16(tag.as_bytes()) % 16384
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

    fn names(database: i64) -> Names {
        Names { prefix: "tenure".into(), database }
    }

    #[test]
    fn keys_are_readable_and_names_with_braces_stay_in_one_slot() {
        let keys = |name: &str| names(0).keys(&SeatName::new(name).unwrap());
        assert_eq!(keys("nightly jobs").seat, "tenure:{nightly jobs}:seat");
        assert_eq!(keys("a}{b%7B").seat, "tenure:{a%7D%7Bb%257B}:seat");
        let requests = Board::Requests(SeatName::new("x").unwrap());
        assert_eq!(names(0).board(&requests), ("tenure:{x}:requests".to_owned(), keys("x").slot));
        assert_eq!(names(0).board(&Board::Processes).0, "tenure:{processes}:processes");
        assert_eq!(names(3).keys(&SeatName::new("x").unwrap()).channel, "tenure:{x}:changes:3");
    }

    #[test]
    fn a_channel_tells_its_seat_whatever_the_name_and_those_of_others_tell_none() {
        for name in ["x", "nightly jobs", "a}{b%7B", "%257D}", "}:changes", "{", "%"] {
            let seat = SeatName::new(name).unwrap();
            for database in [0, 3] {
                let channel = names(database).keys(&seat).channel;
                assert_eq!(names(database).seat_of(&channel), Some(seat.clone()), "{channel}");
                assert_eq!(names(database + 1).seat_of(&channel), None, "{channel} is of another database");
            }
        }
        assert_eq!(names(0).seat_of("other:{x}:changes"), None);
    }

    #[test]
    fn slots_are_those_of_a_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12182);
    }
}
