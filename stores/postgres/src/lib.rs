#![doc = include_str!("../README.md")]

mod connect;
mod connection;
mod errors;
mod handshake;
mod leases;
mod notes;
mod notifications;
mod options;
mod schema;
mod seats;
mod sessions;
mod socket;
mod store;
mod tls;
mod url;

pub use options::{Mode, PostgresOptions, SslMode};
pub use schema::{DEFAULT_SCHEMA, grants_sql, lock_id_of, schema_sql};
pub use store::PostgresStore;
