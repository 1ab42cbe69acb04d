#![doc = include_str!("../README.md")]

mod client;
mod connection_string;
pub mod cost;
mod credentials;
mod errors;
mod names;
mod notes;
mod options;
mod store;

pub use options::{AzureBlobOptions, SCHEMES, Secret};
pub use store::AzureBlobStore;
