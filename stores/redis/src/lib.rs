#![doc = include_str!("../README.md")]

mod asks;
mod connection;
mod errors;
mod keys;
mod notes;
mod options;
mod place;
mod scripts;
mod servers;
mod store;
mod watch;

pub use options::{RedisOptions, SCHEMES, Secret};
pub use store::RedisStore;
