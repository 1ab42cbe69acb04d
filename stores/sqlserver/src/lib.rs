#![doc = include_str!("../README.md")]

mod connection;
mod connection_string;
mod errors;
mod handshake;
mod leases;
mod notes;
mod options;
mod schema;
mod seats;
mod sessions;
mod store;

pub use connection_string::is_connection_string;
pub use options::{Encrypt, SCHEMES, Secret, SqlServerOptions};
pub use schema::{DEFAULT_SCHEMA, grants_sql, schema_sql};
pub use store::SqlServerStore;
pub use tenure_kit::sql::Mode;
