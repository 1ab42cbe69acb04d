#![doc = include_str!("../README.md")]

mod api;
mod connection;
mod errors;
mod lease;
mod names;
mod notes;
mod options;
mod plugin;
mod seats;
mod store;
mod watch;

pub use options::{KubernetesOptions, SCHEMES};
pub use store::KubernetesStore;
