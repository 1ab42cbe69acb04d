#![doc = include_str!("../README.md")]

mod boot;
mod database;
mod errors;
mod files;
mod notes;
mod notifier;
mod place;
mod process_locks;
mod reading;
mod reservation;
mod seats;
mod side;
mod store;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod watch;
mod worker;

pub use place::{SqliteOptions, default_path};
pub use store::SqliteStore;
