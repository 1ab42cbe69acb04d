//! The names of keys and channels.
//!
//! All keys of a seat have its name as their hash tag, so a cluster keeps them on one node:
//! `tenure:{nightly-jobs}:seat`. A brace in a name would end the tag, so braces are escaped as `%7B` and `%7D`,
//! and `%` as `%25`. All other characters stay as they are.

use tenure_core::{Board, SeatName};

/// The prefix and the database of a store, from which it derives keys and channels.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) prefix: String,
    pub(crate) database: i64,
}

/// The key of a seat, its channel and its slot.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) seat: String,
    pub(crate) channel: String,
    /// The slot of a cluster that has the key.
    pub(crate) slot: u16,
}

impl Names {
    pub(crate) fn keys(&self, seat: &SeatName) -> Keys {
        let (before, after) = self.around_a_tag();
        let tag = tag(seat.as_str());
        Keys { seat: format!("{before}{tag}}}:seat"), channel: format!("{before}{tag}{after}"), slot: slot(&tag) }
    }

    /// Returns the seat of a channel, or `None` for channels of other databases and programs.
    pub(crate) fn seat_of(&self, channel: &str) -> Option<SeatName> {
        let (before, after) = self.around_a_tag();
        name(channel.strip_prefix(&before)?.strip_suffix(&after)?)
    }

    /// Returns the seat of a key, or `None` for keys of boards and of other programs.
    pub(crate) fn seat_of_key(&self, key: &str) -> Option<SeatName> {
        name(key.strip_prefix(&self.around_a_tag().0)?.strip_suffix("}:seat")?)
    }

    /// Returns the pattern of `SCAN` that the keys of all seats match.
    pub(crate) fn pattern(&self) -> String {
        let special = |c: char| if "*?[]^\\".contains(c) { format!("\\{c}") } else { c.to_string() };
        format!("{}:{{*}}:seat", self.prefix.chars().map(special).collect::<String>())
    }

    /// Returns the key of a board, and its slot, which is that of its seat.
    pub(crate) fn board(&self, board: &Board) -> (String, u16) {
        let tag = tag(board.seat().map_or(board.kind(), SeatName::as_str));
        (format!("{}:{{{tag}}}:{}", self.prefix, board.kind()), slot(&tag))
    }

    /// Returns the parts of a channel's name before and after the tag.
    fn around_a_tag(&self) -> (String, String) {
        // All databases of a server share their channels, so the name of a channel contains the database.
        let database = if self.database == 0 { String::new() } else { format!(":{}", self.database) };
        (format!("{}:{{", self.prefix), format!("}}:changes{database}"))
    }
}

/// Returns the slot of a cluster that has the seat.
pub(crate) fn slot_of(seat: &SeatName) -> u16 {
    slot(&tag(seat.as_str()))
}

/// Returns the hash tag of a name: the part of a key between the braces.
fn tag(name: &str) -> String {
    name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

/// Reverses [`tag`]; `None` if no election can have the name.
fn name(tag: &str) -> Option<SeatName> {
    SeatName::new(tag.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")).ok()
}

fn slot(tag: &str) -> u16 {
    crc16(tag.as_bytes()) % 16384
}

/// Returns the CRC-16 (XMODEM) by which a cluster assigns keys to slots.
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
    fn a_channel_maps_back_to_its_seat_and_foreign_channels_to_none() {
        for name in ["x", "nightly jobs", "a}{b%7B", "%257D}", "}:changes", "{", "%"] {
            let seat = SeatName::new(name).unwrap();
            for database in [0, 3] {
                let channel = names(database).keys(&seat).channel;
                assert_eq!(names(database).seat_of(&channel), Some(seat.clone()), "{channel}");
                assert_eq!(names(database + 1).seat_of(&channel), None, "{channel} belongs to another database");
            }
        }
        assert_eq!(names(0).seat_of("other:{x}:changes"), None);
    }

    #[test]
    fn a_key_maps_back_to_its_seat_and_keys_of_boards_and_other_prefixes_to_none() {
        for name in ["x", "nightly jobs", "a}{b%7B", "%257D}", "}:seat", "{", "%", "x}:requests"] {
            let seat = SeatName::new(name).unwrap();
            let key = names(0).keys(&seat).seat;
            assert_eq!(names(0).seat_of_key(&key), Some(seat.clone()), "{key}");
            assert_eq!(names(0).seat_of_key(&names(0).board(&Board::Requests(seat)).0), None);
        }
        assert_eq!(names(0).seat_of_key("tenure2:{x}:seat"), None);
        let odd = Names { prefix: "a*[b]\\?".into(), database: 0 };
        assert_eq!(odd.pattern(), "a\\*\\[b\\]\\\\\\?:{*}:seat");
    }

    #[test]
    fn slots_match_those_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12182);
    }
}
