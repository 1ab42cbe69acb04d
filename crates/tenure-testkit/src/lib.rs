//! Conformance tests for the stores of Tenure: the laws that every store must pass.
//!
//! A store author implements [`Subject`], which opens connections to the store, and adds one test without a harness
//! (`harness = false` in `Cargo.toml`):
//!
//! ```no_run
//! # use tenure_core::{DynStore, LifeKind};
//! # use tenure_testkit::{MemorySubject, Subject};
//! struct Redis;
//!
//! impl Subject for Redis {
//!     fn open(&self) -> Box<dyn DynStore> {
//! #       MemorySubject::new(LifeKind::Clock).open() /*
//!         Box::new(RedisStore::connect("redis://localhost"))
//! #       */
//!     }
//! }
//!
//! fn main() {
//!     tenure_testkit::conformance(Redis)
//! }
//! ```
//!
//! Every law is a separate test with the name `subject::name_of_the_law`, so filters, `--list` and cargo-nextest
//! work. A law about something that a store does not promise is listed with the suffix `does_not_apply_as_…`. The
//! laws check everything that a store does promise.
//!
//! - `laws/`: laws about stores alone, one file per law
//! - `laws/elections/`: laws about elections over a store, through the real engine, one file per law
//! - [`mod@faults`]: laws about networks and servers that fail, one file per law in `laws/faults/`
//! - [`wrap`]: stores that wrap another store and make its calls hang, fail or block, or count them
//! - [`proxy`]: a network that fails on demand
//! - [`candidate`]: candidates for laws and for a store's own tests, with a detector of leaders that overlap
//! - [`fleet`]: candidates in separate processes that are killed and stopped in turn
//! - [`figures`]: benchmarks for all stores: how soon a leader is replaced, and what many elections cost
//! - [`servers`]: real servers on this machine, for the tests of a store
//!
//! `docs/writing-a-store.md` builds a store from scratch.

mod bench;
pub mod candidate;
mod failure;
#[cfg(unix)]
pub mod figures;
#[cfg(unix)]
pub mod fleet;
mod kit;
mod law;
pub mod laws;
mod lines;
mod memory;
mod overlap;
mod ports;
pub mod proxy;
#[cfg(unix)]
pub mod servers;
mod subject;
pub mod wrap;

pub use bench::Bench;
pub use candidate::TestCandidate;
pub use failure::{Failure, Verdict};
pub use kit::{Kit, conformance};
pub use law::Law;
#[cfg(unix)]
pub use laws::faults;
pub use lines::Lines;
pub use memory::MemorySubject;
pub use overlap::{OverlapDetector, Shift};
pub use subject::Subject;
