#![doc = include_str!("../README.md")]

mod bells;
mod board;
mod dial;
mod ear;
mod faults;
mod gather;
mod hello;
mod leases;
mod line;
mod link;
mod locks;
mod lone;
mod options;
mod schema;
mod seats;
mod session;
mod sessions;
mod store;
mod tls;
mod url;
mod waiting;

pub use options::{Mode, PostgresOptions, SslMode};
pub use schema::{DEFAULT_SCHEMA, grants_sql, lock_id_of, schema_sql};
pub use store::PostgresStore;
