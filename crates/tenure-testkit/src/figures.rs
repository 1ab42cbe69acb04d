//! Figures of a store: how soon a leader is followed, what many elections cost, beside what the server
//! says of itself. One frame for all stores, so that their figures mean the same.
//!
//! - [`BenchTarget`]: a store to measure, and the server behind it; one for each store that the kit can start
//! - [`hand_over`]: from the end of a leader to the term of the next one
//! - [`ManyElections`]: many elections in a process of their own, asked from here
//! - [`scale`]: crowds of growing size, two that share their elections, one of them killed
//! - [`Load`]: another process that keeps the server busy
//!
//! Figures are printed, and never asserted: that no term is lost and no seat left behind is.

mod consul;
mod etcd;
pub mod hand_over;
mod kubernetes;
mod load;
mod many_elections;
pub mod scale;
mod target;
mod usage;

pub use consul::ConsulTarget;
pub use etcd::EtcdTarget;
pub use kubernetes::KubernetesTarget;
pub use load::{Load, beside_a_load};
pub use many_elections::{ManyElections, Standing, crowd_child};
pub use target::{BenchTarget, FileTarget, MemoryTarget, PostgresTarget, RedisTarget, Work};
pub use usage::Usage;

use std::time::Duration;

use tenure_core::DynStore;

/// Opens a store at a URL.
pub type Open = fn(&str) -> Box<dyn DynStore>;

/// Prints how long something took, sorted.
///
/// # Panics
/// If it never happened.
pub fn show(what: &str, spans: &mut [Duration]) {
    spans.sort();
    let at = |percent: usize| spans[(spans.len() - 1) * percent / 100];
    println!("{what}: p50 {:.2?}, p99 {:.2?}, most {:.2?} ({} times)", at(50), at(99), at(100), spans.len());
}

/// A number from the environment.
///
/// # Panics
/// If it is none.
pub fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a whole number, not {text:?}")))
}
