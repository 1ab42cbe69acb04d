#![doc = include_str!("../README.md")]

mod connect;
mod connection;
mod errors;
mod keys;
mod login;
mod notes;
mod options;
mod seats;
mod session;
mod store;
mod version;
mod watch;
mod wire;

pub use options::{EtcdOptions, SCHEMES, Secret};
pub use store::EtcdStore;

use tenure_kit::lock;
