#![doc = include_str!("../README.md")]

mod client;
mod connection_string;
pub mod cost;
mod credentials;
mod errors;
mod notes;
mod options;
mod store;
mod version;

pub use options::{AzureBlobOptions, SCHEMES, Secret};
pub use store::AzureBlobStore;
