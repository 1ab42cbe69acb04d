#![doc = include_str!("../README.md")]

mod connection;
mod errors;
mod following;
mod handshake;
mod leases;
mod notes;
mod options;
mod relay;
mod schema;
mod seats;
mod session;
mod sessions;
mod store;

pub use options::{Mode, MysqlOptions, SCHEMES, Secret, SslMode};
pub use schema::{DEFAULT_TABLE_PREFIX, grants_sql, lock_name_of, schema_sql};
pub use store::MysqlStore;
