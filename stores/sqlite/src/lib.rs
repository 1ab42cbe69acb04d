#![doc = include_str!("../README.md")]

mod bells;
mod board;
mod boot;
mod database;
mod faults;
mod files;
mod liveness;
mod place;
mod seats;
mod side;
mod store;
mod watchers;
mod worker;

pub use place::{SqliteOptions, default_path};
pub use store::SqliteStore;
