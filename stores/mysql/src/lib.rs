#![doc = include_str!("../README.md")]

mod connection;
mod errors;
mod handshake;
mod leases;
mod notes;
mod options;
mod schema;
mod seats;
mod sessions;
mod store;

pub use options::{MysqlOptions, SCHEMES, Secret, SslMode};
pub use schema::{DEFAULT_TABLE_PREFIX, grants_sql, lock_name_of, schema_sql};
pub use store::MysqlStore;
pub use tenure_kit::sql::Mode;
