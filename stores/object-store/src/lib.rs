#![doc = include_str!("../README.md")]

mod bucket;
mod clock;
pub mod cost;
mod errors;
mod notes;
mod options;
mod store;

pub use options::{BucketOptions, Provider, SCHEMES, Secret};
pub use store::BucketStore;
