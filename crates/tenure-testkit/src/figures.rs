//! Benchmarks for stores: how soon a leader is replaced, and what many elections cost, with the server's own
//! statistics. All stores use the same code, so that their figures are comparable.
//!
//! - [`BenchTarget`]: a store to measure, and its server; there is one for each store that this crate can start
//! - [`hand_over`]: the time from the end of a leader to the next leader's term
//! - [`ManyElections`]: a separate process with many elections, controlled from this one
//! - [`scale`]: processes with growing numbers of elections, and two that share their elections while one is killed
//! - [`Load`]: another process that keeps the server busy
//!
//! Figures are printed and never asserted. It is asserted that no term is lost and that no seat stays taken.

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
pub use many_elections::{ManyElections, ProcessState, many_elections_child};
pub use target::{BenchTarget, FileTarget, MemoryTarget, MysqlTarget, PostgresTarget, RedisTarget, Work};
pub use usage::Usage;

use std::time::Duration;

use tenure_core::DynStore;

/// A function that opens the store at a URL.
pub type Open = fn(&str) -> Box<dyn DynStore>;

/// Sorts the durations of a measurement and prints their percentiles after the text `what`.
///
/// # Panics
/// If there are no durations.
pub fn show(what: &str, spans: &mut [Duration]) {
    spans.sort();
    let at = |percent: usize| spans[(spans.len() - 1) * percent / 100];
    println!("{what}: p50 {:.2?}, p99 {:.2?}, max {:.2?} ({} times)", at(50), at(99), at(100), spans.len());
}

/// Returns the value of an environment variable as a number, or the default if it is not set.
///
/// # Panics
/// If the value is not a whole number.
pub fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable} must be a whole number, got {text:?}"))
    })
}
