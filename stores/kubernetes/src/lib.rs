#![doc = include_str!("../README.md")]

mod api;
mod board;
mod ears;
mod faults;
mod lease;
mod link;
mod names;
mod options;
mod plugin;
mod post;
mod store;

pub use options::{KubernetesOptions, SCHEMES};
pub use store::KubernetesStore;
