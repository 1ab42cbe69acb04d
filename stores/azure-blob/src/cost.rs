//! The requests and the price of an election, for a lease and a number of candidates.
//!
//! A renewal is a request about the lease of a blob. Azure prices it like a read.
//!
//! ```
//! use std::time::Duration;
//! use tenure_azure_blob::cost::{Load, PRICES};
//!
//! let month = Load { lease: Duration::from_secs(15), candidates: 3, notes: false }.per_month();
//! assert_eq!((month.renewals, month.reads, month.writes), (525_600.0, 1_051_200.0, 0.0));
//! assert_eq!(format!("{:.2}", month.price(&PRICES)), "0.79");
//! ```

pub use tenure_kit::objects::cost::{Load, Prices, Requests};

/// A public list price of the hot tier with local redundancy in a US region in 2025. Prices change and depend on the region,
/// the tier and the redundancy: look them up.
pub const PRICES: Prices = Prices { thousand_renewals: 0.0005, thousand_writes: 0.0065, thousand_reads: 0.0005 };
