//! Notifies other processes that a seat has changed.
//!
//! Each process that changes seats has one file in `FILE.d`, and renames it after each change. The new name
//! says which seat has changed. The kernel reports that name to every process that watches the directory
//! (inotify). So one watch serves all seats, and only the first notification creates a file.
//!
//! The name also says which process sent it. A process skips its own notifications, because it has already been
//! notified of the change, with the nonce (see [`Transaction::changed`](crate::worker::Transaction::changed)).
//! Notifications carry no nonce: two processes may notify in another order than they committed, so the last
//! nonce may not be the one in the seat.

use std::path::PathBuf;

use tenure_core::SeatName;

use crate::place::Place;
use crate::side;

/// The end of the names of notification files: `SEAT.ABOUT.SENDER.NUMBER.bell`, with the hash of the seat, `holder` or
/// `requests`, the process that sends it, and a number that makes the name a new one. This is a format: processes of
/// other versions read these names.
pub(crate) const SUFFIX: &str = ".bell";

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Holder,
    /// The holder, which is this process.
    Won,
    Requests,
}

/// Returns a hash that represents a seat in a file name, as the name of a seat can be too long for that. With
/// 128 bits, two seats of a database do not collide by chance. If they did, one of them would only be looked at
/// once per lease.
pub(crate) fn hash(seat: &SeatName) -> u128 {
    let add = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    seat.as_str().bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, add)
}

/// The notifications that this process sends.
pub(crate) struct Notifier {
    place: Place,
    /// Marks the notifications of this process.
    sender: u64,
    sent: u64,
    pub(crate) file: PathBuf,
}

impl Notifier {
    pub(crate) fn new(place: Place, sender: u64) -> Self {
        Self { place, sender, sent: 0, file: PathBuf::new() }
    }

    /// Notifies the other processes. A failure is logged; followers then notice the change with their next
    /// look.
    pub(crate) fn notify(&mut self, seat: &SeatName, about: About) {
        self.sent += 1;
        let about = match about {
            About::Holder | About::Won => "holder",
            About::Requests => "requests",
        };
        let name = format!("{:032x}.{about}.{:016x}.{}{SUFFIX}", hash(seat), self.sender, self.sent);
        let path = self.place.side.join(name);
        // The file does not exist at first, and when another process has cleared it away. Creating it notifies
        // the others as well.
        let notified = std::fs::rename(&self.file, &path).or_else(|_| side::create(&self.place, &path).map(drop));
        self.file = path;
        if let Err(error) = notified {
            let seat = seat.clone();
            tenure_core::log::emit(tracing::Level::WARN, move || {
                tracing::warn!(%seat, %error, "cannot notify other processes that the seat has changed");
            });
        }
    }
}
