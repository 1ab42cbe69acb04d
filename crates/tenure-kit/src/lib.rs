//! What stores of Tenure have in common, for store authors.
//!
//! A store is mostly its own: its statements, its error codes, the argument why a write is safe. The parts that do not
//! differ are here:
//!
//! | | |
//! |---|---|
//! | [`Reconnect`] | one connection that all calls share, replaced when it breaks or falls silent |
//! | [`Sessions`] | one session for each length of lease, with one heartbeat for all seats that it holds |
//! | [`SharedTask`] | a task whose result several calls share; both of the above are made of it |
//! | [`url`], [`settings`] | URLs, options and variables, read in the same way and with the same errors by all stores |
//! | `tls` | trusted certificates and client certificates, read from files (feature `tls`) |
//!
//! Each part stands by itself. Nothing in here retries a call, reads a clock of another host or decides anything about
//! an election. Everything that opens a connection or a session must be called on a tokio runtime, as stores are.
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
//! struct Link {
//!     liveness: Liveness,
//! }
//!
//! impl Connection for Link {
//!     fn liveness(&self) -> &Liveness {
//!         &self.liveness
//!     }
//! }
//!
//! impl Link {
//!     async fn connect(address: Arc<str>) -> Result<Self, StoreError> {
//!         // Connects, logs in, and asks a first question, with a time-out.
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
//! let line = Reconnect::new(move || Link::connect(address.clone()));
//! assert_eq!(line.get().await?.ask("who leads?").await?, "WHO LEADS?");
//! # Ok::<(), StoreError>(()) }).unwrap();
//! ```
//!
//! A connection is closed when the last `Arc` of it is dropped: end the task that reads from its socket in `Drop`, and let
//! calls hold the `Arc` while they wait. Then slow answers still arrive, and no connection is left behind. If that task
//! calls [`Liveness::heard`] for everything that it reads, [`Waiting::answered`] only ends the wait of its call.
//!
//! When the server hangs up, the task that reads from the socket calls [`Liveness::close`]. `Store::watch` subscribes on
//! the connection that [`Reconnect::get`] returns and returns when [`Liveness::closed`] resolves; the engine then calls
//! it again. A store with several servers has one [`Reconnect`] for each. [`Reconnect::current`] is for work that is not
//! worth a connection of its own.
//!
//! # A store that holds seats on sessions
//!
//! The store implements [`Session`]: how a session is renewed, and what the renewal tells about the seats. [`Sessions`]
//! opens sessions, remembers which are ours, shares heartbeats and reports the end of a session to the engine:
//!
//! - `attach`: [`Sessions::attach`], with the engine's clock and news.
//! - A bid: [`Sessions::fresh`] for the lease of the record, renewed no longer ago than half of that. `since` of the answer
//!   is [`PooledSession::renewed`], read *before* the write is sent, unless the write itself renews the session.
//! - A renewal: [`Sessions::find`]. If there is none and [`Sessions::is_own`] knows the session, the session is over: the
//!   answer is `Lost`. If it was never ours, ask the server: without one, nobody can know. Otherwise
//!   [`PooledSession::beat`], and an answer with the heartbeat's `sent` as `since`. A heartbeat may answer for a seat only if
//!   it began after the last write of that seat by this process was answered; note [`PooledSession::next_beat`] then. And
//!   only if it is young: a quarter of a lease at the most.
//! - Time-outs: a third of a lease for a heartbeat, a lease for opening a session.
//! - `watch`: a [`WarmSession`] from [`Sessions::keep_warm`] for every lease of a seat that another process holds, so that a
//!   bid finds a session that is open. Once it is subscribed, renew each session of [`Sessions::live`] once: a session that
//!   has ended before the watch began is found by that.
//!
//! A session that the server ties to a connection (PostgreSQL) says so by [`Session::lapses`] and [`Session::closed`].

mod reconnect;
mod sessions;
pub mod settings;
mod shared_task;
#[cfg(feature = "tls")]
pub mod tls;
pub mod url;

pub use reconnect::{Connection, Liveness, Patience, Reconnect, Waiting};
pub use sessions::{Heartbeat, HeartbeatReply, PooledSession, Session, Sessions, WarmSession};
pub use shared_task::SharedTask;

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex, also if a thread has panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
