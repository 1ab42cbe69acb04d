//! The requests and the price of an election, for a lease and a number of candidates.
//!
//! Each renewal is a write.
//!
//! ```
//! use std::time::Duration;
//! use tenure_object_store::cost::{Load, PRICES};
//!
//! let month = Load { lease: Duration::from_secs(15), candidates: 3, notes: false }.per_month();
//! assert_eq!((month.renewals + month.writes, month.reads), (525_600.0, 1_051_200.0));
//! assert_eq!(format!("{:.2}", month.price(&PRICES)), "3.05");
//! ```

pub use tenure_kit::objects::cost::{Load, Prices, Requests};

/// The public list price of S3 Standard in the region us-east-1 in 2025. Prices change and depend on the region and the
/// provider: look them up.
pub const PRICES: Prices = Prices { thousand_renewals: 0.005, thousand_writes: 0.005, thousand_reads: 0.0004 };
