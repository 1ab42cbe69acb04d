//! Leader election over a store that you already run.
//!
//! One of many processes leads. When the leader dies, hangs, is cut off or steps down, another process takes over, and
//! the old leader has stopped before the new one starts. Use it for work that must run in one place at a time:
//! schedulers, outbox publishers, projections, controllers.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Elections, MemoryStore, Term};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let elections = Elections::new(MemoryStore::new()); // or tenure::connect("redis://…")?
//! let election = elections.election("outbox").start()?;
//!
//! let publisher = election.clone();
//! tokio::spawn(async move { publisher.run_once_per_term(publish).await });
//!
//! async fn publish(term: Term) {
//!     while !term.is_ending() {
//!         println!("publishing with token {}", term.token()); // the receiver rejects lower tokens
//!         tokio::time::sleep(Duration::from_millis(10)).await;
//!     }
//! }
//! # election.elected().await?;
//!
//! // At the end of the program: the work wraps up, and the seat is released.
//! elections.shutdown(Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! - **At most one leader at a time**, under the conditions of the store: [`Promises::broken_by`] lists what breaks the
//!   promise of each store, and `tenure stores` prints it.
//! - [`Election::is_leader`] reads the clock at every call. It is false in a process that was paused beyond its lease,
//!   even before the engine runs again.
//! - Work is asked to wrap up, and the seat is released only after the work has returned or was dropped.
//! - [`Term::token`] rises with every term and never restarts.
//! - The engine runs on a separate thread. A slow handler, a blocked runtime or a slow `tracing` subscriber does not
//!   delay a renewal.
//!
//! # What it does not promise
//!
//! - That no two processes ever **act** at the same time. A write that is delayed in the network, a task that the work
//!   has spawned, and code that never awaits can outlast the term. Where an action must never happen twice, check the
//!   token where the action takes effect, and reject lower tokens.
//! - Anything about clocks whose speeds differ by more than the option `drift` (1 %), about a virtual machine whose
//!   guest clock was stopped and resumed, or about a store that was restored from a backup.
//! - A leader while the store does not answer.
//!
//! # Which store?
//!
//! | store | feature, and URL for [`connect`] | the next leader starts after the leader's process has died |
//! |---|---|---|
//! | SQLite, for the processes of one machine; no server | `sqlite`, `sqlite:` | at once |
//! | PostgreSQL | `postgres`, `postgres://…` | a lease later, or at once with a last will; at once with `?mode=session` |
//! | MySQL or MariaDB | `mysql`, `mysql://…` | a lease later, or a third of a lease with a last will; at once with `?mode=session` |
//! | SQL Server | `sqlserver`, `sqlserver://…` | a lease later, or a third of a lease with a last will; at once with `?mode=session` |
//! | Redis or Valkey | `redis`, `redis://…` | a lease later, or at once with a last will |
//! | etcd | `etcd`, `etcd://…` | a lease later, or at once with a last will |
//! | Consul | `consul`, `consul://…` | up to two leases later, or at once with a last will |
//! | Kubernetes (Lease objects) | `kubernetes`, `kubernetes://…` | a lease later, or at once with a last will |
//! | S3, Google Cloud Storage, R2, MinIO… | `object-store`, `s3://…`, `gs://…` | a lease later, or a third of a lease with a last will |
//! | Azure Blob Storage | `azure-blob`, `azblob://…` | up to a third of a lease after its lease, or with a last will |
//! | memcached, best effort: the server can forget seats | `memcached`, `memcached://…` | a lease later, or a third of a lease with a last will |
//! | [memory](MemoryStore), for tests | always, `memory:` | a lease later |
//! | your own | implement [`store::SeatStore`] | as you write it |
//!
//! Use the store that your service already depends on. Most of them notify followers, so a planned hand-over takes
//! milliseconds. Over buckets, Azure Blob Storage, memcached, and MySQL and SQL Server without `?mode=session`, followers poll, and it takes up to a third of
//! a lease. A last will is a companion process that frees the seats of a dead program: [`connect_with_last_will`] starts
//! it.
//!
//! # Which method for which work?
//!
//! | work | method |
//! |---|---|
//! | runs as long as this process leads: a consumer, a controller | [`Election::run_once_per_term`], or the handler [`Builder::on_started_leading`] |
//! | a job that finishes and runs again, on this process or another one | [`Election::run_then_release`] |
//! | one piece of work, once | [`Election::run_while_leader`] |
//! | triggered by a timer or a request, and skipped by followers | [`Election::run_if_leader`]; without `async`, [`Election::run_if_leader_blocking`] |
//! | your own loop | [`Election::elected`], then [`Term::begin_work`] and [`Term::ending`] |
//! | only a question | [`Election::is_leader`], [`Election::leader`], [`Election::events`] |
//!
//! [`Election`] compares what these methods do when the work returns, fails or outlasts its term.
//!
//! # What happens when …
//!
//! | … | then |
//! |---|---|
//! | the leader's process dies | A follower takes over: at once if the store notices it or the process had a last will ([`connect_with_last_will`]), otherwise when the lease has expired. [`LeaderCrashed`](EventKind::LeaderCrashed) reports a last will. |
//! | the leader's machine dies | Its seat expires, and a follower takes over when the lease has expired. |
//! | the leader hangs or is paused | Its term ends by the clock. When the process resumes, `is_leader()` is false, and its work is dropped before it is polled again. A follower takes over when the lease has expired. |
//! | the leader is cut off from the store | It retries. Shortly before its lease runs out, [`Term::ending`] resolves; at the end of the term the work is dropped. A follower takes over when the lease has expired. |
//! | the leader steps down or stops | Its work has `stop_grace` to wrap up. Then the seat is released, and a follower that is notified takes over at once. |
//! | the store fails | The leader leads until its lease runs out. No candidate can win. All candidates retry and need no restart. [`Election::health`] and an [`Error`](EventKind::Error) event report it. |
//! | work outlasts its term | An [`Overran`](EventKind::Overran) event; the seat is not released: it expires, or stays held if a session of this process holds it. This candidate does not stand again until the work has returned. With `on_overrun = "abort"` the process ends. |
//! | work panics | In [`run_once_per_term`](Election::run_once_per_term) and [`run_then_release`](Election::run_then_release) that counts as an error: the work runs again, here or on another candidate. In the other methods the panic reaches the caller, and the seat is kept. |
//! | a handler panics | The panic is caught, and reported by an [`Error`](EventKind::Error) event and [`Election::health`]. The election goes on. |
//! | all handles are dropped | The engine stops all elections in the background and releases their seats. |
//!
//! # Where to read on
//!
//! - [`Elections`] and [`Builder`]: start elections. [`ElectionOptions`]: the lease, and what scales with it.
//!   [`Settings`]: options from `tenure.toml` and variables; [`from_settings`] applies them.
//! - [`Election`] and [`Term`]: lead, follow, hand over, stop.
//! - [`log`] and, with the feature `metrics`, `telemetry`: log lines, spans and metrics; `docs/observability.md` lists
//!   them.
//! - [`testing`]: a clock that tests move by hand, and a store that fails on demand.
//! - [`store`]: everything that a store author needs.

mod connect;
pub mod testing;

#[cfg(unix)]
pub use connect::connect_with_last_will;
pub use connect::{connect, connect_read_only, examples, from_settings, schemes};
/// Seats in blobs of Azure Blob Storage, under leases.
#[cfg(feature = "azure-blob")]
#[doc(inline)]
pub use tenure_azure_blob as azure_blob;
/// Seats in Consul, held by one session that all elections of a process share.
#[cfg(feature = "consul")]
#[doc(inline)]
pub use tenure_consul as consul;
/// The token that [`Builder::stop_on`] takes and [`Term::cancellation_token`] returns.
///
/// It is the type of tokio-util, so code that already uses tokio-util needs no conversion. It needs no runtime. The
/// other items of foreign crates in this API are `Stream` of `futures-core`, the traits of `serde`, `Level` of `tracing`
/// in [`log::emit`], and the clients and settings of a driver in the module of its store.
#[doc(no_inline)]
pub use tenure_core::CancellationToken;
#[doc(inline)]
pub use tenure_core::memory::MemoryStore;
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use tenure_core::telemetry;
#[doc(inline)]
pub use tenure_core::{
    Builder, Candidate, CandidateStatus, ClockTrust, ConfigError, Crash, DoesNotFit, Durations, Election,
    ElectionOptions, Elections, EndReason, Ended, Error, Event, EventKind, Events, Fault, Health, Incarnation,
    LastWill, Leader, Lifeline, ListedElection, Metadata, Moment, Observer, Occasion, OnOverrun, OptionInfo, Promises,
    Report, Score, SeatName, SeatStatus, Settings, StoreError, Takeover, Term, TimingError, Token, WeakElection,
    WeakElections, Work, WorkOutcome, layers, log, span,
};
/// Seats in an etcd cluster, with one keep-alive for all elections of a process.
#[cfg(feature = "etcd")]
#[doc(inline)]
pub use tenure_etcd as etcd;
/// Seats in Lease objects of a Kubernetes cluster.
#[cfg(feature = "kubernetes")]
#[doc(inline)]
pub use tenure_kubernetes as kubernetes;
/// Seats in the memory of a memcached server, best effort: the server can forget them.
#[cfg(feature = "memcached")]
#[doc(inline)]
pub use tenure_memcached as memcached;
/// Seats in a MySQL or MariaDB database, as rows or as locks of a session.
#[cfg(feature = "mysql")]
#[doc(inline)]
pub use tenure_mysql as mysql;
/// Seats in the objects of a bucket: S3, Google Cloud Storage, R2, MinIO and others.
#[cfg(feature = "object-store")]
#[doc(inline)]
pub use tenure_object_store as object_store;
/// Seats in a PostgreSQL database, as rows or as locks of a session.
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use tenure_postgres as postgres;
/// Seats in Redis or Valkey: a single server, behind Sentinel, or a cluster.
#[cfg(feature = "redis")]
#[doc(inline)]
pub use tenure_redis as redis;
/// Seats in an SQLite file, for the processes of one machine.
#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use tenure_sqlite as sqlite;
/// Seats in a SQL Server database, as rows or held by a session.
#[cfg(feature = "sqlserver")]
#[doc(inline)]
pub use tenure_sqlserver as sqlserver;

/// Everything that a store author needs: the traits to implement, and the types of their arguments and results.
///
/// Start with [`SeatStore`](store::SeatStore), which handles one seat at a time. `docs/writing-a-store.md` builds one
/// from scratch, and the crate `tenure-testkit` has the laws that it must pass.
pub mod store {
    #[doc(inline)]
    pub use tenure_core::{
        Answers, BatchLimits, Board, BoxFuture, Call, Candidate, Change, Claim, Clock, ClockTrust, Crash, DataIdentity,
        DynNotes, DynSeatStore, DynStore, Expect, Fault, Incarnation, Interest, InterestChange, Life, LifeKind,
        Lifeline, Moment, News, Note, NoteState, NoteWrite, Notes, Promises, Push, PushDetail, Reading, Record,
        Release, Scope, Seat, SeatInterest, SeatName, SeatStore, Seen, SessionId, SingleSeat, Store, StoreError,
        StoreTime, Swap, Takeover, Token, Version, Write, record,
    };
}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/candidates.md")]
mod docs_candidates {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/last-will.md")]
mod docs_last_will {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/many-elections.md")]
mod docs_many_elections {}

#[cfg(all(doctest, feature = "metrics"))]
#[doc = include_str!("../../../docs/observability.md")]
mod docs_observability {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/migrating.md")]
mod docs_migrating {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
mod docs_testing {}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}
