#![doc = include_str!("../README.md")]

mod bells;
mod board;
mod client;
mod environment;
mod faults;
mod keys;
mod kv;
mod options;
mod seats;
mod session;
mod sessions;
mod store;
mod tls;
mod token;
mod tree;
mod url;
mod watch;

pub use options::{ConsulOptions, SCHEMES, Secret, TakeoverMode};
pub use store::ConsulStore;
