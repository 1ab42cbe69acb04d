#![doc = include_str!("../README.md")]

mod bells;
mod board;
mod dial;
mod faults;
mod keys;
mod line;
mod link;
mod login;
mod options;
mod reads;
mod seats;
mod session;
mod sessions;
mod store;
mod tls;
mod wire;
mod writes;

pub use options::{EtcdOptions, SCHEMES, Secret};
pub use store::EtcdStore;
