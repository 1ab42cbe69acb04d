#![doc = include_str!("../README.md")]

mod connection;
mod options;
mod protocol;
mod store;

pub use options::{MemcachedOptions, SCHEMES, Secret};
pub use store::MemcachedStore;
