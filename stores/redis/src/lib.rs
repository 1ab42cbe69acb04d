#![doc = include_str!("../README.md")]

mod board;
mod ears;
mod faults;
mod gather;
mod keys;
mod link;
mod options;
mod place;
mod scripts;
mod servers;
mod store;

pub use options::{RedisOptions, SCHEMES, Secret};
pub use store::RedisStore;
