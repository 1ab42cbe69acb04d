//! The requests and the price of an election, for a lease and a number of candidates.
//!
//! Azure bills by the request. A leader renews its lease every third of it, and every other candidate reads the seat as
//! often. Azure prices a renewal like a read. The counts are those of an idle month; starts, hand-overs and failures add a
//! few.
//!
//! ```
//! use std::time::Duration;
//! use tenure_azure_blob::cost::{Load, Prices};
//!
//! let month = Load { lease: Duration::from_secs(15), candidates: 3, notes: false }.per_month();
//! assert_eq!((month.renewals, month.reads, month.writes), (525_600.0, 1_051_200.0, 0.0));
//! assert_eq!(format!("{:.2}", month.price(&Prices::default())), "0.79");
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
    /// Renewals of a lease, which Azure prices as other operations.
    pub renewals: f64,
    /// Requests that read a blob.
    pub reads: f64,
    /// Requests that write a blob or list blobs.
    pub writes: f64,
}

/// Prices of requests, in US dollars. The default is a public list price of the hot tier with local redundancy in a US
/// region in 2025. Prices change and depend on the region, the tier and the redundancy: look them up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// The price of a thousand requests that write or list.
    pub thousand_writes: f64,
    /// The price of a thousand requests that read, and of a thousand renewals.
    pub thousand_reads: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { thousand_writes: 0.0065, thousand_reads: 0.0005 }
    }
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
        let others = self.renewals + self.reads;
        (self.writes * prices.thousand_writes + others * prices.thousand_reads) / 1000.0
    }
}
