//! The requests and the price of an election, for a lease and a number of candidates.
//!
//! A leader renews its seat every third of a lease, and every other candidate reads it as often. The counts are those of an
//! idle month; starts, hand-overs and failures add a few.
//!
//! ```
//! use std::time::Duration;
//! use tenure_kit::objects::cost::{Load, Prices};
//!
//! let month = Load { lease: Duration::from_secs(15), candidates: 3, notes: false }.per_month();
//! assert_eq!((month.renewals, month.reads, month.writes), (525_600.0, 1_051_200.0, 0.0));
//! let prices = Prices { thousand_renewals: 0.005, thousand_writes: 0.005, thousand_reads: 0.0004 };
//! assert_eq!(format!("{:.2}", month.price(&prices)), "3.05");
//! ```

use std::time::Duration;

/// An election, as far as its cost depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The lease of the election, with the default times for everything else.
    pub lease: Duration,
    /// How many processes stand, including the leader: at least one.
    pub candidates: u32,
    /// Whether the store keeps notes.
    pub notes: bool,
}

/// The number of requests in a time. It is a fraction where it is an average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requests {
    /// Requests that renew a seat: writes, unless the server has leases.
    pub renewals: f64,
    /// Requests that read.
    pub reads: f64,
    /// Other requests that write, and those that list.
    pub writes: f64,
}

/// Prices of requests, in US dollars. They change, and depend on the region and the provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// The price of a thousand requests that renew a seat.
    pub thousand_renewals: f64,
    /// The price of a thousand requests that read.
    pub thousand_reads: f64,
    /// The price of a thousand other requests that write or list.
    pub thousand_writes: f64,
}

impl Load {
    /// Returns the requests in an hour in which nothing happens.
    pub fn per_hour(&self) -> Requests {
        let thirds = 3600.0 / (self.lease.as_secs_f64() / 3.0);
        let (followers, processes) = (f64::from(self.candidates.saturating_sub(1)), f64::from(self.candidates));
        let mut requests = Requests { renewals: thirds, reads: thirds * followers, writes: 0.0 };
        if self.notes {
            // Once a lease, each process writes a note, after a read. The leader lists its requests at each renewal.
            requests.writes += thirds / 3.0 * processes + thirds;
            requests.reads += thirds / 3.0 * processes;
        }
        requests
    }

    /// Returns the requests in a month of 730 hours in which nothing happens.
    pub fn per_month(&self) -> Requests {
        let Requests { renewals, reads, writes } = self.per_hour();
        Requests { renewals: renewals * 730.0, reads: reads * 730.0, writes: writes * 730.0 }
    }
}

impl Requests {
    /// Returns the price of these requests in US dollars, without storage and traffic.
    pub fn price(&self, prices: &Prices) -> f64 {
        let Prices { thousand_renewals, thousand_reads, thousand_writes } = *prices;
        (self.renewals * thousand_renewals + self.reads * thousand_reads + self.writes * thousand_writes) / 1000.0
    }
}
