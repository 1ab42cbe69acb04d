//! Leader election over the store you already have.
//!
//! One of many processes leads. When it dies, hangs, is cut off or steps down, another takes over
//! at once; and the old one has stopped before the new one starts.
//!
//! ```
//! use tenure::{Elections, MemoryStore};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let elections = Elections::new(MemoryStore::new());
//! let election = elections.election("nightly-jobs").start()?;
//!
//! election
//!     .run_while_leader(async |term| {
//!         // Hand the token to whatever you write to: it only ever rises.
//!         println!("leading with token {}", term.token());
//!     })
//!     .await?;
//!
//! election.stop();
//! election.stopped().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is not promised
//!
//! Each store says what its promise of one leader at a time rests on, and what breaks it
//! ([`Promises`]). No store promises anything about clocks that run apart by more than the `drift`,
//! a virtual machine whose guest clock was stopped and resumed, or a store restored from a backup.
//! For what must never happen twice, check [`Term::token`] where it happens.
//!
//! # Where to go from here
//!
//! - [`Election`]: `is_leader()`, `elected()`, `run_while_leader()`, `events()`, `step_down()`, …
//! - [`ElectionOptions`]: the lease, and what scales with it; [`Settings`]: from files and variables
//! - [`testing`]: a clock moved by hand and a store that fails on demand, for your own tests
//! - [`SeatStore`] or [`Store`]: to bring a store of your own

mod connect;
pub mod testing;

pub use connect::{ConnectError, connect, examples, schemes};
/// Seats in Consul.
#[cfg(feature = "consul")]
#[doc(inline)]
pub use tenure_consul as consul;
#[doc(inline)]
pub use tenure_core::memory::MemoryStore;
#[doc(inline)]
pub use tenure_core::*;
/// Seats in an etcd cluster.
#[cfg(feature = "etcd")]
#[doc(inline)]
pub use tenure_etcd as etcd;
/// Seats in Lease objects of a Kubernetes cluster.
#[cfg(feature = "kubernetes")]
#[doc(inline)]
pub use tenure_kubernetes as kubernetes;
/// Seats in a PostgreSQL database.
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use tenure_postgres as postgres;
/// Seats in Redis or Valkey.
#[cfg(feature = "redis")]
#[doc(inline)]
pub use tenure_redis as redis;
/// Seats in a file, for the processes of one machine.
#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use tenure_sqlite as sqlite;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/candidates.md")]
mod docs_candidates {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/many-elections.md")]
mod docs_many_elections {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
mod docs_testing {}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
