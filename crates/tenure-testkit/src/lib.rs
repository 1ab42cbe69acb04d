//! The laws that every store of Tenure must pass.
//!
//! A store author writes a [`Subject`], which opens connections to the store, and one test without
//! a harness (`harness = false` in `Cargo.toml`):
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
//! Every law is a test of its own, named `subject::what_the_law_says`, so that filters, `--list` and
//! cargo-nextest work. A law about something that a store does not promise is listed with
//! `does_not_apply_as_…` behind its name; what it does promise, it is held to.
//!
//! - `laws/`: one file a law, about stores alone
//! - `laws/elections/`: one file a law, about elections over a store, through the real engine
//! - [`mod@faults`]: laws about networks and servers that fail, one file a law in `laws/faults/`
//! - [`wrap`]: stores around a store that make calls hang, fail or block, or count them
//! - [`proxy`]: a network that fails on demand
//! - [`candidate`]: candidates of laws and of a store's own tests, with a detector that tells whether two ever led at once
//! - [`fleet`]: candidates in processes of their own, killed and stopped in turns
//! - [`figures`]: how soon a leader is followed and what many elections cost, in one frame for all stores
//! - [`servers`]: real servers on this machine, for the tests of a store
//!
//! See `docs/writing-a-store.md` for a store from scratch.

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
