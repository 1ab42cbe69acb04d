//! Building blocks that the stores of Tenure share, for store authors.
//!
//! Most of a store is specific to its server: its statements, its error codes, the argument why a write is safe. The
//! parts that do not differ are here:
//!
//! | | |
//! |---|---|
//! | [`Reconnect`] | one connection that all calls share, replaced when it breaks or falls silent |
//! | [`first_of`], [`cannot_connect`] | the first of several hosts that answers; the words for a connection that fails |
//! | [`Sessions`] | one session for each length of lease, with one heartbeat for all seats that it holds |
//! | [`socket`] | a socket with keepalives and a second handle, for a driver that takes one; a relay that always reads from it |
//! | [`sql`] | seats and notes as rows of a SQL database, and seats that the locks of a session hold |
//! | `objects` | seats and notes as objects of a bucket, and what their requests cost (feature `objects`) |
//! | [`SharedTask`], [`Preparation`] | a task whose result several calls share; work that must succeed once before all writes |
//! | [`PendingWrites`], [`in_time`] | writes that run to their end, and reads that wait for them; a limit for their time |
//! | [`VersionParts`] | the content of a version: the write, the data and the session |
//! | [`url`], [`options`] | URLs, options and variables, parsed in the same way and with the same errors by all stores |
//! | `tls` | trusted certificates and client certificates, read from files (feature `tls`) |
//!
//! Each part can be used alone. Nothing in this crate retries a call, reads the clock of another host or decides
//! anything about an election. Everything that opens a connection or a session must be called on a tokio runtime; the
//! engine calls stores on one.
//!
//! # A store that keeps one connection
//!
//! The connection has a [`Liveness`]. It reports everything that it receives, and each call waits through it:
//!
//! ```
//! use std::sync::Arc;
//! use tenure_core::StoreError;
//! use tenure_kit::{Connection, Liveness, Patience, Reconnect};
//!
//! struct TcpConnection {
//!     liveness: Liveness,
//! }
//!
//! impl Connection for TcpConnection {
//!     fn liveness(&self) -> &Liveness {
//!         &self.liveness
//!     }
//! }
//!
//! impl TcpConnection {
//!     async fn connect(address: Arc<str>) -> Result<Self, StoreError> {
//!         // Connects, logs in, and sends a first request, with a time-out.
//!         Ok(Self { liveness: Liveness::new() })
//!     }
//!
//!     async fn ask(&self, question: &str) -> Result<String, StoreError> {
//!         let waiting = self.liveness.waiting(Patience::default());
//!         let answer = question.to_uppercase(); // Sends the question, and waits for the answer.
//!         waiting.answered();
//!         Ok(answer)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let address: Arc<str> = "127.0.0.1:7777".into();
//! let connection = Reconnect::new(move || TcpConnection::connect(address.clone()));
//! assert_eq!(connection.get().await?.ask("who leads?").await?, "WHO LEADS?");
//! # Ok::<(), StoreError>(()) }).unwrap();
//! ```
//!
//! A connection is closed when the last `Arc` of it is dropped. So the connection must end the task that reads
//! from its socket in `Drop`, and calls must hold the `Arc` while they wait. Then slow answers still arrive,
//! and no connection is left behind. If that task calls [`Liveness::heard`] for everything that it reads,
//! [`Waiting::answered`] only ends the wait of its call.
//!
//! When the server closes the connection, the task that reads from the socket calls [`Liveness::close`].
//! `Store::watch` subscribes on the connection that [`Reconnect::get`] returns, and returns when
//! [`Liveness::closed`] or [`Liveness::fell_silent`] resolves; the engine then calls it again. A store with
//! several servers has one [`Reconnect`] for each. [`Reconnect::current`] is for work that is not worth opening a
//! connection for.
//!
//! # A store that holds seats on sessions
//!
//! The store implements [`Session`]: how to renew a session, and what the renewal reports about the seats.
//! [`Sessions`] opens sessions, remembers which ones belong to this process, shares heartbeats, and reports the
//! end of a session to the engine:
//!
//! - `attach`: call [`Sessions::attach`] with the engine's clock and news.
//! - A bid: call [`Sessions::fresh`] for the lease of the call, with half of that lease as the age. The
//!   `since` of the answer is [`PooledSession::renewed`], read *before* the write is sent, unless the write
//!   itself renews the session.
//! - A renewal: call [`Sessions::find`]. If it returns nothing and [`Sessions::is_own`] knows the session, the
//!   session has ended: answer `Lost`. If the session was never one of this process, ask the server, because
//!   only the server can know. Otherwise call [`PooledSession::beat`], and answer with the heartbeat's `sent`
//!   as `since`. A heartbeat may answer for a seat only if it has seen the last write of that seat by this process:
//!   let its report name the version of each seat, or call [`PooledSession::outdate`] after each write. It
//!   must also be recent: at most a quarter of a lease old.
//! - Time-outs: a heartbeat must fail early enough for another one within the lease, after a third of it or sooner.
//!   Opening a session needs a time-out, too: a quarter of a lease to a third.
//! - `watch`: pass each change of the engine's interest to [`ReadySessions`], so that a bid on a seat that another
//!   process holds finds an open session. Once the watch is subscribed, call
//!   [`Sessions::beat_all`]: this finds sessions that ended before the watch began. Pass the end of a session that the
//!   server pushes to [`Sessions::ended`].
//!
//! If the server ties a session to a connection (PostgreSQL), the session implements [`Session::lapses`] and
//! [`Session::closed`].

mod connect;
mod names;
#[cfg(feature = "objects")]
pub mod objects;
pub mod options;
mod pending_writes;
mod reconnect;
mod sessions;
mod shared_task;
pub mod socket;
pub mod sql;
#[cfg(feature = "tls")]
pub mod tls;
pub mod url;
mod version;

pub use connect::{cannot_connect, causes, first_of, is_about_tls, no_tls};
pub use names::parse_names;
pub use pending_writes::{PendingWrites, in_time};
pub use reconnect::{Connection, Liveness, Patience, Reconnect, Waiting};
pub use sessions::{
    Heartbeat, HeartbeatReply, PooledSession, ReadySessions, Session, Sessions, WarmSession, whole_seconds,
};
pub use shared_task::{Preparation, SharedTask};
#[doc(no_inline)]
pub use tenure_core::did_you_mean;
pub use version::{VersionParts, nonce_of};

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex, even if a thread panicked while it held the lock. For state that is valid after every step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
