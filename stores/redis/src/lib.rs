#![doc = include_str!("../README.md")]

mod connection;
mod errors;
mod keys;
mod list;
mod notes;
mod options;
mod script_calls;
mod scripts;
mod servers;
mod store;
mod topology;
mod watch;

pub use options::{RedisOptions, SCHEMES, Secret};
pub use store::RedisStore;
