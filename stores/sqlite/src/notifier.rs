//! Notifies the other processes that a seat has changed.
//!
//! Each process that changes seats has one file in the folder beside the database, and renames it after each
//! change: the new name says which seat has changed. The kernel hands that name to every process that watches the
//! folder (inotify). So one watch serves all seats, and a notification creates no file but the first.
//!
//! The name also says which process it is from. A process skips its own notifications, as it was told of the change
//! already, with the nonce (see [`Batch::changed`](crate::worker::Batch::changed)). Notifications carry no nonce: two
//! processes may notify in another order than they have committed, and the last nonce need not be the one in the seat.

use std::path::PathBuf;

use tenure_core::SeatName;

use crate::place::Place;
use crate::side;

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Holder,
    Requests,
}

/// Stands for the name of a seat in the name of a file, which cannot be as long. It has 128 bits: no two seats of a
/// database meet by chance, and if they did, one would be looked at once a lease only.
pub(crate) fn hash(seat: &SeatName) -> u128 {
    let add = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    seat.as_str().bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, add)
}

/// The notifications of this process.
pub(crate) struct Notifier {
    place: Place,
    /// Names this process.
    sender: u64,
    sent: u64,
    pub(crate) file: PathBuf,
}

impl Notifier {
    pub(crate) fn new(place: Place, sender: u64) -> Self {
        Self { place, sender, sent: 0, file: PathBuf::new() }
    }

    /// Notifies the other processes.
    pub(crate) fn notify(&mut self, seat: &SeatName, about: About) {
        self.sent += 1;
        let about = match about {
            About::Holder => "holder",
            About::Requests => "requests",
        };
        let name = format!("{:032x}.{about}.{:016x}.{}.bell", hash(seat), self.sender, self.sent);
        let path = self.place.side.join(name);
        // At first there is no file, and other processes clear files away: then it is made, which notifies them as well.
        let notified = std::fs::rename(&self.file, &path).or_else(|_| side::create(&self.place, &path).map(drop));
        self.file = path;
        if let Err(error) = notified {
            let seat = seat.clone();
            tenure_core::log::emit(tracing::Level::WARN, move || {
                tracing::warn!(%seat, %error, "watchers could not be notified that the seat has changed");
            });
        }
    }
}
