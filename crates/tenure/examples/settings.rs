//! Options from a file, from variables and from code. Each source overrides the one before.
//!
//! Replaces options from a section of `appsettings.json`, overridden by environment variables.

use std::time::Duration;

use tenure::{Builder, Elections, Error, Settings};

/// The text of a `tenure.toml`.
pub const FILE: &str = r#"
store = "memory:"
lease = "30s"
renew_every = "10s"

[elections.reports]
stop_grace = "1m"
metadata = { team = "billing" }
"#;

/// A program calls `Settings::load()`: it reads `tenure.toml` and the variables of its process.
pub fn settings() -> Result<Settings, Error> {
    Settings::from_toml(FILE)?.with_vars([("TENURE_CANDIDATE", "instance-7"), ("TENURE_LEASE", "45s")])
}

/// Options that are set in code override all others.
pub fn candidate(elections: &Elections) -> Builder {
    elections.election("reports").metadata("version", env!("CARGO_PKG_VERSION"))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let elections = tenure::from_settings(settings()?)?;
    let election = candidate(&elections).start()?;
    election.elected().await?;
    println!("{:?}", elections.look("reports").await?.leader);

    // An unknown key is an error that lists the options, or names the one that was meant.
    println!("{}", Settings::from_toml(r#"lease_duration = "30s""#).unwrap_err());

    elections.shutdown(Duration::from_secs(10)).await
}
