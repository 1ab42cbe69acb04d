#![doc = include_str!("../README.md")]

mod client;
mod errors;
mod keys;
mod kv;
mod notes;
mod options;
mod seats;
mod session;
mod store;
mod tls;
mod token;
mod tree;
mod watch;

pub use options::{ConsulOptions, SCHEMES, Secret};
pub use store::ConsulStore;
